//! What an edit of a model, or a rebuild of what it reads, does to rows that are there already.

use anyhow::{Context, Result, ensure};
use engine::{batch, cycle};
use libtest_mimic::Trial;
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
        test_async("rebuilds::readers_of_a_rebuilt_model_follow_it", readers),
        test_async(
            "rebuilds::another_key_or_materialization_rebuilds",
            reshaped,
        ),
        test_async(
            "rebuilds::a_column_of_another_type_keeps_its_values",
            retyped,
        ),
        test_async("rebuilds::an_edit_is_told_until_a_rebuild", told),
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

fn silver(amount: &str, key: &str) -> ModelText {
    model(
        "silver.x",
        json!({ "incremental_strategy": "merge", "unique_key": key, "incremental_filter": "WHERE _seq > {watermark}",
            "on_schema_change": "sync_all_columns" }),
        &format!("SELECT (payload->>'id')::BIGINT AS id, {amount} AS amount, _seq FROM landing.x"),
    )
}

fn gold() -> ModelText {
    model(
        "gold.x",
        json!({ "incremental_strategy": "merge", "unique_key": "id", "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT id, amount, _seq FROM silver.x",
    )
}

const AMOUNT: &str = "(payload->>'amount')::BIGINT";

async fn begin(models: &[ModelText]) -> Result<Site> {
    let site = Site::in_memory(models, "")?;
    for (id, amount) in [(1, 10), (2, 20), (3, 30)] {
        let event = json!({ "id": id, "amount": amount }).to_string();
        site.event("x", event).await?;
    }
    site.cycle().await?;
    Ok(site)
}

async fn run(site: &Site, only: &[&str], full: bool) -> Result<()> {
    let only = only
        .iter()
        .map(|name| table(name))
        .collect::<Result<Vec<_>>>()?;
    batch::run(&site.lab.world, &only, full, &cycle::Silent)
        .await
        .map_err(|error| rows::chain(&error))?;
    Ok(())
}

async fn check(site: &Site, sql: &str, want: Value) -> Result<()> {
    let want: Vec<Vec<Value>> = serde_json::from_value(want)?;
    compare(sql, site.cells(sql).await?, &want, &[]).with_context(|| sql.to_owned())
}

async fn readers() -> Result<()> {
    let mut site = begin(&[silver(AMOUNT, "id"), gold()]).await?;
    site.lab
        .set_models(&[silver(&format!("2 * {AMOUNT}"), "id"), gold()])?;
    run(&site, &["silver.x"], true).await?;
    site.cycle().await?;
    let want = json!([[1, 20], [2, 40], [3, 60]]);
    check(
        &site,
        "SELECT id, amount FROM silver.x ORDER BY id",
        want.clone(),
    )
    .await?;
    check(&site, "SELECT id, amount FROM gold.x ORDER BY id", want).await
}

async fn reshaped() -> Result<()> {
    let mut site = begin(&[silver(AMOUNT, "id, amount")]).await?;
    site.event("x", json!({ "id": 1, "amount": 11 }).to_string())
        .await?;
    site.cycle().await?;
    let read = "SELECT id, amount FROM silver.x ORDER BY id, amount";
    check(&site, read, json!([[1, 10], [1, 11], [2, 20], [3, 30]])).await?;
    // Another key: rows that are one by it become one.
    site.lab.set_models(&[silver(AMOUNT, "id")])?;
    run(&site, &[], false).await?;
    check(&site, read, json!([[1, 11], [2, 20], [3, 30]])).await?;
    // A table for a while, of some of the rows; all come back with the way it was kept before.
    let mut fewer = silver(AMOUNT, "id");
    fewer.config = serde_json::from_value(json!({ "materialized": "table" }))?;
    fewer.sql.push_str(" WHERE payload->>'id' = '2'");
    site.lab.set_models(&[fewer])?;
    run(&site, &[], false).await?;
    check(&site, read, json!([[2, 20]])).await?;
    site.lab.set_models(&[silver(AMOUNT, "id")])?;
    run(&site, &[], false).await?;
    check(&site, read, json!([[1, 11], [2, 20], [3, 30]])).await
}

async fn retyped() -> Result<()> {
    let mut site = begin(&[silver(AMOUNT, "id"), gold()]).await?;
    let mut text = silver("payload->>'amount'", "id");
    text.sql = text.sql.replace("BIGINT AS id", "INTEGER AS id");
    site.lab.set_models(&[text, gold()])?;
    site.event("x", json!({ "id": 2, "amount": 21 }).to_string())
        .await?;
    site.cycle().await?;
    let want = json!([[1, "10"], [2, "21"], [3, "30"]]);
    check(&site, "SELECT id, amount FROM silver.x ORDER BY id", want).await
}

async fn told() -> Result<()> {
    let mut site = begin(&[silver(AMOUNT, "id")]).await?;
    let edited = async |site: &Site| -> Result<bool> {
        let status = engine::status::status(&site.lab.world, None).await;
        let status = status.map_err(|error| rows::chain(&error))?;
        Ok(status.models[0].edited)
    };
    ensure!(!edited(&site).await?, "nothing was edited");
    site.lab
        .set_models(&[silver(&format!("2 * {AMOUNT}"), "id")])?;
    ensure!(edited(&site).await?, "the query was edited");
    site.event("x", json!({ "id": 4, "amount": 1 }).to_string())
        .await?;
    site.cycle().await?;
    ensure!(edited(&site).await?, "old rows are there still");
    run(&site, &[], true).await?;
    ensure!(!edited(&site).await?, "all rows follow the new definition");
    Ok(())
}
