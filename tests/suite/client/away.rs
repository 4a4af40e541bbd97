//! A registry that is away: callers are served, and an outage does not cost each of them the time limit.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use client::{Error, Served, Settings};
use libtest_mimic::Trial;
use tests::transport::Way;

use super::{Bench, counted, guarded, rows, signups};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("client::a_registry_that_is_away_costs_no_answer", cut),
        test_async(
            "client::a_registry_that_is_silent_costs_its_time_limit_a_few_times",
            silent,
        ),
        test_async(
            "client::a_source_that_is_protected_is_left_in_peace",
            raised,
        ),
        test_async(
            "client::a_registry_that_goes_between_look_up_and_rows_costs_no_answer",
            between,
        ),
        test_async(
            "client::a_call_that_ended_in_a_panic_is_not_the_answer_for_ever",
            panicked,
        ),
    ]
}

async fn cut() -> Result<()> {
    let bench = Bench::new()?;
    bench.way.set(Way::Cut);
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(rows(&frame).await? == signups(0));
    ensure!(frame.served() == Served::Alone && bench.source.calls() == 1);
    // What a frame does here it does all the same; what only an entry can do says why it cannot.
    ensure!(frame.filter("n__gt", 7).len().await? == 1);
    let search = frame.search(&client::Search::new("paid")).await;
    ensure!(
        matches!(&search, Err(Error::NotStored { .. })),
        "{search:?}"
    );
    bench.way.set(Way::Open);
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(frame.served() == Served::Built);
    ensure!(bench.source.client.flush().await.stored == 1);
    Ok(())
}

async fn silent() -> Result<()> {
    let settings = Settings {
        timeout: Duration::from_millis(100),
        wait: Duration::ZERO,
        rest: Duration::from_secs(3_600),
        ..Settings::default()
    };
    let bench = Bench::told("", settings)?;
    bench.way.set(Way::Silent);
    let started = Instant::now();
    for n in 0..50 {
        let frame = counted(bench.source.clone(), n).await?;
        ensure!(rows(&frame).await? == signups(n));
    }
    let (asked, took) = (bench.way.sent().len(), started.elapsed());
    ensure!(asked == 3, "{asked} requests");
    ensure!(took < Duration::from_secs(3), "{took:?}");
    ensure!(bench.source.calls() == 50);
    Ok(())
}

async fn raised() -> Result<()> {
    let settings = Settings {
        timeout: Duration::from_millis(100),
        wait: Duration::ZERO,
        ..Settings::default()
    };
    let bench = Bench::told("", settings)?;
    for way in [Way::Cut, Way::Silent] {
        bench.way.set(way);
        let refused = guarded(bench.source.clone()).await;
        ensure!(matches!(&refused, Err(Error::Away(_))), "{refused:?}");
    }
    ensure!(bench.source.calls() == 0);
    bench.way.set(Way::Open);
    ensure!(rows(&guarded(bench.source.clone()).await?).await? == signups(0));
    bench.source.client.flush().await;
    // Somebody else builds, for longer than this caller waits.
    let frame = guarded(bench.source.clone()).await?;
    frame.invalidate().await?;
    let path = format!("/api/materialize/{}/lease", frame.meta().id);
    let lease = bench.site.send("POST", &path, &[], "{}").await?;
    ensure!(lease.status == 201, "{}", lease.text());
    let refused = guarded(bench.source.clone()).await;
    ensure!(matches!(&refused, Err(Error::Building(_))), "{refused:?}");
    Ok(())
}

async fn panicked() -> Result<()> {
    let bench = Bench::new()?;
    bench.way.set(Way::Broken);
    for _ in 0..2 {
        let refused = counted(bench.source.clone(), 0).await;
        ensure!(matches!(&refused, Err(Error::Away(_))), "{refused:?}");
    }
    // Each asked by itself.
    ensure!(bench.way.sent().len() == 2);
    bench.way.set(Way::Open);
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(frame.served() == Served::Built && rows(&frame).await? == signups(0));
    Ok(())
}

async fn between() -> Result<()> {
    let settings = Settings {
        timeout: Duration::from_millis(200),
        wait: Duration::ZERO,
        ..Settings::default()
    };
    let bench = Bench::told("materialize:\n  inline_max: 1B\n", settings)?;
    counted(bench.source.clone(), 0).await?;
    ensure!(bench.source.client.flush().await.stored == 1);
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(frame.served() == Served::Hit && bench.source.calls() == 1);
    bench.way.set(Way::Cut);
    ensure!(rows(&frame).await? == signups(0));
    ensure!(bench.source.calls() == 2);
    Ok(())
}
