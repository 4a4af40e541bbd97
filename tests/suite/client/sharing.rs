//! One computation for all who ask at once: in one process, and among many.

use std::time::Duration;

use anyhow::{Result, ensure};
use client::{MaterializedFrame, Served, Settings, materialize};
use futures::future::join_all;
use libtest_mimic::Trial;
use tests::transport::Way;

use super::{Bench, Signup, Source, counted, rows, signups};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "client::a_hundred_cold_callers_of_one_process_share_one_build",
            cold,
        ),
        test_async(
            "client::a_hundred_cold_processes_share_one_build",
            processes,
        ),
        test_async(
            "client::a_thousand_callers_of_an_expired_entry_are_served_at_once",
            expired,
        ),
        test_async(
            "client::callers_are_served_what_is_not_stored_yet",
            unstored,
        ),
        test_async("client::who_waits_too_long_computes_alone", alone),
    ]
}

#[materialize(key = "slow", ttl = 60, client = on.client, key_fn = |_, millis: &u64| *millis)]
async fn slow(on: Source, millis: u64) -> Vec<Signup> {
    on.called();
    tokio::time::sleep(Duration::from_millis(millis)).await;
    signups(0)
}

async fn all_served(frames: Vec<client::Result<MaterializedFrame>>) -> Result<Vec<Served>> {
    let mut served = Vec::new();
    for frame in frames {
        let frame = frame?;
        ensure!(rows(&frame).await? == signups(0));
        served.push(frame.served());
    }
    Ok(served)
}

async fn cold() -> Result<()> {
    let bench = Bench::new()?;
    let frames = join_all((0..100).map(|_| slow(bench.source.clone(), 300))).await;
    all_served(frames).await?;
    ensure!(bench.source.calls() == 1, "{} builds", bench.source.calls());
    ensure!(bench.source.client.flush().await.stored == 1);
    let sent = bench.way.sent();
    ensure!(sent.len() == 3, "{sent:?}");
    Ok(())
}

async fn processes() -> Result<()> {
    let bench = Bench::new()?;
    let sources: Vec<Source> = (0..100).map(|_| bench.other()).collect();
    // The clock of the lab stands still: whoever waits there looks again when it is moved.
    let clock = bench.site.lab.clock.clone();
    let ticking = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.advance(Duration::from_millis(20));
        }
    });
    let frames = join_all(sources.iter().map(|source| slow(source.clone(), 1_000))).await;
    let served = all_served(frames).await?;
    ticking.abort();
    ensure!(bench.source.calls() == 1, "{} builds", bench.source.calls());
    let built = served
        .iter()
        .filter(|served| **served == Served::Built)
        .count();
    let hits = served
        .iter()
        .filter(|served| **served == Served::Hit)
        .count();
    ensure!((built, hits) == (1, 99), "{built} built, {hits} hits");
    Ok(())
}

async fn expired() -> Result<()> {
    let bench = Bench::new()?;
    slow(bench.source.clone(), 100).await?;
    bench.source.client.flush().await;
    bench.site.lab.clock.advance(Duration::from_secs(61));
    // Ten processes with a hundred callers each.
    let sources: Vec<Source> = (0..10).map(|_| bench.other()).collect();
    let calls = (0..1_000).map(|n: usize| slow(sources[n % 10].clone(), 100));
    let served = all_served(join_all(calls).await).await?;
    // Who asks last may find it rebuilt.
    ensure!(
        served
            .iter()
            .all(|served| matches!(served, Served::Stale | Served::Hit)),
        "{served:?}"
    );
    ensure!(served.contains(&Served::Stale), "{served:?}");
    for source in &sources {
        ensure!(source.client.flush().await.failed == 0);
    }
    ensure!(bench.source.calls() == 2, "{} builds", bench.source.calls());
    ensure!(slow(bench.source.clone(), 100).await?.served() == Served::Hit);
    Ok(())
}

async fn unstored() -> Result<()> {
    let bench = Bench::new()?;
    // It stays so: to store it is begun behind the callers' backs, and may end before the second one asks.
    bench.way.set(Way::Unstored);
    let first = counted(bench.source.clone(), 0).await?;
    let second = counted(bench.source.clone(), 0).await?;
    ensure!((first.served(), second.served()) == (Served::Built, Served::Built));
    ensure!(bench.source.calls() == 1);
    Ok(())
}

async fn alone() -> Result<()> {
    let settings = Settings {
        wait: Duration::ZERO,
        ..Settings::default()
    };
    let bench = Bench::told("", settings)?;
    let frame = counted(bench.source.clone(), 0).await?;
    bench.source.client.flush().await;
    frame.invalidate().await?;
    let path = format!("/api/materialize/{}/lease", frame.meta().id);
    ensure!(bench.site.send("POST", &path, &[], "{}").await?.status == 201);
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(frame.served() == Served::Alone && rows(&frame).await? == signups(0));
    ensure!(bench.source.calls() == 2);
    Ok(())
}
