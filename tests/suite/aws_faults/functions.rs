//! What the functions do, over and over: the bodies of those that are deployed, with a killer behind them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use engine::{cycle, refresh::Refreshed};
use ports::{landing::Append, queue::Announcement, refreshes::Order};
use serde_json::json;
use tests::{rows, wire::Lane, world::table};

use super::{Stage, process::Process};

/// From this delivery of a message on nothing goes wrong, so that bad luck alone fills no dead-letter queue.
const CALM: u32 = 3;
/// How often a message is handed to a second function while the first is at work.
const DOUBLED: f64 = 0.1;
/// How often a sender whose request failed does not send it again.
const GIVES_UP: f64 = 0.1;
/// Most announcements of one batch.
const BATCH: usize = 10;
/// Pause between ticks of the schedule.
const TICK: Duration = Duration::from_millis(100);
/// Orders that change again and again, so that merges have something to do.
const IDS: u64 = 40;
const REGIONS: [&str; 4] = ["asia", "eu", "moon", "us"];

/// Commits rows and announces them, until no more are to arrive.
pub(super) async fn ingest(stage: Arc<Stage>, number: u64) -> Result<()> {
    let mut process = Process::start(&stage)?;
    let name = table(super::LANDING)?;
    let mut sent = 0;
    while stage.arriving.load(Ordering::Relaxed) {
        sent += 1;
        let first = number * 1_000_000 + sent * 10;
        let events: Vec<u64> = (first..=first + process.below(3)).collect();
        let mut cells = Vec::new();
        for event in &events {
            let region = REGIONS[usize::try_from(process.below(4))?];
            cells.push(vec![
                json!(event),
                json!(process.below(IDS)),
                json!(region),
                json!(process.below(100)),
            ]);
        }
        let batch = rows::batch(&super::columns(), &cells)?;
        stage.note(&stage.sent, &events);
        let told = loop {
            let append = Append {
                table: name.clone(),
                rows: batch.clone(),
                origin_at: stage.now(),
                key: Some(format!("{number}/{sent}")),
            };
            let work = |world: engine::World, _| async move { world.landing.append(append).await };
            match process.invoke(&stage, true, work).await? {
                Some(appended) => break Some(appended),
                None if process.happens(GIVES_UP) => break None,
                None => {}
            }
        };
        if let Some(appended) = told {
            stage.note(&stage.acknowledged, &events);
            let announcement = Announcement {
                table: name.clone(),
                position: appended.position,
            };
            // Dead or refused here, the table has moved and nobody is told: the schedule finds it.
            let work =
                |world: engine::World, _| async move { world.queue.send(&[announcement]).await };
            process.invoke(&stage, true, work).await?;
        }
        tokio::time::sleep(stage.pace).await;
    }
    Ok(())
}

/// Takes steps for announcements.
pub(super) async fn coalesce(stage: Arc<Stage>) -> Result<()> {
    let mut process = Process::start(&stage)?;
    while stage.going.load(Ordering::Relaxed) {
        let taken = stage.wire.take(Lane::Advances, BATCH).await?;
        if taken.is_empty() {
            continue;
        }
        let rough = taken.iter().all(|taken| taken.deliveries < CALM);
        let done = step(&stage, &mut process, rough).await?;
        for taken in taken.iter().rev() {
            match done {
                true => stage.wire.delete(Lane::Advances, taken).await?,
                false => stage.wire.give_back(Lane::Advances, taken).await?,
            }
        }
    }
    Ok(())
}

/// Takes steps for the schedule.
pub(super) async fn sweep(stage: Arc<Stage>) -> Result<()> {
    let mut process = Process::start(&stage)?;
    while stage.going.load(Ordering::Relaxed) {
        step(&stage, &mut process, true).await?;
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}

async fn step(stage: &Stage, process: &mut Process, rough: bool) -> Result<bool> {
    let patience = stage.patience;
    let work = |world, orders: Arc<dyn ports::Refreshes>| async move {
        cycle::step(&world, &*orders, patience).await
    };
    Ok(process.invoke(stage, rough, work).await?.is_some())
}

/// Carries out orders.
pub(super) async fn refresh(stage: Arc<Stage>) -> Result<()> {
    let mut process = Process::start(&stage)?;
    let (lane, patience) = (Lane::Refreshes, stage.patience);
    while stage.going.load(Ordering::Relaxed) {
        let Some(taken) = stage.wire.take(lane, 1).await?.pop() else {
            continue;
        };
        let order: Order = serde_json::from_str(&taken.body)?;
        let rough = taken.deliveries < CALM;
        if rough && process.happens(DOUBLED) && stage.is_rough() {
            stage.counts.doubled.fetch_add(1, Ordering::Relaxed);
            stage.wire.give_back(lane, &taken).await?;
        }
        let work = |world, orders: Arc<dyn ports::Refreshes>| async move {
            cycle::carry_out(&world, &*orders, &order, patience).await
        };
        let before = process.number;
        let ended = process.invoke(&stage, rough, work).await?;
        if process.number != before {
            let killed = &stage.counts.killed_refreshing;
            killed.fetch_add(1, Ordering::Relaxed);
        }
        match ended {
            Some((how, _)) => {
                // A world that does not answer is no failure of a model.
                let failed = matches!(
                    how,
                    Refreshed::Error { .. } | Refreshed::AssertionFailed { .. }
                );
                ensure!(!failed, "{}: {how:?}", taken.body);
                stage.wire.delete(lane, &taken).await?;
            }
            None => stage.wire.give_back(lane, &taken).await?,
        }
    }
    Ok(())
}
