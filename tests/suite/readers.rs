//! Other readers: PyIceberg through the catalog in the state file and the one on DynamoDB, DuckDB through the metadata.
//! All read a merged model table and an older snapshot of it, and must see what this program sees.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{
    aws,
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
    let reader = |name: &'static str, adapter, script: &'static str| {
        test_given(
            format!("readers::{name}"),
            "HEADWATER_PYTHON_REQUIRED",
            python,
            move |python| block_on(read(&python, adapter, script)),
        )
    };
    let emulator = aws::endpoint().is_some() || tests::is_set(aws::REQUIRED);
    vec![
        reader(
            "pyiceberg_reads_a_merged_table_and_its_past",
            Adapter::Embedded,
            "pyiceberg_reader.py",
        ),
        reader(
            "duckdb_reads_a_merged_table_and_its_past",
            Adapter::Embedded,
            "duckdb_reader.py",
        ),
        reader(
            "pyiceberg_reads_a_merged_table_on_aws_by_its_name",
            Adapter::Aws,
            "pyiceberg_dynamodb_reader.py",
        )
        .with_ignored_flag(!emulator),
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

async fn read(python: &std::path::Path, adapter: Adapter, script: &str) -> Result<()> {
    let lab = Lab::open(adapter, &[model()], domain::LiveSettings::default()).await?;
    let site = Site::new(lab, "")?;
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
    let mut command = Command::new(python);
    command.arg(tests::root().join("tests/suite/python").join(script));
    address(&mut command, &site).await?;
    let output = command.arg(snapshot.to_string()).output()?;
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

/// Where the tables are: the state file, the warehouse and the table's metadata; or the emulator and its catalog.
async fn address(command: &mut Command, site: &Site) -> Result<()> {
    if let Some(place) = &site.lab.place {
        command
            .args([&place.endpoint, &place.catalog()])
            .env("AWS_ENDPOINT_URL_DYNAMODB", &place.endpoint)
            .env("AWS_ACCESS_KEY_ID", aws::CREDENTIAL)
            .env("AWS_SECRET_ACCESS_KEY", aws::CREDENTIAL)
            .env("AWS_DEFAULT_REGION", aws::REGION);
        return Ok(());
    }
    let folder = site
        .lab
        .folder()
        .context("an embedded world has a folder")?;
    let warehouse = folder.join("warehouse");
    let metadata = warehouse.join(&current(site).await?.metadata);
    command
        .arg(folder.join("state.db"))
        .arg(warehouse)
        .arg(metadata);
    Ok(())
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
