//! Results that are sent past the registry, to where they stay.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use arrow::{
    array::{Int64Array, RecordBatch},
    datatypes::{DataType, Field, Schema},
};
use client::{BatchStream, Flushed, MaterializedFrame, Served, Settings, materialize};
use futures::stream;
use libtest_mimic::Trial;
use tests::{
    addresses::Addresses,
    site::Site,
    world::{Adapter, Lab},
};

use super::{Bench, Source, counted, rows, signups};
use crate::plain::{test_async, test_emulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "client::a_large_result_goes_past_the_registry_in_four_requests",
            past,
        ),
        test_async(
            "client::where_no_addresses_are_given_a_large_result_goes_to_the_registry",
            direct,
        ),
        test_async("client::an_upload_whose_answer_was_lost_is_stored", lost),
        test_async(
            "client::a_store_that_is_down_costs_no_answer_and_leaves_no_row",
            down,
        ),
        test_emulated("client::on_aws_a_large_result_is_stored", emulated),
    ]
}

/// Batches of the result, and rows of each: 8 MB, more than a function takes.
const BATCHES: i64 = 128;
const BATCH: i64 = 8_192;

fn batch(number: i64) -> Result<RecordBatch, std::io::Error> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    // Numbers that do not compress.
    let value = |n: i64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed());
    let values = Int64Array::from_iter_values((number * BATCH..(number + 1) * BATCH).map(value));
    RecordBatch::try_new(schema, vec![Arc::new(values)]).map_err(std::io::Error::other)
}

#[materialize(key = "large", client = on.client, key_fn = |_| ())]
async fn large(on: Source) -> Result<BatchStream, std::io::Error> {
    on.called();
    let schema = batch(0)?.schema();
    Ok(BatchStream::new(
        schema,
        stream::iter((0..BATCHES).map(batch)),
    ))
}

/// A result of 8 MB goes through a file.
fn settings() -> Settings {
    Settings {
        memory: 1 << 20,
        ..Settings::default()
    }
}

fn bench() -> Result<(Bench, Arc<Addresses>)> {
    let mut lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    let store = Addresses::of(lab.objects.clone(), lab.clock.clone());
    lab.world.entries =
        Arc::new(lake::EntryLake::new(lab.objects.clone()).signed_by(store.clone()));
    let site = Site::new(lab, "materialize:\n  grace: 0s\n")?;
    Ok((Bench::beside(site, Some(store.clone()), settings()), store))
}

async fn sum(frame: &MaterializedFrame) -> Result<(i64, i64)> {
    #[derive(serde::Deserialize)]
    struct Sums {
        rows: i64,
        low: i64,
    }
    let sql = "SELECT count(*) AS rows, min(n) AS low FROM this";
    let sums: Vec<Sums> = frame.sql(sql).await?.rows()?;
    Ok((sums[0].rows, sums[0].low))
}

/// Builds the large result and finds it in another process; the requests of the build.
async fn built_and_found(bench: &Bench) -> Result<Vec<String>> {
    let built = large(bench.source.clone()).await?;
    ensure!(built.served() == Served::Built);
    let flushed = bench.source.client.flush().await;
    ensure!((flushed.stored, flushed.failed) == (1, 0), "{flushed:?}");
    let sent = bench.way.sent();
    let found = large(bench.other()).await?;
    ensure!(found.served() == Served::Hit && bench.source.calls() == 1);
    ensure!(found.len() == (BATCHES * BATCH).unsigned_abs());
    ensure!(sum(&built).await? == sum(&found).await?);
    ensure!(built.arrow().await?.one()? == found.arrow().await?.one()?);
    Ok(sent)
}

fn ensure_past(sent: &[String]) -> Result<()> {
    let [lease, asked, put, commit] = sent else {
        anyhow::bail!("{sent:?}");
    };
    ensure!(lease == "POST /api/materialize/lease", "{sent:?}");
    ensure!(asked == "POST /api/materialize/upload", "{sent:?}");
    let is_put = put.starts_with("PUT /") && put.ends_with("/data.parquet");
    ensure!(is_put && !put.contains("/api/"), "{sent:?}");
    ensure!(commit == "POST /api/materialize/commit", "{sent:?}");
    Ok(())
}

async fn past() -> Result<()> {
    let (bench, _) = bench()?;
    ensure_past(&built_and_found(&bench).await?)?;
    ensure!(bench.data_sets().await? == 1);
    // What is small goes through the registry: fewer requests.
    bench.way.sent();
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(rows(&frame).await? == signups(0));
    ensure!(bench.source.client.flush().await.stored == 1);
    let sent = bench.way.sent();
    let expected = ["POST /api/materialize/lease", "PUT /api/materialize/upload"];
    ensure!(sent.len() == 3 && sent[..2] == expected, "{sent:?}");
    Ok(())
}

async fn direct() -> Result<()> {
    for adapter in [Adapter::Memory, Adapter::Embedded] {
        let lab = Lab::new(adapter, &[], domain::LiveSettings::default())?;
        let bench = Bench::on(Site::new(lab, "")?, settings());
        let sent = built_and_found(&bench).await?;
        let expected = [
            "POST /api/materialize/lease",
            "PUT /api/materialize/upload",
            "POST /api/materialize/commit",
        ];
        ensure!(sent == expected, "{}: {sent:?}", adapter.name());
    }
    Ok(())
}

async fn lost() -> Result<()> {
    let (bench, store) = bench()?;
    store.lose(1);
    let sent = built_and_found(&bench).await?;
    let puts = sent.iter().filter(|one| one.starts_with("PUT ")).count();
    ensure!((sent.len(), puts) == (6, 2), "{sent:?}");
    // Two addresses were given, and the entry outlives both.
    bench.site.lab.clock.advance(Duration::from_secs(1_000));
    for _ in 0..3 {
        let sweep = "/api/materialize/sweep";
        let swept = bench.site.send("POST", sweep, &[], "").await?;
        ensure!(swept.json()?["superseded"] == 0, "{}", swept.text());
    }
    ensure!(large(bench.other()).await?.served() == Served::Hit);
    Ok(())
}

async fn down() -> Result<()> {
    let (bench, store) = bench()?;
    store.go_down();
    for calls in 1..=2 {
        let frame = large(bench.source.clone()).await?;
        ensure!(frame.len() == (BATCHES * BATCH).unsigned_abs());
        let flushed = bench.source.client.flush().await;
        let expected = Flushed {
            stored: 0,
            failed: 1,
        };
        ensure!(flushed == expected, "{flushed:?}");
        ensure!(bench.source.calls() == calls);
        ensure!(bench.listed().await? == 0 && bench.data_sets().await? == 0);
    }
    Ok(())
}

async fn emulated() -> Result<()> {
    let mut lab = Lab::open(Adapter::Aws, &[], domain::LiveSettings::default()).await?;
    let signer = lab.place.as_ref().context("no place")?.s3();
    lab.world.entries = Arc::new(lake::EntryLake::new(lab.objects.clone()).signed_by(signer));
    let bench = Bench::on(Site::driven(lab, "")?, settings());
    ensure_past(&built_and_found(&bench).await?)?;
    ensure!(bench.data_sets().await? == 1);
    Ok(())
}
