//! Lag history and targets, under a clock that the test moves.

use std::sync::Arc;

use domain::{Duration, Project, items};
use engine::{
    cycle::{self, Silent},
    explain, freshness, lags, status,
};
use ports::state::Key;
use testkit::{CountedState, MemoryState};

use crate::{
    pretend::{Lab, chain, exact, project, table},
    runner::{announce, pass, refreshes, running},
};

/// landing.ev -> bronze.ev -> silver.ev, with these targets.
fn targeted(bronze: &str, silver: &str) -> Project {
    let model = |name: &str, input: &str, target: &str| {
        let text = format!(
            "@config materialized=incremental, live=true, incremental_strategy=append, \
             incremental_filter=WHERE _seq > {{watermark}}{target}\n\nSELECT _seq FROM {input}\n"
        );
        (format!("transform/{}.sql", name.replace('.', "/")), text)
    };
    project(&[
        model("bronze.ev", "landing.ev", bronze),
        model("silver.ev", "bronze.ev", silver),
    ])
}

fn lab(project: Project) -> Lab {
    Lab::new(Arc::new(MemoryState::new()), project, exact())
}

async fn cycle(lab: &Lab) {
    cycle::run(&lab.world, &Silent)
        .await
        .expect("the world answers");
}

async fn wait_and_apply(lab: &Lab, milliseconds: u64) {
    lab.land("landing.ev", 1).await;
    lab.clock.advance(Duration::from_millis(milliseconds));
    cycle(lab).await;
}

#[tokio::test]
async fn lags_are_kept_by_interval_and_outlive_the_process() {
    let lab = lab(chain());
    for lag in [10, 20, 30] {
        wait_and_apply(&lab, lag).await;
    }
    lab.clock.advance(Duration::from_secs(60));
    wait_and_apply(&lab, 2_000).await;
    // Nothing but the state is left of another process.
    let restarted = Lab::new(lab.world.state.clone(), chain(), exact());
    restarted.clock.set(lab.world.clock.now());
    for model in ["bronze.ev", "silver.ev"] {
        let found = lags::history(&restarted.world, &table(model)).await;
        let found = found.expect("a history");
        let counts: Vec<_> = found
            .minutes
            .iter()
            .map(|m| (m.lags.count, m.lags.max_ms))
            .collect();
        assert_eq!(counts, [(3, 30), (1, 2_000)], "{model}");
        assert_eq!(found.minutes[0].lags.p50_ms, 20);
        assert_eq!(found.hour, found.day);
        assert_eq!(found.quarters.len(), 1);
        assert_eq!(
            found.hour.map(|hour| (hour.count, hour.p95_ms)),
            Some((4, 2_000))
        );
    }
    // An hour later it is history of the day only.
    restarted.clock.advance(Duration::from_secs(3_700));
    let found = lags::history(&restarted.world, &table("silver.ev"))
        .await
        .expect("a history");
    assert_eq!(
        (found.hour, found.day.map(|day| day.count)),
        (None, Some(4))
    );
    let now = status::status(&restarted.world, None)
        .await
        .expect("a status");
    assert_eq!((now.models[0].lag_hour, now.models[0].lag_count), (None, 4));
}

#[tokio::test]
async fn history_never_grows_beyond_its_slots() {
    let lab = lab(chain());
    for _ in 0..200 {
        lab.clock.advance(Duration::from_secs(60));
        wait_and_apply(&lab, 10).await;
    }
    let span = ports::state::Span::prefix(items::model(&table("bronze.ev")), "lag#", 1_000);
    let kept = lab.world.state.query(&span).await.expect("state answers");
    // An hour of minutes, and the quarters of three hours and twenty minutes.
    assert_eq!(kept.len(), 60 + 13);
    let found = lags::history(&lab.world, &table("bronze.ev"))
        .await
        .expect("a history");
    assert_eq!(found.hour.map(|hour| hour.count), Some(61));
    let bytes = kept.iter().map(|item| item.value.len()).max();
    assert!(bytes.is_some_and(|bytes| bytes < 200), "{bytes:?}");
}

#[tokio::test]
async fn history_costs_a_refresh_no_request_and_one_write_a_minute() {
    let counted = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
    let lab = Lab::new(counted.clone(), chain(), exact());
    let cost = async || {
        counted.take();
        wait_and_apply(&lab, 10).await;
        counted.take()
    };
    cost().await;
    let within = cost().await;
    lab.clock.advance(Duration::from_secs(60));
    let turned = cost().await;
    assert_eq!(
        within.requests(),
        turned.requests(),
        "{within:?} {turned:?}"
    );
    // One more for each of the two models.
    assert_eq!(within.writes + 2, turned.writes, "{within:?} {turned:?}");
}

#[tokio::test]
async fn a_model_with_a_target_gathers_until_the_latest_start() {
    let lab = lab(targeted("", ", target_lag=10s"));
    let runner = running(&lab).await;
    pass(&lab, 2_000).await;
    announce(&lab, 1).await;
    pass(&lab, 1_000).await;
    // The first build waits for nothing, and bronze has no target.
    assert_eq!(refreshes(&lab, "silver.ev").await, 1);
    for _ in 0..8 {
        announce(&lab, 1).await;
        pass(&lab, 1_000).await;
    }
    assert!(refreshes(&lab, "bronze.ev").await >= 8);
    assert_eq!(refreshes(&lab, "silver.ev").await, 1);
    let now = status::status(&lab.world, None).await.expect("a status");
    let silver = &now.models[1];
    assert_eq!((silver.status, silver.target_met), ("behind", Some(true)));
    assert!(silver.gathers_until.is_some(), "{silver:?}");
    let plan = explain::plan(&lab.world).await.expect("a plan");
    assert!(plan[1].reason.contains("gathering until"), "{:?}", plan[1]);
    pass(&lab, 1_200).await;
    assert_eq!(refreshes(&lab, "silver.ev").await, 2);
    let lag = lags::history(&lab.world, &table("silver.ev"))
        .await
        .expect("a history");
    let highest = lag.hour.map(|hour| hour.max_ms).expect("lags");
    assert!((8_000..=10_000).contains(&highest), "{highest}");
    runner.stop().await;
}

#[tokio::test]
async fn what_leads_to_a_tight_target_is_refreshed_in_time_for_it() {
    let lab = lab(targeted(", target_lag=60s", ", target_lag=5s"));
    let runner = running(&lab).await;
    pass(&lab, 2_000).await;
    announce(&lab, 1).await;
    pass(&lab, 1_500).await;
    // Nobody announces this one: another process wrote it.
    lab.land("landing.ev", 1).await;
    pass(&lab, 3_500).await;
    assert_eq!(refreshes(&lab, "bronze.ev").await, 1);
    pass(&lab, 1_500).await;
    assert_eq!(
        (
            refreshes(&lab, "bronze.ev").await,
            refreshes(&lab, "silver.ev").await
        ),
        (2, 2)
    );
    let lag = lags::history(&lab.world, &table("silver.ev"))
        .await
        .expect("a history");
    let highest = lag.hour.map(|hour| hour.max_ms).expect("lags");
    assert!(highest <= 5_000, "{highest}");
    runner.stop().await;
}

#[tokio::test]
async fn no_target_is_missed_and_no_wake_up_lost_whatever_arrives_when() {
    for seed in 0..4_u64 {
        let lab = lab(targeted(", target_lag=20s", ", target_lag=4s"));
        let runner = running(&lab).await;
        let mut state = seed * 2 + 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..12 {
            match draw(3) {
                0 => drop(lab.land("landing.ev", 1).await),
                _ => announce(&lab, 1).await,
            }
            pass(&lab, 100 + draw(60) * 100).await;
        }
        pass(&lab, 6_000).await;
        let now = status::status(&lab.world, None).await.expect("a status");
        for model in &now.models {
            assert_eq!(model.lag_seconds, 0.0, "seed {seed}: {model:?}");
            assert_eq!(model.target_met, Some(true), "seed {seed}: {model:?}");
            let highest = model.lag_hour.map_or(0, |hour| hour.max_ms);
            assert!(highest <= 4_000, "seed {seed}: {model:?}");
        }
        runner.stop().await;
    }
}

#[tokio::test]
async fn a_step_says_when_a_target_is_due() {
    let lab = lab(targeted(", target_lag=10s", ""));
    wait_and_apply(&lab, 10).await;
    lab.clock.advance(Duration::from_secs(5));
    let landed = lab.world.clock.now();
    lab.land("landing.ev", 1).await;
    let orders = testkit::MemoryRefreshes::default();
    let step = cycle::step(&lab.world, &orders, Duration::from_secs(900)).await;
    let due = landed + Duration::from_secs(9);
    assert_eq!(step.expect("a step"), cycle::Step::Idle(Some(due)));
    lab.clock.advance(Duration::from_secs(9));
    let step = cycle::step(&lab.world, &orders, Duration::from_secs(900)).await;
    assert_eq!(
        step.expect("a step"),
        cycle::Step::Sent(vec![table("bronze.ev")])
    );
}

#[tokio::test]
async fn a_missed_target_is_told_by_the_check() {
    let lab = lab(targeted("", ", target_lag=10s"));
    wait_and_apply(&lab, 11_000).await;
    let judged = freshness::check(&lab.world).await.expect("judged");
    let told: Vec<_> = judged
        .iter()
        .map(|one| (one.kind, one.subject.to_string(), one.ok))
        .collect();
    assert_eq!(
        told,
        [
            ("model", "bronze.ev".to_owned(), true),
            ("model", "silver.ev".to_owned(), true),
            ("target", "silver.ev".to_owned(), false),
        ]
    );
    assert_eq!(judged[2].seconds, Some(11.0));
    // An hour later the miss is over.
    lab.clock.advance(Duration::from_secs(3_700));
    let judged = freshness::check(&lab.world).await.expect("judged");
    assert!(judged.iter().all(|one| one.ok), "{judged:?}");
}

#[tokio::test]
async fn a_paused_reader_hurries_nobody() {
    let lab = lab(targeted(", target_lag=60s", ", target_lag=5s"));
    wait_and_apply(&lab, 10).await;
    engine::control::set_paused(&lab.world, &table("silver.ev"), true)
        .await
        .expect("a live model");
    wait_and_apply(&lab, 30_000).await;
    let key = Key::new(items::model(&table("bronze.ev")), items::STATE);
    let item = lab
        .world
        .state
        .get(&key)
        .await
        .expect("state answers")
        .expect("a state");
    assert_eq!(
        item.decode::<items::ModelState>()
            .expect("a state")
            .refreshes,
        1
    );
}
