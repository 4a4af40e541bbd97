//! Cycles and refreshes, on memory ports.

use std::sync::Arc;

use domain::{Duration, LiveSettings, Position, TableName, items};
use engine::{
    control,
    cycle::{self, Report, Silent},
    refresh::Refreshed,
    status::{self, ModelStatus},
};
use futures::FutureExt;
use ports::{
    Kind, State,
    alerts::AlertKind,
    state::{Expect, Key, Write},
};
use testkit::{CountedState, Fault, Faults, FaultyState, MemoryState, Operation};

use crate::pretend::{Lab, chain, exact, table};

fn lab() -> Lab {
    Lab::new(Arc::new(MemoryState::new()), chain(), exact())
}

async fn cycle(lab: &Lab) -> Report {
    cycle::run(&lab.world, &Silent)
        .await
        .expect("the world answers")
}

fn words(report: &Report) -> Vec<&'static str> {
    report.models.values().map(Refreshed::word).collect()
}

async fn consumed(lab: &Lab, model: &str, input: &str) -> Position {
    let key = Key::new(items::model(&table(model)), items::consumed(&table(input)));
    let item = lab.world.state.get(&key).await.expect("state answers");
    item.map(|item| {
        item.decode::<items::Consumed>()
            .expect("a watermark")
            .position
    })
    .unwrap_or_default()
}

async fn model(lab: &Lab, name: &str) -> ModelStatus {
    let status = status::status(&lab.world, None)
        .await
        .expect("state answers");
    status
        .models
        .into_iter()
        .find(|m| m.model == table(name))
        .expect("the model is live")
}

#[tokio::test]
async fn a_chain_moves_in_one_cycle_and_then_rests() {
    let lab = lab();
    assert_eq!(words(&cycle(&lab).await), ["idle", "idle"]);
    lab.land("landing.ev", 3).await;
    assert_eq!(words(&cycle(&lab).await), ["built", "built"]);
    assert_eq!(
        consumed(&lab, "silver.ev", "bronze.ev").await,
        Position {
            sequence: 3,
            commits: 1
        }
    );
    let report = cycle(&lab).await;
    assert_eq!(
        (words(&report).as_slice(), report.number),
        (["idle", "idle"].as_slice(), 1)
    );
}

#[tokio::test]
async fn an_idle_cycle_asks_the_store_once() {
    let counted = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
    let lab = Lab::new(counted.clone(), chain(), exact());
    lab.land("landing.ev", 3).await;
    cycle(&lab).await;
    counted.take();
    cycle(&lab).await;
    let counts = counted.take();
    assert_eq!(
        (counts.requests(), counts.gets, counts.transacts),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn a_failing_model_backs_off_and_tells_once() {
    let lab = lab();
    lab.land("landing.ev", 1).await;
    lab.lake.trouble(Some((table("landing.ev"), Kind::Invalid)));
    assert_eq!(words(&cycle(&lab).await), ["error", "held"]);
    assert_eq!(words(&cycle(&lab).await), ["held", "held"]);
    let failing = model(&lab, "bronze.ev").await;
    assert_eq!(
        (failing.status, failing.retry_in_seconds),
        ("failing", Some(2.0))
    );
    lab.clock.advance(Duration::from_secs(2));
    assert_eq!(words(&cycle(&lab).await), ["error", "held"]);
    assert_eq!(model(&lab, "bronze.ev").await.retry_in_seconds, Some(4.0));
    lab.lake.trouble(None);
    control::refresh_now(&lab.world, &table("bronze.ev"))
        .await
        .expect("a live model");
    assert_eq!(words(&cycle(&lab).await), ["built", "built"]);
    let alerts: Vec<_> = lab
        .alerts
        .all()
        .into_iter()
        .map(|alert| alert.kind)
        .collect();
    assert_eq!(
        alerts,
        [AlertKind::LiveModelFailed, AlertKind::LiveModelRecovered]
    );
    let well = model(&lab, "bronze.ev").await;
    assert_eq!(
        (well.status, well.consecutive_failures, well.last_error),
        ("live", 0, None)
    );
}

#[tokio::test]
async fn resuming_ends_a_backoff() {
    let lab = lab();
    lab.land("landing.ev", 1).await;
    lab.lake.trouble(Some((table("landing.ev"), Kind::Corrupt)));
    assert_eq!(words(&cycle(&lab).await), ["error", "held"]);
    lab.lake.trouble(None);
    control::set_paused(&lab.world, &table("bronze.ev"), true)
        .await
        .expect("a live model");
    assert_eq!(words(&cycle(&lab).await), ["held", "held"]);
    control::set_paused(&lab.world, &table("bronze.ev"), false)
        .await
        .expect("a live model");
    assert_eq!(words(&cycle(&lab).await), ["built", "built"]);
}

#[tokio::test]
async fn retry_delays_are_jittered_by_a_tenth() {
    let lab = Lab::new(
        Arc::new(MemoryState::new()),
        chain(),
        LiveSettings::default(),
    );
    lab.land("landing.ev", 1).await;
    lab.lake.trouble(Some((table("landing.ev"), Kind::Invalid)));
    cycle(&lab).await;
    let delay = model(&lab, "bronze.ev")
        .await
        .retry_in_seconds
        .expect("it backs off");
    assert!((1.8..=2.2).contains(&delay) && delay != 2.0, "{delay}");
}

#[tokio::test]
async fn a_silent_store_is_no_failure_of_the_model() {
    let lab = lab();
    lab.land("landing.ev", 1).await;
    lab.lake
        .trouble(Some((table("landing.ev"), Kind::Unavailable)));
    let error = cycle::run(&lab.world, &Silent)
        .await
        .expect_err("the world is silent");
    assert_eq!(error.kind, Kind::Unavailable);
    assert_eq!(model(&lab, "bronze.ev").await.consecutive_failures, 0);
    assert!(lab.alerts.all().is_empty());
}

#[tokio::test]
async fn a_conflict_is_tried_once_more_and_is_no_failure() {
    let faults = Arc::new(Faults::none());
    let state: Arc<dyn State> = Arc::new(FaultyState::new(
        Arc::new(MemoryState::new()),
        faults.clone(),
    ));
    let lab = Lab::new(state, chain(), exact());
    lab.land("landing.ev", 1).await;
    for (conflicts, expected) in [(1, "built"), (2, "conflict")] {
        lab.land("landing.ev", 1).await;
        let targets = [(
            table("landing.ev"),
            Position {
                sequence: 9,
                commits: 9,
            },
        )]
        .into();
        (0..conflicts).for_each(|skip| faults.inject(Operation::Transact, skip, Fault::Conflict));
        let how = engine::refresh::refresh(&lab.world, &table("bronze.ev"), &targets).await;
        assert_eq!(how.expect("the world answers").word(), expected);
    }
    assert_eq!(model(&lab, "bronze.ev").await.consecutive_failures, 0);
    assert_eq!(words(&cycle(&lab).await), ["built", "built"]);
}

#[tokio::test]
async fn lag_counts_from_the_arrival_in_landing_across_hops() {
    let lab = lab();
    lab.land("landing.ev", 1).await;
    cycle(&lab).await;
    control::set_paused(&lab.world, &table("silver.ev"), true)
        .await
        .expect("a live model");
    lab.land("landing.ev", 1).await;
    lab.clock.advance(Duration::from_secs(7));
    assert_eq!(model(&lab, "bronze.ev").await.lag_seconds, 7.0);
    assert_eq!(model(&lab, "silver.ev").await.lag_seconds, 0.0);
    assert_eq!(model(&lab, "silver.ev").await.behind_seconds, 7.0);
    cycle(&lab).await;
    lab.clock.advance(Duration::from_secs(5));
    assert_eq!(model(&lab, "bronze.ev").await.lag_seconds, 0.0);
    assert_eq!(model(&lab, "silver.ev").await.lag_seconds, 12.0);
}

#[test]
fn use_cases_can_be_spawned() {
    fn sendable<T: Send>(_: T) {}
    let lab = lab();
    let (world, name) = (&lab.world, table("bronze.ev"));
    let statement = ports::query::Statement::new("SELECT 1");
    sendable(cycle::run(world, &Silent));
    sendable(engine::batch::run(world, &[], false, &Silent));
    sendable(engine::explain::plan(world));
    sendable(status::status(world, None));
    sendable(control::set_paused(world, &name, true));
    sendable(control::refresh_now(world, &name));
    sendable(control::advance(world, &name));
    sendable(engine::read::query(world, &statement));
}

/// Opens a cycle of its own whenever a refresh of somebody else ends.
struct Other(Arc<dyn State>);

impl cycle::Observer for Other {
    fn started(&self, _: &TableName) {}

    fn ended(&self, _: &TableName, _: &Refreshed) {
        let cycle = items::Cycle {
            number: 9,
            ..items::Cycle::default()
        };
        let key = Key::new(items::CYCLE, items::CURRENT);
        let write = Write::put(key, &cycle, Expect::Any);
        let opened = self.0.transact(vec![write]).now_or_never();
        opened
            .expect("memory does not wait")
            .expect("state answers");
    }
}

#[tokio::test]
async fn a_cycle_that_ends_is_not_written_over_one_that_opened_since() {
    let lab = lab();
    lab.land("landing.ev", 3).await;
    let report = cycle::run(&lab.world, &Other(lab.world.state.clone())).await;
    assert_eq!(
        words(&report.expect("the world answers")),
        ["built", "built"]
    );
    let key = Key::new(items::CYCLE, items::CURRENT);
    let item = lab.world.state.get(&key).await.expect("state answers");
    let cycle: items::Cycle = item.expect("a cycle").decode().expect("a cycle");
    assert_eq!((cycle.number, cycle.closed), (9, false));
}
