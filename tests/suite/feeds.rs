//! Change feeds from end to end: models that follow what went as well as what came.

use anyhow::{Context, Result, ensure};
use domain::items::{self, Consumed};
use engine::control;
use libtest_mimic::Trial;
use ports::state::{Expect, Key, Write};
use serde_json::{Value, json};
use tests::{
    case::ModelText,
    rows::{self, compare},
    site::Site,
    world::table,
};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("feeds::groups_follow_rows_that_move_and_go", groups),
        test_async("feeds::a_log_of_changes_says_what_happened", log),
        test_async(
            "feeds::the_feed_of_a_landing_table_is_its_new_rows",
            landing,
        ),
        test_async("feeds::an_expired_snapshot_means_a_rebuild", expired),
        test_async(
            "feeds::a_watermark_without_a_snapshot_means_a_rebuild",
            upgraded,
        ),
        test_async(
            "feeds::any_history_ends_as_the_query_from_scratch",
            histories,
        ),
    ]
}

fn model(name: &str, config: Value, sql: &str) -> ModelText {
    let mut config = config;
    config["materialized"] = json!("incremental");
    config["live"] = json!("true");
    ModelText {
        name: name.to_owned(),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: sql.to_owned(),
        asserts: Vec::new(),
    }
}

/// Lines of orders: an order that comes again replaces all of its lines, and may have fewer.
fn lines() -> ModelText {
    model(
        "silver.lines",
        json!({ "incremental_strategy": "delete+insert", "unique_key": "order_id",
            "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT (payload->>'id')::BIGINT AS order_id, 1 AS line, payload->>'r1' AS region, \
         (payload->>'a1')::BIGINT AS amount, _seq FROM landing.x \
         UNION ALL \
         SELECT (payload->>'id')::BIGINT, 2, payload->>'r2', (payload->>'a2')::BIGINT, _seq FROM landing.x \
         WHERE payload->>'r2' IS NOT NULL",
    )
}

const SCRATCH: &str =
    "SELECT region, sum(amount) AS total, count(*) AS n FROM silver.lines GROUP BY region";

/// Totals of the regions that something changed in; a region that is empty now has no rows and a count of 0.
fn regions() -> ModelText {
    model(
        "gold.regions",
        json!({ "incremental_strategy": "delete+insert", "unique_key": "region" }),
        "SELECT c.region, sum(l.amount) AS total, count(l.order_id) AS n \
         FROM (SELECT DISTINCT region FROM {changes:silver.lines}) AS c \
         LEFT JOIN silver.lines AS l ON l.region = c.region GROUP BY c.region",
    )
}

fn changes() -> ModelText {
    model(
        "gold.log",
        json!({ "incremental_strategy": "append" }),
        "SELECT order_id, line, region, amount, _change AS what FROM {changes:silver.lines}",
    )
}

/// Posts an order of one or two lines.
async fn order(site: &Site, id: i64, lines: &[(&str, i64)]) -> Result<()> {
    let mut body = json!({ "id": id });
    for (at, (region, amount)) in lines.iter().enumerate() {
        body[format!("r{}", at + 1)] = json!(region);
        body[format!("a{}", at + 1)] = json!(amount);
    }
    site.event("x", body.to_string()).await?;
    Ok(())
}

async fn check_regions(site: &Site, at: &str) -> Result<()> {
    let gold = "SELECT region, total, n FROM gold.regions WHERE n > 0 ORDER BY region";
    let want = site.cells(&format!("{SCRATCH} ORDER BY region")).await?;
    compare("gold.regions", site.cells(gold).await?, &want, &[]).with_context(|| at.to_owned())
}

async fn groups() -> Result<()> {
    let site = Site::in_memory(&[lines(), regions()], "")?;
    order(&site, 1, &[("eu", 10), ("us", 5)]).await?;
    order(&site, 2, &[("eu", 7)]).await?;
    order(&site, 3, &[("asia", 1)]).await?;
    site.cycle().await?;
    check_regions(&site, "first").await?;
    // One line moves, another goes.
    order(&site, 1, &[("us", 10)]).await?;
    site.cycle().await?;
    check_regions(&site, "moved").await?;
    order(&site, 2, &[("us", 1)]).await?;
    site.cycle().await?;
    check_regions(&site, "a region emptied").await?;
    let gold = site
        .cells("SELECT n FROM gold.regions WHERE region = 'eu'")
        .await?;
    compare("the empty region", gold, &vec![vec![json!(0)]], &[])
}

async fn log() -> Result<()> {
    let site = Site::in_memory(&[lines(), changes()], "")?;
    let check = async |at: &str, want: Value| {
        let read = "SELECT order_id, line, amount, what FROM gold.log ORDER BY what, order_id, line, amount";
        let want: Vec<Vec<Value>> = serde_json::from_value(want)?;
        compare("gold.log", site.cells(read).await?, &want, &[]).with_context(|| at.to_owned())
    };
    order(&site, 1, &[("eu", 10), ("us", 5)]).await?;
    order(&site, 2, &[("eu", 7)]).await?;
    site.cycle().await?;
    check(
        "all are inserts",
        json!([
            [1, 1, 10, "insert"],
            [1, 2, 5, "insert"],
            [2, 1, 7, "insert"]
        ]),
    )
    .await?;
    order(&site, 2, &[("eu", 8)]).await?;
    site.cycle().await?;
    let after = json!([
        [1, 1, 10, "insert"],
        [1, 2, 5, "insert"],
        [2, 1, 7, "insert"],
        [2, 1, 8, "update_after"],
        [2, 1, 7, "update_before"]
    ]);
    check("an update", after.clone()).await?;
    site.cycle().await?;
    check("nothing came", after).await
}

async fn landing() -> Result<()> {
    let sql = "SELECT payload->>'id' AS id, _change AS what, _seq FROM {changes:landing.x}";
    let site = Site::in_memory(
        &[model(
            "bronze.x",
            json!({ "incremental_strategy": "append" }),
            sql,
        )],
        "",
    )?;
    for ids in [vec![1, 2], vec![3]] {
        for id in ids {
            order(&site, id, &[("eu", 1)]).await?;
        }
        site.cycle().await?;
    }
    let rows = site
        .cells("SELECT id, what, _seq FROM bronze.x ORDER BY _seq")
        .await?;
    let want = (1..4)
        .map(|id| vec![json!(id.to_string()), json!("insert"), json!(id)])
        .collect();
    compare("bronze.x", rows, &want, &[])
}

async fn expired() -> Result<()> {
    let site = Site::in_memory(&[lines(), regions(), changes()], "")?;
    order(&site, 1, &[("eu", 10)]).await?;
    site.cycle().await?;
    for name in ["gold.regions", "gold.log"] {
        control::set_paused(&site.lab.world, &table(name)?, true)
            .await
            .map_err(|e| rows::chain(&e))?;
    }
    for step in 0..55 {
        order(&site, 1 + step % 3, &[("us", step)]).await?;
        held(&site).await?;
    }
    for name in ["gold.regions", "gold.log"] {
        control::set_paused(&site.lab.world, &table(name)?, false)
            .await
            .map_err(|e| rows::chain(&e))?;
    }
    site.cycle().await?;
    check_regions(&site, "rebuilt").await?;
    let log = site
        .cells("SELECT what, count(*) FROM gold.log GROUP BY what")
        .await?;
    compare("gold.log", log, &vec![vec![json!("insert"), json!(3)]], &[])
}

/// A cycle in which paused models are held.
async fn held(site: &Site) -> Result<()> {
    let report = engine::cycle::run(&site.lab.world, &engine::cycle::Silent);
    let report = report.await.map_err(|error| rows::chain(&error))?;
    for (model, how) in report.models {
        ensure!(
            matches!(how.word(), "built" | "idle" | "held"),
            "`{model}` ended {how:?}"
        );
    }
    Ok(())
}

async fn upgraded() -> Result<()> {
    let site = Site::in_memory(&[lines(), regions()], "")?;
    order(&site, 1, &[("eu", 10)]).await?;
    order(&site, 2, &[("us", 1)]).await?;
    site.cycle().await?;
    let state = &site.lab.world.state;
    let input = table("silver.lines")?;
    let key = Key::new(
        items::model(&table("gold.regions")?),
        items::consumed(&input),
    );
    let item = state
        .get(&key)
        .await
        .map_err(|e| rows::chain(&e))?
        .context("a watermark")?;
    let mut mark: Consumed = item.decode().map_err(|e| rows::chain(&e))?;
    ensure!(mark.snapshot.take().is_some(), "the snapshot is remembered");
    let write = Write::put(key.clone(), &mark, Expect::Any);
    let _ = state
        .transact(vec![write])
        .await
        .map_err(|e| rows::chain(&e))?;
    order(&site, 2, &[("eu", 1)]).await?;
    site.cycle().await?;
    check_regions(&site, "rebuilt").await?;
    let item = state
        .get(&key)
        .await
        .map_err(|e| rows::chain(&e))?
        .context("a watermark")?;
    let mark: Consumed = item.decode().map_err(|e| rows::chain(&e))?;
    ensure!(mark.snapshot.is_some(), "the snapshot is remembered again");
    Ok(())
}

async fn histories() -> Result<()> {
    let regions_there = ["eu", "us", "asia", "africa"];
    for seed in 0..6_u64 {
        let site = Site::in_memory(&[lines(), regions()], "")?;
        let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |n: u64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % n
        };
        for step in 0..15 {
            for _ in 0..=below(3) {
                let id = i64::try_from(below(6))?;
                let mut line = || {
                    let region = usize::try_from(below(4))?;
                    Ok::<_, anyhow::Error>((regions_there[region], i64::try_from(below(3))?))
                };
                let both = [line()?, line()?];
                let few = if id % 2 == 0 && step % 2 == 0 { 1 } else { 2 };
                order(&site, id, &both[..few]).await?;
            }
            if below(3) > 0 {
                site.cycle().await?;
                check_regions(&site, &format!("seed {seed}, step {step}")).await?;
            }
        }
    }
    Ok(())
}
