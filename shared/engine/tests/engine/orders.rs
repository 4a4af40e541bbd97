//! Orders that come before their cycle is written down, after it, or for one that never was.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use domain::{
    Duration, LiveSettings, Project,
    items::{Cycle, ModelState},
};
use engine::{
    World,
    cycle::{self, Step},
    refresh::Refreshed,
    status::status,
};
use ports::{
    Error, Kind, Refreshes, Result,
    refreshes::Order,
    state::{Expect, Key, Outcome, Write},
};
use testkit::{MemoryRefreshes, MemoryState};

use crate::pretend::{Lab, chain, exact, project, table};

const PATIENCE: Duration = Duration::from_secs(900);

fn lab(project: Project) -> Lab {
    let live = LiveSettings {
        min_interval: Duration::ZERO,
        ..exact()
    };
    Lab::new(Arc::new(MemoryState::new()), project, live)
}

/// landing.a -> bronze.a, and silver.j of bronze.a and landing.b.
fn join() -> Project {
    let config = "@config materialized=incremental, live=true, incremental_strategy=append";
    let model = |name: &str, query: &str, filter: &str| {
        let text = format!("{config}, incremental_filter=WHERE {filter}\n\n{query}\n");
        (format!("transform/{}.sql", name.replace('.', "/")), text)
    };
    project(&[
        model(
            "bronze.a",
            "SELECT _seq FROM landing.a",
            "_seq > {watermark}",
        ),
        model(
            "silver.j",
            "SELECT b._seq FROM landing.b AS b, bronze.a AS a",
            "_seq > {watermark:landing.b}",
        ),
    ])
}

/// A queue whose sender dies before it learns that everything was sent.
#[derive(Debug, Default)]
struct Deadly {
    inner: MemoryRefreshes,
    alive: AtomicBool,
}

#[async_trait]
impl Refreshes for Deadly {
    async fn send(&self, orders: &[Order]) -> Result<()> {
        self.inner.send(orders).await?;
        match self.alive.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Error::new(Kind::Unavailable, "send", "orders").because("killed")),
        }
    }
}

/// A queue faster than its sender: orders are carried out before the call that sends them returns.
#[derive(Debug)]
struct Eager {
    world: World,
    later: MemoryRefreshes,
}

#[async_trait]
impl Refreshes for Eager {
    async fn send(&self, orders: &[Order]) -> Result<()> {
        for order in orders {
            let carried = cycle::carry_out(&self.world, &self.later, order, PATIENCE).await?;
            assert!(matches!(carried.0, Refreshed::Built { .. }), "{carried:?}");
        }
        Ok(())
    }
}

async fn stored(lab: &Lab) -> Cycle {
    let key = Key::new("cycle", "current");
    let item = lab.world.state.get(&key).await.expect("state answers");
    item.expect("a cycle").decode().expect("a cycle")
}

async fn carry(lab: &Lab, queue: &MemoryRefreshes, order: &Order) -> (&'static str, Step) {
    let carried = cycle::carry_out(&lab.world, queue, order, PATIENCE).await;
    let (how, next) = carried.expect("the world answers");
    (how.word(), next)
}

#[tokio::test]
async fn an_order_that_is_faster_than_its_sender_opens_the_cycle_itself() {
    let lab = lab(chain());
    lab.land("landing.ev", 3).await;
    let eager = Eager {
        world: lab.world.clone(),
        later: MemoryRefreshes::new(),
    };
    let step = cycle::step(&lab.world, &eager, PATIENCE).await;
    // The order's own step has sent the next level, which runs: the sender finds that and leaves it alone.
    assert!(matches!(step.expect("answers"), Step::Waiting(_)));
    let order = eager.later.take().expect("the second level");
    assert_eq!(order.model, table("silver.ev"));
    assert_eq!(eager.later.take(), None);
    let (how, next) = carry(&lab, &eager.later, &order).await;
    assert_eq!((how, next), ("built", Step::Idle(None)));
    let cycle = stored(&lab).await;
    assert!(
        cycle.closed && cycle.number == 1 && cycle.done.len() == 2,
        "{cycle:?}"
    );
}

#[tokio::test]
async fn an_order_whose_sender_died_opens_the_cycle_and_is_carried_out() {
    let lab = lab(chain());
    lab.land("landing.ev", 3).await;
    let queue = Deadly::default();
    let killed = cycle::step(&lab.world, &queue, PATIENCE).await;
    assert_eq!(killed.expect_err("it was killed").kind, Kind::Unavailable);
    let order = queue.inner.take().expect("it was sent");
    // More rows: the cycle is the one that its sender meant all the same.
    lab.land("landing.ev", 2).await;
    let (how, next) = carry(&lab, &queue.inner, &order).await;
    assert_eq!((how, next), ("built", Step::Sent(vec![table("silver.ev")])));
    assert_eq!(stored(&lab).await.targets[&table("landing.ev")].sequence, 3);
    let order = queue.inner.take().expect("the second level");
    let (how, next) = carry(&lab, &queue.inner, &order).await;
    // The rest is what the next cycle is for.
    assert_eq!((how, next), ("built", Step::Sent(vec![table("bronze.ev")])));
    assert_eq!(stored(&lab).await.number, 2);
}

#[tokio::test]
async fn an_order_for_a_cycle_that_another_one_opened_waits_for_its_turn_in_that() {
    let lab = lab(join());
    lab.land("landing.a", 1).await;
    lab.land("landing.b", 1).await;
    cycle::run(&lab.world, &cycle::Silent)
        .await
        .expect("answers");
    lab.land("landing.b", 1).await;
    let queue = Deadly::default();
    let killed = cycle::step(&lab.world, &queue, PATIENCE).await;
    killed.expect_err("it was killed");
    let early = queue.inner.take().expect("it was sent");
    assert_eq!(early.model, table("silver.j"));
    queue.alive.store(true, Ordering::Relaxed);
    lab.land("landing.a", 1).await;
    let step = cycle::step(&lab.world, &queue, PATIENCE).await;
    assert_eq!(step.expect("answers"), Step::Sent(vec![table("bronze.a")]));
    // C-1: in this cycle the join comes after what it reads.
    let (how, next) = carry(&lab, &queue.inner, &early).await;
    assert!(
        how == "idle" && matches!(next, Step::Waiting(_)),
        "{how} {next:?}"
    );
    let first = queue.inner.take().expect("the first level");
    let (how, next) = carry(&lab, &queue.inner, &first).await;
    assert_eq!((how, next), ("built", Step::Sent(vec![table("silver.j")])));
    let second = queue.inner.take().expect("the second level");
    assert!(
        second.cycle == early.cycle && second != early,
        "a queue must not take them for one"
    );
    let (how, next) = carry(&lab, &queue.inner, &second).await;
    assert_eq!((how, next), ("built", Step::Idle(None)));
    // And once more, as a queue may: there is nothing left.
    for order in [&early, &second] {
        let (how, next) = carry(&lab, &queue.inner, order).await;
        assert_eq!((how, next), ("idle", Step::Idle(None)));
    }
}

#[tokio::test]
async fn an_order_of_a_cycle_that_nobody_knows_changes_nothing() {
    let lab = lab(chain());
    lab.land("landing.ev", 3).await;
    let queue = MemoryRefreshes::new();
    let order = Order {
        model: table("bronze.ev"),
        cycle: 7,
        attempt: 1,
        opens: None,
    };
    let (how, next) = carry(&lab, &queue, &order).await;
    // The step that it would have caused is taken.
    assert_eq!((how, next), ("idle", Step::Sent(vec![table("bronze.ev")])));
    assert_eq!(stored(&lab).await.number, 1);
}

async fn failures(lab: &Lab, model: &str) -> ModelState {
    let key = Key::new(format!("model#{model}"), "state");
    let item = lab.world.state.get(&key).await.expect("state answers");
    item.map_or_else(ModelState::default, |item| item.decode().expect("a state"))
}

async fn failure(lab: &Lab, model: &str) -> Option<String> {
    let state = failures(lab, model).await;
    assert_eq!(state.failures, u32::from(state.last_error.is_some()));
    state.last_error
}

#[tokio::test]
async fn a_model_whose_refreshes_never_end_keeps_no_other_from_its_data() {
    let lab = lab(join());
    lab.land("landing.a", 3).await;
    let queue = MemoryRefreshes::new();
    for attempt in 1..=3 {
        let step = cycle::step(&lab.world, &queue, PATIENCE).await;
        assert_eq!(step.expect("answers"), Step::Sent(vec![table("bronze.a")]));
        let order = queue.take().expect("it was sent");
        assert_eq!((order.cycle, order.attempt), (1, attempt));
        // Each is killed without a word.
        lab.clock.advance(PATIENCE);
        let status = status(&lab.world, None).await.expect("the world answers");
        let asked = |name: &str| {
            let mut models = status.models.iter();
            let found = models.find(|model| model.model == table(name));
            found.expect("it is listed").asked_seconds
        };
        assert_eq!(asked("bronze.a"), Some(PATIENCE.as_secs_f64()));
        assert_eq!(asked("silver.j"), None);
        assert_eq!(failure(&lab, "bronze.a").await, None);
    }
    let step = cycle::step(&lab.world, &queue, PATIENCE).await;
    assert!(matches!(step.expect("answers"), Step::Idle(Some(_))));
    assert_eq!(queue.take(), None);
    let told = failure(&lab, "bronze.a").await.expect("it is told");
    assert!(told.contains("asked for 3 times and never ended"), "{told}");
    let cycle = stored(&lab).await;
    assert!(
        cycle.closed && cycle.done[&table("bronze.a")] == "lost",
        "{cycle:?}"
    );
    // Once it is no longer backed off from, another cycle tries it, once.
    lab.clock.advance(PATIENCE);
    let step = cycle::step(&lab.world, &queue, PATIENCE).await;
    assert_eq!(step.expect("answers"), Step::Sent(vec![table("bronze.a")]));
    let killed = queue.take().expect("it was sent");
    assert_eq!((killed.cycle, killed.attempt), (2, 1));
    lab.clock.advance(PATIENCE);
    let step = cycle::step(&lab.world, &queue, PATIENCE).await;
    assert!(matches!(step.expect("answers"), Step::Idle(Some(_))));
    let state = failures(&lab, "bronze.a").await;
    assert_eq!(state.failures, 2);
    let told = state.last_error.expect("it is told");
    assert!(told.contains("asked for once and never ended"), "{told}");
    lab.clock.advance(PATIENCE);
    let step = cycle::step(&lab.world, &queue, PATIENCE).await;
    assert_eq!(step.expect("answers"), Step::Sent(vec![table("bronze.a")]));
    let order = queue.take().expect("it was sent");
    assert_eq!((order.cycle, order.attempt), (3, 1));
    let (how, _) = carry(&lab, &queue, &order).await;
    assert_eq!(how, "built");
    assert_eq!(failure(&lab, "bronze.a").await, None);
}

#[tokio::test]
async fn an_order_without_time_to_end_fails_its_model() {
    let lab = lab(chain());
    lab.land("landing.ev", 3).await;
    let queue = MemoryRefreshes::new();
    let step = cycle::step(&lab.world, &queue, PATIENCE).await;
    assert_eq!(step.expect("answers"), Step::Sent(vec![table("bronze.ev")]));
    let order = queue.take().expect("it was sent");
    let given_up = cycle::give_up(&lab.world, &queue, &order, "it takes too long", PATIENCE).await;
    let (how, next) = given_up.expect("the world answers");
    assert_eq!(how.word(), "error");
    assert!(matches!(next, Step::Idle(Some(_))), "{next:?}");
    assert_eq!(
        failure(&lab, "bronze.ev").await.as_deref(),
        Some("it takes too long")
    );
    // Delivered again, it is nobody's.
    let again = cycle::give_up(&lab.world, &queue, &order, "it takes too long", PATIENCE).await;
    assert_eq!(again.expect("the world answers").0.word(), "idle");
}

#[tokio::test]
async fn an_order_that_is_delivered_again_tries_its_model_no_second_time() {
    let lab = lab(join());
    lab.land("landing.a", 3).await;
    let queue = MemoryRefreshes::new();
    let step = cycle::step(&lab.world, &queue, PATIENCE).await;
    assert_eq!(step.expect("answers"), Step::Sent(vec![table("bronze.a")]));
    let order = queue.take().expect("it was sent");
    // Another model of the cycle has not ended.
    let mut cycle = stored(&lab).await;
    let sent = cycle.sent[&order.model];
    cycle.sent.insert(table("silver.j"), sent);
    cycle.done.insert(order.model.clone(), "error".into());
    let write = Write::put(Key::new("cycle", "current"), &cycle, Expect::Any);
    let written = lab.world.state.transact(vec![write]).await;
    assert!(matches!(
        written.expect("state answers"),
        Outcome::Committed(_)
    ));
    assert_eq!(carry(&lab, &queue, &order).await.0, "idle");
}
