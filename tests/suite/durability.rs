//! Whatever was answered with 202 survives the death of the process at any moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tests::{case::ModelText, folder::Folder, http::Client, program::Served};

use crate::{bugs::merged, plain::test_async};

/// Connections that post at once.
const CONNECTIONS: usize = 16;
/// Most acknowledgements of one round.
const ROUND_MAX: u64 = 400;
/// Rounds when `HEADWATER_KILLS` does not say otherwise.
const KILLS: u64 = 5;
/// Longest gold may take to catch up after the last restart.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    vec![test_async(
        "durability::nothing_acknowledged_is_lost_by_kill_9",
        kills,
    )]
}

/// A silver model of the events and a count per group over it.
fn models() -> Vec<ModelText> {
    let silver = "SELECT (payload->>'id')::BIGINT AS id, (payload->>'g')::BIGINT AS g, _seq FROM landing.events";
    let gold = "SELECT g, COUNT(*) AS events FROM silver.events \
                WHERE g IN (SELECT g FROM silver.events WHERE _seq > {watermark}) GROUP BY g";
    let config = json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "delete+insert",
        "unique_key": "g" });
    let config = serde_json::from_value(config).unwrap_or_default();
    let gold = ModelText {
        name: "gold.events".into(),
        config,
        sql: gold.into(),
        asserts: Vec::new(),
    };
    vec![merged("silver.events", "id", silver), gold]
}

async fn kills() -> Result<()> {
    let rounds = std::env::var("HEADWATER_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(KILLS);
    let seed = std::env::var("HEADWATER_SEED")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(20_261_129);
    println!("{rounds} kills, seed {seed}");
    let mut chance = StdRng::seed_from_u64(seed);
    let folder = Folder::with_models("live:\n  debounce: 10ms\n  min_interval: 50ms\n", &models())?;
    let next = Arc::new(AtomicU64::new(1));
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    for round in 1..=rounds {
        let served = Served::start(folder.path(), &[])
            .await
            .with_context(|| format!("round {round}"))?;
        check(&served.client(), &acknowledged)
            .await
            .with_context(|| format!("after kill {}", round - 1))?;
        let kill_at = chance.random_range(1..ROUND_MAX);
        post_until(served, kill_at, &next, &acknowledged).await?;
    }
    let served = Served::start(folder.path(), &[]).await?;
    check(&served.client(), &acknowledged)
        .await
        .context("after the last kill")?;
    catches_up(&served.client()).await
}

/// Posts from several connections until so many answers came back, then kills the server.
async fn post_until(
    served: Served,
    kill_at: u64,
    next: &Arc<AtomicU64>,
    acknowledged: &Arc<Mutex<BTreeSet<u64>>>,
) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let answers = Arc::new(AtomicU64::new(0));
    let mut posters = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = served.client();
        let (stop, answers) = (stop.clone(), answers.clone());
        let (next, acknowledged) = (next.clone(), acknowledged.clone());
        posters.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let id = next.fetch_add(1, Ordering::Relaxed);
                let event = json!({ "id": id, "g": id % 7 });
                // An error here is the kill; any answer but 202 promises nothing.
                let Ok(answer) = client.post("/api/ingest/webhook/events", &event).await else {
                    break;
                };
                if answer.status == 202 {
                    acknowledged
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .insert(id);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    let started = Instant::now();
    while answers.load(Ordering::Relaxed) < kill_at {
        ensure!(
            started.elapsed() < CATCH_UP_MAX,
            "only {} answers",
            answers.load(Ordering::Relaxed)
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    served.kill()?;
    stop.store(true, Ordering::Relaxed);
    for poster in posters {
        poster.await?;
    }
    Ok(())
}

/// Every acknowledged id is in landing, and no id twice; sequences have no gap (S-1).
async fn check(client: &Client, acknowledged: &Mutex<BTreeSet<u64>>) -> Result<()> {
    let promised = acknowledged
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone();
    if promised.is_empty() {
        return Ok(());
    }
    let sql =
        "SELECT (payload->>'id')::BIGINT AS id, _seq AS seq FROM landing.events ORDER BY _seq";
    let rows = client.query(sql).await?;
    let mut found = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        let id = row["id"].as_u64().context("id")?;
        ensure!(
            row["seq"].as_u64() == Some(at as u64 + 1),
            "S-1: sequence {} at place {}",
            row["seq"],
            at + 1
        );
        ensure!(found.insert(id, at).is_none(), "event {id} is there twice");
    }
    let lost: Vec<_> = promised
        .iter()
        .filter(|id| !found.contains_key(id))
        .collect();
    ensure!(
        lost.is_empty(),
        "{} of {} acknowledged events are lost: {lost:?}",
        lost.len(),
        promised.len()
    );
    Ok(())
}

/// Gold counts what landing holds.
async fn catches_up(client: &Client) -> Result<()> {
    let landing = "SELECT (payload->>'g')::BIGINT AS g, COUNT(*) AS events FROM landing.events GROUP BY 1 ORDER BY 1";
    let want = client.query(landing).await?;
    let started = Instant::now();
    loop {
        let got: Result<Vec<Value>> = client
            .query("SELECT g, events FROM gold.events ORDER BY g")
            .await;
        match got {
            Ok(got) if got == want => return Ok(()),
            got if started.elapsed() > CATCH_UP_MAX => {
                anyhow::bail!("gold is {got:?}, landing counts {want:?}");
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
