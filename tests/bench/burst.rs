//! A burst: a thousand advances in one second, at default settings, and how few refreshes they make.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use engine::runner::{self, Event, Runner};
use serde_json::{Value, json};
use tests::world::table;

use crate::{Options, block_on, merge, sample::typed_chain};

/// Advances of the burst.
const ADVANCES: i64 = 1_000;
/// Most refreshes of a model.
const TARGET: usize = 6;

pub(crate) fn run(_: &Options) -> Result<Value> {
    block_on(measure())
}

async fn measure() -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let world = merge::world(folder.path(), &typed_chain())?;
    let orders = table("landing.orders")?;
    merge::append(&world, &orders, vec![(0, 0)]).await?;
    let runner = Runner::new(world.clone());
    let stop = Arc::new(tokio::sync::Notify::new());
    let (running, stopping) = (runner.clone(), stop.clone());
    let task = tokio::spawn(async move {
        runner::run_until(&running, async move { stopping.notified().await }).await
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, mut events) = runner.events(0);
    let seen = before.last().map_or(0, |event| event.id);
    let started = Instant::now();
    let mut appends = tokio::task::JoinSet::new();
    for key in 1..=ADVANCES {
        let due = Duration::from_micros(u64::try_from(key * 1_000_000 / ADVANCES)?);
        tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
        let (world, orders) = (world.clone(), orders.clone());
        appends.spawn(async move {
            merge::append(&world, &orders, vec![(key, 1)]).await?;
            merge::announce(&world, &orders).await
        });
    }
    while let Some(ended) = appends.join_next().await {
        ended??;
    }
    let sent = started.elapsed();
    tokio::time::sleep(Duration::from_secs(4)).await;
    stop.notify_one();
    task.await?.map_err(|error| tests::rows::chain(&error))?;
    let (mut silver, mut cycles) = (0, 0);
    while let Ok(event) = events.try_recv() {
        match event.event {
            _ if event.id <= seen => {}
            Event::Refreshed { model, how, .. } if how.word() == "built" => {
                silver += usize::from(model.to_string() == "silver.orders");
            }
            Event::CycleStarted { .. } => cycles += 1,
            _ => {}
        }
    }
    let rows = tests::rows::value(&world, "SELECT count(*) FROM silver.orders").await?;
    ensure!(rows == json!(ADVANCES + 1), "{rows} rows arrived");
    Ok(json!({
        "advances": ADVANCES, "sent_in_s": sent.as_secs_f64(), "cycles": cycles, "refreshes_of_a_model": silver,
        "target": TARGET, "within": silver <= TARGET,
    }))
}
