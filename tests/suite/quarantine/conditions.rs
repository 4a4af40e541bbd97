//! Casts that the query asks of rows before it leaves them out: in conditions, in keys, above them.

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;
use tests::{case::ModelText, rows, site::Site};

use super::{expect, listed, model, send};
use crate::plain::test_async;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "quarantine::a_cast_that_a_condition_makes_too_breaks_nothing_but_its_row",
            conditions,
        ),
        test_async("quarantine::keys_that_are_cast_break_nothing_later", keys),
    ]
}

async fn conditions() -> Result<()> {
    let cast = "CAST(payload->>'amount' AS BIGINT)";
    let rows = format!(
        "SELECT (payload->>'id')::BIGINT AS id, {cast} AS amount, _seq FROM landing.orders"
    );
    let auto =
        json!({ "incremental_strategy": "auto", "incremental_filter": null, "unique_key": null });
    let append = json!({ "incremental_strategy": "append", "unique_key": null });
    for (extra, sql) in [
        (append.clone(), format!("{rows} WHERE {cast} > 0")),
        (
            append,
            format!("SELECT * FROM ({rows}) AS t WHERE amount > 0"),
        ),
        (
            json!({}),
            format!("WITH t AS ({rows}) SELECT * FROM t WHERE amount > 0"),
        ),
        (
            auto,
            format!("SELECT id, amount FROM ({rows}) AS t WHERE amount > 0"),
        ),
    ] {
        let site = Site::in_memory(&[model("silver.orders", extra, &sql, &[])], "")?;
        let silver = "SELECT id, amount FROM silver.orders ORDER BY id";
        send(&site, &[(1, "1"), (2, "x"), (3, "3"), (4, "-1")]).await?;
        site.cycle().await?;
        expect(&site.lab, silver, json!([[1, 1], [3, 3]])).await?;
        let found = listed(&site).await?;
        ensure!(found.len() == 1 && found[0].0 == 2, "{sql}: {found:?}");
        send(&site, &[(5, "5")]).await?;
        site.cycle().await?;
        expect(&site.lab, silver, json!([[1, 1], [3, 3], [5, 5]])).await?;
        ensure!(listed(&site).await?.len() == 1, "{sql}: listed again");
    }
    Ok(())
}

fn sums(sql: &str) -> ModelText {
    let extra =
        json!({ "incremental_strategy": "auto", "incremental_filter": null, "unique_key": null });
    model("silver.orders", extra, sql, &[])
}

async fn keys() -> Result<()> {
    let cast = "CAST(payload->>'amount' AS BIGINT)";
    for sql in [
        format!("SELECT {cast} AS k, count(*) AS n FROM landing.orders GROUP BY {cast}"),
        format!(
            "WITH t AS (SELECT {cast} AS k FROM landing.orders) SELECT k, count(*) AS n FROM t GROUP BY k"
        ),
    ] {
        let site = Site::in_memory(&[sums(&sql)], "")?;
        let silver = "SELECT k, n FROM silver.orders ORDER BY k";
        send(&site, &[(1, "1"), (2, "zz")]).await?;
        site.cycle().await?;
        expect(&site.lab, silver, json!([[1, 1]])).await?;
        send(&site, &[(3, "1")]).await?;
        site.cycle().await?;
        expect(&site.lab, silver, json!([[1, 2]])).await?;
        let found = listed(&site).await?;
        ensure!(found.len() == 1 && found[0].0 == 2, "{sql}: {found:?}");
        let table = tests::world::table("silver.orders")?;
        let dropped = engine::quarantine::drop_rows(&site.lab.world, &table, None);
        let dropped = dropped.await.map_err(|error| rows::chain(&error))?;
        ensure!(dropped.dropped == 1, "{dropped:?}");
        send(&site, &[(4, "1"), (5, "2")]).await?;
        site.cycle().await?;
        expect(&site.lab, silver, json!([[1, 3], [2, 1]])).await?;
        ensure!(listed(&site).await?.is_empty(), "{sql}: listed again");
    }
    Ok(())
}
