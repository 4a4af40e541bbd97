//! What an edit of a model, or a rebuild of what it reads, does to rows that are there already.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use engine::{batch, cycle};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{
    case::ModelText,
    folder::Folder,
    program,
    rows::{self, compare},
    site::Site,
    world::table,
};

use crate::plain::{test, test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("rebuilds::readers_of_a_rebuilt_model_follow_it", readers),
        test_async(
            "rebuilds::another_key_or_materialization_rebuilds",
            reshaped,
        ),
        test_async(
            "rebuilds::the_last_arrival_stays_where_no_sequence_is_kept",
            arrivals,
        ),
        test_async(
            "rebuilds::a_column_of_another_type_keeps_its_values",
            retyped,
        ),
        test_async("rebuilds::an_edit_is_told_until_a_rebuild", told),
        test(
            "rebuilds::a_table_whose_files_are_lost_or_damaged_is_built_anew",
            damaged,
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

async fn arrivals() -> Result<()> {
    let mut bare = silver(AMOUNT, "id");
    bare.sql = bare.sql.replace(", _seq FROM", " FROM");
    let site = begin(&[bare]).await?;
    for (id, amount) in [(1, 11), (2, 21), (1, 12), (1, 13), (2, 22)] {
        let event = json!({ "id": id, "amount": amount }).to_string();
        site.event("x", event).await?;
    }
    site.cycle().await?;
    let read = "SELECT id, amount FROM silver.x ORDER BY id";
    let want = json!([[1, 13], [2, 22], [3, 30]]);
    check(&site, read, want.clone()).await?;
    run(&site, &["silver.x"], true).await?;
    check(&site, read, want).await
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
    // A server that was started before the edit goes on with the old definition.
    site.lab.set_models(&[silver(AMOUNT, "id")])?;
    site.event("x", json!({ "id": 5, "amount": 1 }).to_string())
        .await?;
    site.cycle().await?;
    ensure!(edited(&site).await?, "its rows are another definition's");
    site.lab
        .set_models(&[silver(&format!("2 * {AMOUNT}"), "id")])?;
    ensure!(edited(&site).await?, "a row of the old one is there");
    run(&site, &[], true).await?;
    ensure!(!edited(&site).await?, "all rows follow the new definition");
    Ok(())
}

/// Files of a table, of one folder of it, that end in so.
fn files(folder: &Path, table: &str, within: &str, end: &str) -> Result<Vec<PathBuf>> {
    let (mut open, mut found) = (vec![folder.to_owned()], Vec::new());
    let below = format!("tables/{}/{within}", table.replace('.', "/"));
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(end)
                && path.parent().is_some_and(|folder| folder.ends_with(&below))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn damaged() -> Result<()> {
    let events = model(
        "silver.c",
        json!({ "incremental_strategy": "merge", "unique_key": "id", "cdc_op": "op", "cdc_seq": "lsn",
            "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT id, amount, op, lsn, _seq FROM landing.c",
    );
    let folder = Folder::with_models("", &[silver(AMOUNT, "id"), gold(), events])?;
    let root = folder.path();
    let run = |arguments: &[&str]| -> Result<(bool, String)> {
        let output = program::run(root, arguments)?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), text))
    };
    let well = |arguments: &[&str]| -> Result<String> {
        let (good, text) = run(arguments)?;
        ensure!(good, "{arguments:?}: {text}");
        Ok(text)
    };
    let land = |id: u64| -> Result<()> {
        let event = json!({ "payload": json!({ "id": id, "amount": 10 * id }).to_string() });
        let file = folder.write("x.ndjson", event.to_string())?;
        well(&["ingest", &file.to_string_lossy(), "--table", "landing.x"])?;
        let change = json!({ "id": id, "amount": id, "op": "c", "lsn": 10 * id });
        let gone = json!({ "id": id - 1, "amount": 0, "op": "d", "lsn": 10 * id });
        let file = folder.write("c.ndjson", format!("{change}\n{gone}\n"))?;
        well(&["ingest", &file.to_string_lossy(), "--table", "landing.c"])?;
        Ok(())
    };
    let ids = |table: &str| -> Result<Vec<i64>> {
        let sql = format!("SELECT id FROM {table} ORDER BY id");
        let text = well(&["query", &sql, "--csv"])?;
        let found = text.split(|c: char| !c.is_ascii_digit());
        Ok(found.filter_map(|number| number.parse().ok()).collect())
    };
    land(1)?;
    well(&["run"])?;
    ensure!(ids("silver.x")? == [1], "{:?}", ids("silver.x")?);
    let mut last = 1;
    let cases = [
        ("metadata", ".metadata.json", true),
        ("metadata", ".metadata.json", false),
        ("metadata", ".avro", true),
        ("data", ".parquet", false),
    ];
    for (within, end, lost) in cases {
        let numbered = |table: &str| -> Result<Option<PathBuf>> {
            let files = files(root, table, "metadata", ".metadata.json")?;
            Ok(files.last().cloned())
        };
        let before = numbered("silver.x")?.context("a metadata file")?;
        for table in ["silver.x", "silver.c", "silver.c__tombstones"] {
            let files = files(root, table, within, end)?;
            ensure!(!files.is_empty(), "{table} has no {end}");
            for file in files {
                match lost {
                    true => fs::remove_file(&file)?,
                    false => fs::write(&file, "it is no such file")?,
                }
            }
        }
        let (good, told) = run(&["query", "SELECT sum(amount) FROM silver.x"])?;
        let file = end.trim_start_matches('.');
        ensure!(
            !good && told.contains(file) && told.contains("`headwater run silver.x --full`"),
            "{told}"
        );
        last += 1;
        land(last)?;
        well(&["run", "silver.x", "silver.c", "--full"])?;
        let all: Vec<i64> = (1..).take(usize::try_from(last)?).collect();
        ensure!(ids("silver.x")? == all, "{within} {end} {lost}");
        ensure!(
            ids("silver.c")? == [i64::try_from(last)?],
            "{within} {end} {lost}"
        );
        let after = numbered("silver.x")?.context("a metadata file")?;
        ensure!(after > before, "{} {}", before.display(), after.display());
        // Its readers follow, and it is a table as any other.
        last += 1;
        land(last)?;
        well(&["run"])?;
        let all: Vec<i64> = (1..).take(usize::try_from(last)?).collect();
        ensure!(
            ids("silver.x")? == all && ids("gold.x")? == all,
            "{within} {end} {lost}"
        );
        ensure!(
            ids("silver.c")? == [i64::try_from(last)?],
            "{within} {end} {lost}"
        );
    }
    Ok(())
}
