//! Other readers: PyIceberg through the catalog in the state file, DuckDB through the metadata. Both read a merged
//! model table and an older snapshot of it, and must see what this program sees.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{
    case::{Cells, ModelText},
    rows::{self, compare},
    site::Site,
    world::{Adapter, Lab, table},
};

use crate::{
    bugs::merged,
    plain::{block_on, test_given},
};

pub(crate) fn trials() -> Vec<Trial> {
    let reader = |name: &'static str, script: &'static str| {
        test_given(
            format!("readers::{name}"),
            "HEADWATER_PYTHON_REQUIRED",
            python,
            move |python| block_on(read(&python, script)),
        )
    };
    vec![
        reader(
            "pyiceberg_reads_a_merged_table_and_its_past",
            "pyiceberg_reader.py",
        ),
        reader(
            "duckdb_reads_a_merged_table_and_its_past",
            "duckdb_reader.py",
        ),
    ]
}

fn python() -> Result<PathBuf, String> {
    let named = std::env::var_os("HEADWATER_PYTHON").map(PathBuf::from);
    named
        .filter(|path| path.is_file())
        .ok_or_else(|| "HEADWATER_PYTHON names no Python with the readers".to_owned())
}

fn model() -> ModelText {
    let sql = "SELECT (payload->>'id')::BIGINT AS id, payload->>'region' AS region, (payload->>'amount')::DOUBLE AS amount, _seq FROM landing.orders";
    merged("silver.orders", "id", sql)
}

async fn read(python: &std::path::Path, script: &str) -> Result<()> {
    let site = Site::new(
        Lab::new(
            Adapter::Embedded,
            &[model()],
            domain::LiveSettings::default(),
        )?,
        "",
    )?;
    let mut lines: Vec<_> = (1..=500)
        .map(|id| json!({ "id": id, "region": "eu", "amount": id }).to_string())
        .collect();
    post(&site, &lines).await?;
    let past = seen(&site).await?;
    let snapshot = snapshot(&site).await?;
    // Updates, new rows, a NULL key twice, over two more commits.
    lines = (401..=600)
        .map(|id| json!({ "id": id, "region": "us", "amount": 0.5 }).to_string())
        .collect();
    lines.push(json!({ "id": null, "region": "x", "amount": 1 }).to_string());
    post(&site, &lines).await?;
    post(
        &site,
        &[json!({ "id": null, "region": "y", "amount": 2 }).to_string()],
    )
    .await?;
    let now = seen(&site).await?;
    ensure!(now.len() == 601, "{} rows", now.len());
    let folder = site
        .lab
        .folder()
        .context("an embedded world has a folder")?;
    let metadata = current(&site).await?.metadata;
    let output = Command::new(python)
        .arg(tests::root().join("tests/suite/python").join(script))
        .arg(folder.join("state.db"))
        .arg(folder.join("warehouse"))
        .arg(folder.join("warehouse").join(&metadata))
        .arg(snapshot.to_string())
        .output()?;
    ensure!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let cells = |name: &str| -> Result<Cells> { Ok(serde_json::from_value(answer[name].clone())?) };
    compare("now", cells("now")?, &now, &[3])?;
    compare("past", cells("past")?, &past, &[3])
}

async fn post(site: &Site, lines: &[String]) -> Result<()> {
    let headers = [("content-type", "application/x-ndjson")];
    let answer = site
        .send(
            "POST",
            "/api/ingest/webhook/orders",
            &headers,
            lines.join("\n"),
        )
        .await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    site.cycle().await
}

async fn seen(site: &Site) -> Result<Cells> {
    site.cells("SELECT id, region, amount, _seq FROM silver.orders")
        .await
}

async fn current(site: &Site) -> Result<domain::items::Snapshot> {
    let pin = site
        .lab
        .world
        .tables
        .pin(&table("silver.orders")?)
        .await
        .map_err(|e| rows::chain(&e))?;
    match pin {
        Some(ports::tables::Pin::Model { snapshot, .. }) => Ok(snapshot),
        other => anyhow::bail!("{other:?} is no model table"),
    }
}

async fn snapshot(site: &Site) -> Result<i64> {
    Ok(current(site).await?.id)
}
