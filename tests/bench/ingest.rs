//! Events per second that were acknowledged durably, the client on the same cores.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tests::{case::ModelText, folder::Folder, program::Served};
use tokio::net::TcpStream;

use crate::{
    Options, block_on,
    sample::{json_chain, rate, summary},
};

/// Connections that post single events at once.
const CONNECTIONS: u64 = 64;
/// Connections that post NDJSON bodies at once.
const BODY_CONNECTIONS: u64 = 4;
/// Events of one NDJSON body.
const BODY_EVENTS: u64 = 10_000;

pub(crate) fn run(options: &Options) -> Result<Value> {
    let time = Duration::from_secs(if options.quick { 3 } else { 10 });
    let single = Load {
        connections: CONNECTIONS,
        events: 1,
        kind: "application/json",
        time,
    };
    let bodies = Load {
        connections: BODY_CONNECTIONS,
        events: BODY_EVENTS,
        kind: "application/x-ndjson",
        time,
    };
    Ok(json!({
        "single_events": block_on(measure(single, &[]))?,
        "single_events_with_live_models": block_on(measure(single, &json_chain()))?,
        "ndjson_bodies": block_on(measure(bodies, &[]))?,
        "ndjson_bodies_with_live_models": block_on(measure(bodies, &json_chain()))?,
    }))
}

#[derive(Clone, Copy, Debug)]
struct Load {
    connections: u64,
    events: u64,
    kind: &'static str,
    time: Duration,
}

async fn measure(load: Load, models: &[ModelText]) -> Result<Value> {
    let folder = Folder::with_models("", models)?;
    let served = Served::start(folder.path(), &[]).await?;
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let posters: Vec<_> = (0..load.connections)
        .map(|_| tokio::spawn(post(load, served.address.clone(), next.clone())))
        .collect();
    let mut latencies = Vec::new();
    for poster in posters {
        latencies.extend(poster.await??);
    }
    let elapsed = started.elapsed();
    let accepted = latencies.len() as u64 * load.events;
    let stored = served
        .client()
        .query("SELECT COUNT(*) AS n FROM landing.orders")
        .await?;
    ensure!(
        stored[0]["n"] == accepted,
        "{accepted} acknowledged, {} stored",
        stored[0]["n"]
    );
    Ok(
        json!({ "connections": load.connections, "events_per_body": load.events, "accepted": accepted,
        "events_per_s": rate(accepted, elapsed), "post": summary(latencies), "seconds": elapsed.as_secs_f64(),
        "memory_peak_mib": served.memory_peak().map(|bytes| bytes >> 20) }),
    )
}

/// Posts over one connection until the time is over; how long each answer took.
async fn post(load: Load, address: String, next: Arc<AtomicU64>) -> Result<Vec<Duration>> {
    let stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut latencies = Vec::new();
    let ends = Instant::now() + load.time;
    while Instant::now() < ends {
        let body = body(next.fetch_add(load.events, Ordering::Relaxed), load.events);
        let request = Request::post("/api/ingest/webhook/orders")
            .header("host", &address)
            .header("content-type", load.kind)
            .body(Full::new(body))?;
        let started = Instant::now();
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        ensure!(
            status == 202,
            "{status} {}",
            String::from_utf8_lossy(&answer)
        );
        latencies.push(started.elapsed());
    }
    drop(sender);
    connection.await??;
    Ok(latencies)
}

fn body(first: u64, events: u64) -> Bytes {
    use std::fmt::Write;
    let mut text = String::new();
    for id in first..first + events {
        let line = if id + 1 < first + events { "\n" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            r#"{{"order_id":{id},"amount":1.0,"region":"r{}"}}{line}"#,
            id % 50
        );
    }
    Bytes::from(text)
}
