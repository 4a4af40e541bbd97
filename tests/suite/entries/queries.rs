//! Entries that are queries over live models, and how entries are served.

use anyhow::{Result, ensure};
use domain::Duration;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{http::Answer, parquet, site::Site};

use super::{Desk, rows};
use crate::{bugs::merged, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("entries::a_query_is_computed_once_and_served", served),
        test_async(
            "entries::a_query_goes_stale_exactly_when_its_tables_move",
            advance,
        ),
        test_async("entries::a_refresh_computes_anew", refresh),
        test_async(
            "entries::answers_are_json_csv_or_arrow_and_can_be_cached",
            formats,
        ),
        test_async("entries::rows_keep_their_order_and_their_digits", order),
        test_async("entries::data_that_vanished_is_a_miss", vanished),
    ]
}

fn shop() -> Result<Site> {
    let sql =
        "SELECT payload->>'id' AS id, CAST(payload->>'n' AS BIGINT) AS n, _seq FROM landing.orders";
    let other = "SELECT payload->>'id' AS id, _seq FROM landing.other";
    let models = [
        merged("silver.orders", "id", sql),
        merged("silver.other", "id", other),
    ];
    Site::in_memory(&models, "")
}

async fn ask(site: &Site, body: Value) -> Result<Answer> {
    let answer = site
        .send("POST", "/api/materialize/query", &[], body.to_string())
        .await?;
    ensure!(answer.status == 200, "{}", answer.text());
    Ok(answer)
}

async fn served() -> Result<()> {
    let site = shop()?;
    site.event("orders", r#"{"id": "a", "n": 1}"#).await?;
    site.cycle().await?;
    let body = json!({ "sql": "SELECT sum(n) AS n FROM silver.orders WHERE n < $1", "parameters": [10], "ttl": 60 });
    let first = ask(&site, body.clone()).await?;
    ensure!(
        first.header("headwater-entry") == "built",
        "{}",
        first.text()
    );
    ensure!(
        first.json()?["rows"] == json!([{ "n": 1 }]),
        "{}",
        first.text()
    );
    let marks = &first.json()?["entry"]["watermarks"]["silver.orders"];
    ensure!(marks["commits"] == 1, "{}", first.text());
    site.event("orders", r#"{"id": "b", "n": 2}"#).await?;
    site.cycle().await?;
    // Within its ttl it is what it was; another parameter is another entry.
    let second = ask(&site, body.clone()).await?;
    ensure!(
        second.header("headwater-entry") == "hit" && second.json()?["rows"] == json!([{ "n": 1 }])
    );
    let other = json!({ "sql": body["sql"], "parameters": [11], "ttl": 60 });
    ensure!(ask(&site, other).await?.json()?["rows"] == json!([{ "n": 3 }]));
    site.lab.clock.advance(Duration::from_secs(60));
    let strict = json!({ "sql": body["sql"], "parameters": [10], "ttl": 60, "mode": "strict" });
    let third = ask(&site, strict).await?;
    ensure!(
        third.header("headwater-entry") == "built" && third.json()?["rows"] == json!([{ "n": 3 }])
    );
    Ok(())
}

async fn advance() -> Result<()> {
    let site = shop()?;
    site.event("orders", r#"{"id": "a", "n": 1}"#).await?;
    site.cycle().await?;
    let body = json!({
        "sql": "SELECT count(*) AS n FROM silver.orders", "ttl": null, "mode": "strict", "invalidate_on": "advance"
    });
    let served = async || {
        Ok::<_, anyhow::Error>(
            ask(&site, body.clone())
                .await?
                .header("headwater-entry")
                .to_owned(),
        )
    };
    ensure!(served().await? == "built");
    ensure!(served().await? == "hit");
    // Another table moves, and time passes.
    site.event("other", r#"{"id": "x"}"#).await?;
    site.cycle().await?;
    site.lab.clock.advance(Duration::from_secs(1_000_000));
    ensure!(served().await? == "hit");
    // Its own landing table moves and nothing has been refreshed yet: what it read is as it was.
    site.event("orders", r#"{"id": "b", "n": 2}"#).await?;
    ensure!(served().await? == "hit");
    site.cycle().await?;
    let third = ask(&site, body.clone()).await?;
    ensure!(
        third.header("headwater-entry") == "built" && third.json()?["rows"] == json!([{ "n": 2 }])
    );
    ensure!(
        third.json()?["entry"]["watermarks"]["silver.orders"]["commits"] == 2,
        "{}",
        third.text()
    );
    ensure!(
        third.header("cache-control").contains("max-age=0"),
        "{}",
        third.header("cache-control")
    );
    // Looked up by name it is judged alike.
    let path = format!("/api/materialize/{}", third.header("headwater-entry-id"));
    ensure!(site.send("GET", &path, &[], "").await?.status == 200);
    site.event("orders", r#"{"id": "c", "n": 3}"#).await?;
    site.cycle().await?;
    ensure!(site.send("GET", &path, &[], "").await?.status == 404);
    Ok(())
}

async fn refresh() -> Result<()> {
    let site = shop()?;
    site.event("orders", r#"{"id": "a", "n": 1}"#).await?;
    site.cycle().await?;
    let first = ask(
        &site,
        json!({ "sql": "SELECT count(*) AS n FROM silver.orders" }),
    )
    .await?;
    site.event("orders", r#"{"id": "b", "n": 1}"#).await?;
    site.cycle().await?;
    let path = format!(
        "/api/materialize/{}/refresh",
        first.header("headwater-entry-id")
    );
    let again = site.send("POST", &path, &[], "").await?;
    ensure!(
        again.json()?["rows"] == json!([{ "n": 2 }]),
        "{}",
        again.text()
    );
    // What only its caller can make is expired instead.
    let desk = Desk::new()?;
    desk.build(json!({ "ttl": null, "mode": "swr" }), &rows())
        .await?;
    let answer = desk.send("POST", "/refresh", json!({})).await?;
    ensure!(answer.json()?["status"] == "expired", "{}", answer.text());
    ensure!(desk.get().await?.header("headwater-entry") == "stale");
    desk.lease(json!({ "mode": "swr" })).await?;
    Ok(())
}

async fn formats() -> Result<()> {
    let desk = Desk::new()?;
    desk.build(json!({ "key": "r", "ttl": 60, "mode": "swr" }), &rows())
        .await?;
    let found = desk.get().await?;
    let all = found.json()?;
    ensure!(
        all["entry"]["status"] == "ready" && all["entry"]["key"] == "r",
        "{all}"
    );
    ensure!(
        all["rows"] == Value::from(rows()) && all["row_count"] == 2,
        "{all}"
    );
    ensure!(
        found.header("cache-control") == "private, max-age=60, stale-while-revalidate=86400",
        "{}",
        found.header("cache-control")
    );
    let tag = found.header("etag").to_owned();
    let same = desk
        .with("GET", "", &[("if-none-match", &tag)], json!({}))
        .await?;
    ensure!(
        same.status == 304 && same.body.is_empty() && same.header("etag") == tag,
        "{}",
        same.status
    );
    // Another form of the same rows is another thing to a cache.
    for accept in [
        "text/csv",
        "application/vnd.apache.arrow.stream",
        "application/vnd.headwater.entry+json",
    ] {
        let asked = [("accept", accept), ("if-none-match", tag.as_str())];
        let other = desk.with("GET", "", &asked, json!({})).await?;
        ensure!(
            other.status == 200 && other.header("etag") != tag,
            "{accept}: {}",
            other.status
        );
        let tag = other.header("etag").to_owned();
        let asked = [("accept", accept), ("if-none-match", tag.as_str())];
        ensure!(desk.with("GET", "", &asked, json!({})).await?.status == 304);
    }
    let csv = desk
        .with("GET", "", &[("accept", "text/csv")], json!({}))
        .await?;
    ensure!(
        csv.text() == "channel,n\norganic,10\npaid,7\n",
        "{}",
        csv.text()
    );
    let arrow = desk
        .with(
            "GET",
            "",
            &[("accept", "application/vnd.apache.arrow.stream")],
            json!({}),
        )
        .await?;
    ensure!(parquet::objects_of_stream(&arrow.body)? == rows());
    let csv = desk
        .with(
            "POST",
            "/query",
            &[("accept", "text/csv")],
            json!({ "sql": "SELECT max(n) AS n FROM this" }),
        )
        .await?;
    ensure!(csv.text() == "n\n10\n", "{}", csv.text());
    desk.site.lab.clock.advance(Duration::from_secs(60));
    let stale = desk.get().await?;
    ensure!(
        stale.header("headwater-entry") == "stale"
            && stale.header("cache-control").contains("max-age=0")
    );
    // A new generation has another tag.
    desk.build(json!({ "ttl": 60, "mode": "strict" }), &rows())
        .await?;
    let found = desk
        .with("GET", "", &[("if-none-match", &tag)], json!({}))
        .await?;
    ensure!(found.status == 200 && found.header("etag") != tag);
    ensure!(
        found.header("cache-control") == "private, max-age=60, must-revalidate",
        "{}",
        found.header("cache-control")
    );
    Ok(())
}

async fn order() -> Result<()> {
    let desk = Desk::new()?;
    let many: Vec<Value> = (0..200_000_i64)
        .rev()
        .map(|n| json!({ "n": n + 9_007_199_254_740_993 }))
        .collect();
    let entry = desk.build(json!({}), &many).await?;
    ensure!(entry["inline"] == false, "{entry}");
    // A link is over before the entry is: no cache keeps it for that long, or is told that it is good still.
    let linked = desk.get().await?;
    ensure!(
        linked.header("cache-control") == "private, max-age=300, must-revalidate",
        "{}",
        linked.header("cache-control")
    );
    let asked = [("if-none-match", linked.header("etag"))];
    ensure!(desk.with("GET", "", &asked, json!({})).await?.status == 200);
    let arrow = desk
        .with(
            "GET",
            "",
            &[("accept", "application/vnd.apache.arrow.stream")],
            json!({}),
        )
        .await?;
    ensure!(
        parquet::objects_of_stream(&arrow.body)? == many,
        "rows differ"
    );
    Ok(())
}

async fn vanished() -> Result<()> {
    let desk = Desk::new()?;
    let token = desk.lease(json!({})).await?;
    desk.upload(&token, parquet::of_objects(&rows())?).await?;
    desk.send(
        "POST",
        "/commit",
        json!({ "token": token, "inline_max": 0 }),
    )
    .await?;
    let entries = &desk.site.lab.world.entries;
    for set in entries.list().await? {
        entries.delete(&set).await?;
    }
    let answer = desk
        .send(
            "POST",
            "/query",
            json!({ "sql": "SELECT 1 AS one FROM this" }),
        )
        .await?;
    ensure!(answer.status == 404, "{}", answer.text());
    ensure!(desk.listed().await? == 0);
    desk.build(json!({}), &rows()).await?;
    Ok(())
}
