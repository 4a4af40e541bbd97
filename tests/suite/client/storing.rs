//! Misses, hits and what is written behind.

use std::sync::Arc;

use anyhow::{Result, ensure};
use arrow::{
    array::{Int64Array, RecordBatch},
    datatypes::{DataType, Field, Schema},
};
use client::{BatchStream, Error, Flushed, MaterializedFrame, Served, Settings, materialize};
use futures::stream;
use libtest_mimic::Trial;

use super::{Bench, Signup, Source, counted, rows, signups};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "client::a_miss_runs_the_function_and_a_hit_is_one_request",
            hit,
        ),
        test_async("client::what_fails_stores_nothing_and_leaves_no_row", fails),
        test_async("client::n59_an_empty_result_is_a_result", empty),
        test_async(
            "client::a_result_that_does_not_fit_in_memory_goes_through_a_file",
            large,
        ),
        test_async("client::data_that_is_gone_is_computed_anew", gone),
        test_async(
            "client::a_refresh_computes_now_and_an_invalidated_entry_is_a_miss",
            refreshed,
        ),
        test_async(
            "client::a_failed_store_is_counted_and_leaves_no_row",
            unstored,
        ),
    ]
}

const ONE: Flushed = Flushed {
    stored: 1,
    failed: 0,
};

async fn hit() -> Result<()> {
    let bench = Bench::new()?;
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(frame.served() == Served::Built && rows(&frame).await? == signups(0));
    ensure!(bench.source.client.flush().await == ONE);
    let sent = bench.way.sent();
    ensure!(sent.len() == 3, "{sent:?}");
    // In this process and in another.
    for source in [bench.source.clone(), bench.other()] {
        let frame = counted(source, 0).await?;
        ensure!(frame.served() == Served::Hit && rows(&frame).await? == signups(0));
        ensure!(frame.len() == 2 && frame.meta().key == "signups");
        ensure!(frame.meta().expires_at.is_some());
        let sent = bench.way.sent();
        ensure!(sent.len() == 1, "{sent:?}");
    }
    ensure!(bench.source.calls() == 1);
    // Another argument is another entry.
    ensure!(rows(&counted(bench.source.clone(), 1).await?).await? == signups(1));
    ensure!(bench.source.calls() == 2);
    Ok(())
}

#[materialize(client = on.client, key_fn = |_, how: &String| how.clone())]
async fn failing(on: Source, how: String) -> Result<Vec<Signup>, std::io::Error> {
    on.called();
    match how.as_str() {
        "error" => Err(std::io::Error::other("the source is down")),
        "panic" => panic!("the source is on fire"),
        _ => Ok(Vec::new()),
    }
}

#[materialize(client = on.client, key_fn = |_| ())]
async fn shapeless(on: Source) -> Vec<serde_json::Value> {
    on.called();
    Vec::new()
}

async fn fails() -> Result<()> {
    let bench = Bench::new()?;
    for how in ["error", "panic"] {
        for calls in 1..=2 {
            let failed = failing(bench.source.clone(), how.to_owned()).await;
            let Err(error @ Error::Function { .. }) = &failed else {
                anyhow::bail!("{failed:?}");
            };
            ensure!(error.chain().contains("the source is"), "{}", error.chain());
            ensure!(
                bench
                    .source
                    .calls
                    .swap(calls, std::sync::atomic::Ordering::SeqCst)
                    == calls
            );
        }
        bench
            .source
            .calls
            .store(0, std::sync::atomic::Ordering::SeqCst);
    }
    let unfit = shapeless(bench.source.clone()).await;
    ensure!(matches!(&unfit, Err(Error::Unfit { .. })), "{unfit:?}");
    ensure!(bench.source.client.flush().await == Flushed::default());
    ensure!(bench.listed().await? == 0 && bench.data_sets().await? == 0);
    Ok(())
}

async fn empty() -> Result<()> {
    let bench = Bench::new()?;
    for served in [Served::Built, Served::Hit] {
        let frame = failing(bench.source.clone(), String::from("empty")).await?;
        ensure!(frame.served() == served && frame.is_empty());
        ensure!(rows(&frame).await?.is_empty());
        #[derive(serde::Deserialize)]
        struct Counted {
            n: i64,
        }
        let counted: Vec<Counted> = frame
            .sql("SELECT count(*) AS n FROM this WHERE channel = 'x'")
            .await?
            .rows()?;
        ensure!(counted[0].n == 0);
        let names: Vec<&str> = frame
            .meta()
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        ensure!(names == ["channel", "n"], "{names:?}");
        bench.source.client.flush().await;
    }
    ensure!(bench.source.calls() == 1);
    Ok(())
}

/// Batches of a stream, and rows of each.
const BATCHES: i64 = 64;
const BATCH: i64 = 8_192;

fn batch(number: i64) -> Result<RecordBatch, std::io::Error> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    // Numbers that do not compress.
    let value = |n: i64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed());
    let values = Int64Array::from_iter_values((number * BATCH..(number + 1) * BATCH).map(value));
    RecordBatch::try_new(schema, vec![Arc::new(values)]).map_err(std::io::Error::other)
}

#[materialize(client = on.client, key_fn = |_| ())]
async fn streamed(on: Source) -> Result<BatchStream, std::io::Error> {
    on.called();
    let schema = batch(0)?.schema();
    Ok(BatchStream::new(
        schema,
        stream::iter((0..BATCHES).map(batch)),
    ))
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

async fn large() -> Result<()> {
    let settings = Settings {
        memory: 1 << 20,
        ..Settings::default()
    };
    let bench = Bench::told("", settings)?;
    let built = streamed(bench.source.clone()).await?;
    ensure!(built.len() == (BATCHES * BATCH).unsigned_abs());
    ensure!(bench.source.client.flush().await == ONE);
    let found = streamed(bench.source.clone()).await?;
    ensure!(found.served() == Served::Hit && bench.source.calls() == 1);
    ensure!(sum(&built).await? == sum(&found).await?);
    ensure!(sum(&built).await?.0 == BATCHES * BATCH);
    let (here, there) = (built.arrow().await?.one()?, found.arrow().await?.one()?);
    ensure!(here == there);
    let mut rows = 0;
    let mut stream = found.stream().await?;
    while let Some(batch) = futures::TryStreamExt::try_next(&mut stream.batches)
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?
    {
        rows += batch.num_rows();
    }
    ensure!(rows as u64 == found.len());
    Ok(())
}

async fn gone() -> Result<()> {
    let bench = Bench::told("materialize:\n  inline_max: 1B\n", Settings::default())?;
    counted(bench.source.clone(), 0).await?;
    bench.source.client.flush().await;
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(frame.served() == Served::Hit);
    for set in bench.site.lab.world.entries.list().await? {
        bench.site.lab.world.entries.delete(&set).await?;
    }
    ensure!(rows(&frame).await? == signups(0));
    ensure!(bench.source.calls() == 2);
    ensure!(bench.source.client.flush().await == ONE);
    ensure!(counted(bench.source.clone(), 0).await?.served() == Served::Hit);
    Ok(())
}

async fn refreshed() -> Result<()> {
    let bench = Bench::new()?;
    let frame = counted(bench.source.clone(), 0).await?;
    let again = frame.refresh().await?;
    ensure!(again.served() == Served::Built && rows(&again).await? == signups(0));
    ensure!(bench.source.calls() == 2);
    ensure!(again.meta().generation.is_some());
    let found = counted(bench.other(), 0).await?;
    ensure!(found.served() == Served::Hit && found.meta().generation == again.meta().generation);
    ensure!(found.invalidate().await? && !found.invalidate().await?);
    ensure!(counted(bench.other(), 0).await?.served() == Served::Built);
    ensure!(bench.source.calls() == 3);
    Ok(())
}

#[materialize(client = on.client, background = false, key_fn = |_| ())]
async fn through(on: Source) -> Vec<Signup> {
    on.called();
    signups(0)
}

async fn unstored() -> Result<()> {
    // Nothing is taken that is larger than a byte.
    let bench = Bench::told("materialize:\n  upload_max: 1B\n", Settings::default())?;
    for calls in 1..=2 {
        let frame = counted(bench.source.clone(), 0).await?;
        ensure!(rows(&frame).await? == signups(0));
        let flushed = bench.source.client.flush().await;
        ensure!((flushed.stored, flushed.failed) == (0, 1), "{flushed:?}");
        ensure!(bench.source.calls() == calls);
    }
    let frame = through(bench.source.clone()).await?;
    ensure!(rows(&frame).await? == signups(0) && bench.source.client.flush().await.failed == 1);
    ensure!(bench.listed().await? == 0 && bench.data_sets().await? == 0);
    Ok(())
}
