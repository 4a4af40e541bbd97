//! Materialized entries through the client and the real server: hits at a steady rate, large hits, SQL over a large entry, and
//! a result that fits in nobody's memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use client::{
    BatchStream, Call, Client, Data, Http, Identity, MaterializedFrame, Served as How, Settings,
    Spec,
};
use futures::{future::join_all, stream};
use serde_json::{Value, json};
use tests::{folder::Folder, program::Served};

use crate::{Options, block_on, sample::summary};

/// Hits per second that are asked for.
const RATE: u32 = 1_000;
/// Clients that ask for them in turn, each with connections of its own.
const CLIENTS: u32 = 8;
/// Rows of the large hit.
const ROWS: i64 = 50_000;
/// Rows of a batch of the largest result.
const BATCH: usize = 64 << 10;

pub(crate) fn run(options: &Options) -> Result<Value> {
    block_on(measure(options.quick))
}

async fn measure(quick: bool) -> Result<Value> {
    let folder = Folder::with_models("materialize:\n  upload_max: 8GB\n", &[])?;
    let served = Served::start(folder.path(), &[]).await?;
    let base = format!("http://{}", served.address);
    let hits = hits(&base, if quick { 3 } else { 10 }).await?;
    let large = large(&base).await?;
    let sql = sql(&served, if quick { 1_000_000 } else { 10_000_000 }).await?;
    let before = served.memory_peak().map(|bytes| bytes >> 20);
    let mut upload = upload(&base, if quick { 128 } else { 2_048 }).await?;
    upload["server_memory_peak_mib_before"] = json!(before);
    upload["server_memory_peak_mib"] = json!(served.memory_peak().map(|bytes| bytes >> 20));
    Ok(json!({
        "inline_hits": hits,
        "hit_of_50000_rows_to_arrow": large,
        "sql": sql,
        "upload": upload,
    }))
}

fn told(error: client::Error) -> anyhow::Error {
    anyhow!("{}", error.chain())
}

fn connect(base: &str) -> Result<Client> {
    let transport = Http::new(base, None).map_err(|error| anyhow!("{error}"))?;
    let settings = Settings {
        timeout: Duration::from_secs(30),
        ..Settings::default()
    };
    Ok(Client::new(Arc::new(transport), settings))
}

fn small() -> Result<RecordBatch> {
    let column = |n: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(0..n)) };
    Ok(RecordBatch::try_from_iter([
        ("n", column(50)),
        ("m", column(50)),
    ])?)
}

fn call(name: &str, batch: RecordBatch) -> Call {
    Call::new(Identity::new(name, 0), Spec::default(), move || {
        let batch = batch.clone();
        async move { Data::Batches(batch.into()) }
    })
}

/// Hits that begin at their moments, whatever became of those before them.
async fn hits(base: &str, seconds: u32) -> Result<Value> {
    let clients: Vec<Client> = (0..CLIENTS).map(|_| connect(base)).collect::<Result<_>>()?;
    clients[0]
        .get(call("small", small()?))
        .await
        .map_err(told)?;
    ensure!(
        clients[0].flush().await.failed == 0,
        "the entry was not stored"
    );
    for client in &clients {
        client.get(call("small", small()?)).await.map_err(told)?;
    }
    let began = Instant::now();
    let count = RATE * seconds;
    let one = |n: u32| {
        let client = clients[(n % CLIENTS) as usize].clone();
        let due = began + Duration::from_secs(1) * n / RATE;
        async move {
            tokio::time::sleep_until(due.into()).await;
            // Timers are a millisecond apart: what one is late by is told apart.
            let started = Instant::now();
            let frame = client.get(call("small", small()?)).await.map_err(told)?;
            let rows = frame.arrow().await.map_err(told)?.num_rows();
            ensure!(frame.served() == How::Hit && rows == 50, "{frame:?}");
            Ok((started.elapsed(), started.duration_since(due)))
        }
    };
    let asked: Vec<_> = (0..count).map(|n| tokio::spawn(one(n))).collect();
    let (mut latencies, mut late) = (Vec::new(), Duration::ZERO);
    for asked in join_all(asked).await {
        let asked: Result<(Duration, Duration)> = asked.context("a hit")?;
        let (latency, behind) = asked?;
        latencies.push(latency);
        late = late.max(behind);
    }
    latencies.sort();
    let p99 = latencies[latencies.len() * 99 / 100].as_secs_f64() * 1_000.0;
    let mut all = summary(latencies);
    all["p99"] = json!((p99 * 100.0).round() / 100.0);
    all["per_s"] = json!(RATE);
    all["latest_start_ms"] = json!(late.as_millis());
    Ok(all)
}

async fn large(base: &str) -> Result<Value> {
    let client = connect(base)?;
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..ROWS).map(|n| format!("customer {n}")),
    ));
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..ROWS).map(|n| n * 7_919 % 100_003),
    ));
    let x: ArrayRef = Arc::new(Float64Array::from_iter_values(
        (0..ROWS).map(|n| f64::from(u32::try_from(n).unwrap_or(0)).sqrt()),
    ));
    let batch = RecordBatch::try_from_iter([("text", text), ("n", n), ("x", x)])?;
    client
        .get(call("large", batch.clone()))
        .await
        .map_err(told)?;
    ensure!(client.flush().await.failed == 0, "the entry was not stored");
    let mut samples = Vec::new();
    for _ in 0..40 {
        let started = Instant::now();
        let frame = client
            .get(call("large", batch.clone()))
            .await
            .map_err(told)?;
        let rows = frame.arrow().await.map_err(told)?.num_rows();
        samples.push(started.elapsed());
        ensure!(
            frame.served() == How::Hit && rows as i64 == ROWS,
            "{frame:?}"
        );
    }
    Ok(summary(samples))
}

/// SQL over a large entry: one narrow column, and a range that most row groups are outside of.
async fn sql(served: &Served, rows: u64) -> Result<Value> {
    let wide = format!(
        "SELECT value AS n, md5(CAST(value AS VARCHAR)) AS wide FROM generate_series(1, {rows})"
    );
    let body = json!({ "sql": wide, "ttl": null });
    let built = Instant::now();
    let answer = served
        .client()
        .post("/api/materialize/query", &body)
        .await?;
    ensure!(answer.status == 200, "{}", answer.text());
    let (built, id) = (
        built.elapsed(),
        answer.header("headwater-entry-id").to_owned(),
    );
    let mut times = json!({ "rows": rows, "build_s": built.as_secs_f64(), "bytes": answer.json()?["entry"]["byte_size"] });
    for (name, sql) in [
        ("sum_of_one_column", "SELECT sum(n) AS n FROM this"),
        (
            "range_of_one_column",
            "SELECT sum(n) AS n FROM this WHERE n BETWEEN 1000 AND 2000",
        ),
    ] {
        let mut samples = Vec::new();
        for _ in 0..10 {
            let started = Instant::now();
            let path = format!("/api/materialize/{id}/query");
            let answer = served.client().post(&path, &json!({ "sql": sql })).await?;
            ensure!(answer.status == 200, "{}", answer.text());
            samples.push(started.elapsed());
        }
        times[name] = summary(samples);
    }
    Ok(times)
}

fn random(number: u64) -> Result<RecordBatch, std::io::Error> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    // Numbers that do not compress.
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.cast_signed()
    };
    let values = Int64Array::from_iter_values((0..BATCH).map(|_| next()));
    RecordBatch::try_new(schema, vec![Arc::new(values)]).map_err(std::io::Error::other)
}

/// A stream of so many megabytes, stored.
async fn upload(base: &str, mebibytes: u64) -> Result<Value> {
    let client = connect(base)?;
    let batches = (mebibytes << 20) / (BATCH as u64 * 8);
    let own = own_peak_reset();
    let call = || {
        Call::new(
            Identity::new("huge", 0),
            Spec::default(),
            move || async move {
                let schema = random(0)?.schema();
                Ok::<_, std::io::Error>(BatchStream::new(
                    schema,
                    stream::iter((0..batches).map(random)),
                ))
            },
        )
    };
    let started = Instant::now();
    let frame: MaterializedFrame = client.get(call()).await.map_err(told)?;
    let computed = started.elapsed();
    let flushed = client.flush().await;
    ensure!(flushed.stored == 1, "{flushed:?}");
    let stored = started.elapsed();
    let found = client.get(call()).await.map_err(told)?;
    ensure!(
        found.served() == How::Hit && found.len() == frame.len(),
        "{found:?}"
    );
    Ok(json!({
        "mebibytes": found.meta().byte_size >> 20,
        "rows": found.len(),
        "computed_s": computed.as_secs_f64(),
        "stored_s": stored.as_secs_f64(),
        "client_memory_peak_mib": own.then(own_peak).flatten(),
    }))
}

/// Begins to count this process's peak anew; whether that can be done.
fn own_peak_reset() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The most memory this process has held since, in MiB.
fn own_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib >> 10)
}
