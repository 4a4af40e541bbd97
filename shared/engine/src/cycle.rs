//! One cycle: targets fixed at its opening, then levels of the DAG until nothing is ready (**C-1**).

mod order;
mod step;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use domain::{
    Position, TableName, Timestamp,
    items::{Control, Cycle},
    plan::{self, Decision, Hold},
};
use ports::{
    Error, Kind, Result,
    state::{Expect, Item, Outcome, Write},
};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::{
    World,
    known::Known,
    load,
    refresh::{self, Refreshed},
};

pub use order::{carry_out, give_up};
pub(crate) use step::step_beside;
pub use step::{Step, step};

/// Refreshes that run at the same time.
const REFRESHES_MAX: usize = 2;
/// Attempts to open a cycle while other processes open theirs.
const OPENINGS_MAX: u32 = 16;

/// What a cycle did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Its number.
    pub number: u64,
    /// Every live incremental model and how it ended.
    pub models: BTreeMap<TableName, Refreshed>,
}

/// Told while a cycle runs.
pub trait Observer: Send + Sync {
    /// A cycle with this number opened: it has work.
    fn opened(&self, number: u64) {
        let _ = number;
    }
    /// A model's refresh begins.
    fn started(&self, model: &TableName);
    /// A model's refresh ended.
    fn ended(&self, model: &TableName, how: &Refreshed);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn started(&self, _: &TableName) {}
    fn ended(&self, _: &TableName, _: &Refreshed) {}
}

/// Runs one cycle to its end.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports; a model's failure is an outcome.
pub async fn run(world: &World, observer: &dyn Observer) -> Result<Report> {
    Ok(pass(world, observer).await?.report)
}

/// A cycle that ended.
#[derive(Debug)]
pub(crate) struct Pass {
    /// What it did.
    pub(crate) report: Report,
    /// When a model that is held by time alone may be refreshed; none when none is.
    pub(crate) next: Option<Timestamp>,
}

/// Runs one cycle to its end, and says when time alone makes the next one due.
pub(crate) async fn pass(world: &World, observer: &dyn Observer) -> Result<Pass> {
    let mut known = Known::load(world).await?;
    let targets = known.targets();
    let mut ended: BTreeMap<TableName, Refreshed> = BTreeMap::new();
    let mut attempted = BTreeSet::new();
    let mut opened: Option<(Cycle, Expect)> = None;
    let decisions = loop {
        let now = world.clock.now();
        let decisions = plan::decide(&known.view(world, now, &targets, &attempted));
        let ready = ready(&decisions);
        if ready.is_empty() {
            break decisions;
        }
        attempted.extend(ready.iter().cloned());
        if opened.is_none() {
            observer.opened(known.cycle.as_ref().map_or(0, |cycle| cycle.number) + 1);
        }
        let refreshing = level(world, &ready, &targets, observer);
        let done = match &opened {
            Some(_) => refreshing.await,
            None => {
                // What a cycle fixed is written beside its first refreshes: nobody waits for it.
                let (cycle, done) = futures::join!(open(world, &known, &targets), refreshing);
                opened = Some(cycle?);
                done
            }
        };
        ended.extend(done?);
        known.reload(world, &ready).await?;
    };
    let number = opened
        .as_ref()
        .map(|(cycle, _)| cycle)
        .or(known.cycle.as_ref())
        .map_or(0, |cycle| cycle.number);
    if let Some((cycle, expect)) = opened {
        close(world, cycle, expect, &ended).await?;
    }
    settle(world, &known, &decisions, &attempted).await?;
    let now = world.clock.now();
    let next = known
        .outlook(world)
        .values()
        .filter_map(|decision| due(decision, now))
        .min();
    for (model, decision) in decisions {
        ended.entry(model).or_insert_with(|| describe(&decision));
    }
    Ok(Pass {
        report: Report {
            number,
            models: ended,
        },
        next,
    })
}

fn ready(decisions: &BTreeMap<TableName, Decision>) -> Vec<TableName> {
    let refresh = |(model, decision): (&TableName, &Decision)| match decision {
        Decision::Refresh => Some(model.clone()),
        Decision::Idle | Decision::After(_) | Decision::Hold(_) => None,
    };
    decisions.iter().filter_map(refresh).collect()
}

/// When a model is to be looked at again, unless an input advances before.
pub(crate) fn due(decision: &Decision, now: Timestamp) -> Option<Timestamp> {
    match decision {
        Decision::Hold(Hold::Backoff(at) | Hold::Interval(at) | Hold::Target { until: at, .. }) => {
            Some(*at)
        }
        // Another process was in the way.
        Decision::Refresh => Some(now),
        Decision::Hold(Hold::Paused | Hold::Waiting(_) | Hold::Unfed(_)) => None,
        Decision::Idle | Decision::After(_) => None,
    }
}

/// How a model that was not attempted ended.
fn describe(decision: &Decision) -> Refreshed {
    match decision {
        Decision::Refresh | Decision::Idle => Refreshed::Idle,
        Decision::After(other) => Refreshed::Held {
            reason: format!("waiting on {other}"),
        },
        Decision::Hold(hold) => Refreshed::Held {
            reason: reason(hold),
        },
    }
}

/// Why a model is held.
pub(crate) fn reason(hold: &Hold) -> String {
    match hold {
        Hold::Paused => String::from("paused"),
        Hold::Backoff(until) => format!("backing off until {until}"),
        Hold::Interval(until) => format!("inside its live_interval until {until}"),
        Hold::Target { until, of } => {
            format!("gathering until {until}, the latest start for the target_lag of {of}")
        }
        Hold::Waiting(other) => format!("waiting on {other}"),
        Hold::Unfed(other) => format!("waiting for the first rows of {other}"),
    }
}

/// Refreshes models that do not depend on each other. All are attempted, even when the world fails one.
async fn level(
    world: &World,
    ready: &[TableName],
    targets: &BTreeMap<TableName, Position>,
    observer: &dyn Observer,
) -> Result<Vec<(TableName, Refreshed)>> {
    let mut waiting: VecDeque<_> = ready.iter().cloned().collect();
    let (mut running, mut ended, mut failure) = (JoinSet::new(), Vec::new(), None);
    loop {
        while running.len() < REFRESHES_MAX {
            let Some(model) = waiting.pop_front() else {
                break;
            };
            observer.started(&model);
            let (world, targets) = (world.clone(), targets.clone());
            running.spawn(async move {
                let how = refresh::refresh(&world, &model, &targets).await;
                (model, how)
            });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((model, Ok(how)))) => {
                observer.ended(&model, &how);
                ended.push((model, how));
            }
            Some(Ok((_, Err(error)))) => failure = Some(error),
            Some(Err(panicked)) => {
                failure =
                    Some(Error::new(Kind::Unavailable, "refresh", "models").because(panicked));
            }
        }
    }
    failure.map_or(Ok(ended), Err)
}

/// Writes down what the cycle fixed, and what is expected of it from then on. When another process opens one at the same
/// time, this one comes after it.
async fn open(
    world: &World,
    known: &Known,
    targets: &BTreeMap<TableName, Position>,
) -> Result<(Cycle, Expect)> {
    let key = load::cycle();
    let mut expect = known.expect(&key);
    let mut last = known.cycle.as_ref().map_or(0, |cycle| cycle.number);
    for _ in 0..OPENINGS_MAX {
        let cycle = Cycle {
            number: last + 1,
            opened_at: world.clock.now(),
            targets: targets.clone(),
            ..Cycle::default()
        };
        let write = Write::put(key.clone(), &cycle, expect);
        if let Outcome::Committed(versions) = world.state.transact(vec![write]).await? {
            let version = versions.first().copied();
            return Ok((cycle, version.map_or(Expect::Any, Expect::Version)));
        }
        let item = world.state.get(&key).await?;
        expect = Expect::as_read(item.as_ref());
        last = item
            .as_ref()
            .map(Item::decode::<Cycle>)
            .transpose()?
            .map_or(0, |c| c.number);
    }
    let busy = "other processes open cycles without end";
    Err(Error::new(Kind::Unavailable, "open", "cycle").because(busy))
}

/// Writes down how the cycle ended, unless another process has opened one since: that one goes on as it was opened.
async fn close(
    world: &World,
    mut cycle: Cycle,
    expect: Expect,
    ended: &BTreeMap<TableName, Refreshed>,
) -> Result<()> {
    cycle.closed = true;
    cycle.done = ended
        .iter()
        .map(|(model, how)| (model.clone(), how.word().into()))
        .collect();
    world
        .state
        .transact(vec![Write::put(load::cycle(), &cycle, expect)])
        .await?;
    Ok(())
}

/// Answers requests for a refresh of models that have nothing to refresh.
async fn settle(
    world: &World,
    known: &Known,
    decisions: &BTreeMap<TableName, Decision>,
    attempted: &BTreeSet<TableName>,
) -> Result<()> {
    for (model, decision) in decisions {
        let asked = known.controls.get(model).filter(|control| control.retry);
        let (Some(control), Decision::Idle, false) = (asked, decision, attempted.contains(model))
        else {
            continue;
        };
        let answered = Control {
            retry: false,
            ..control.clone()
        };
        let write = Write::put(
            load::control(model),
            &answered,
            known.expect(&load::control(model)),
        );
        world.state.transact(vec![write]).await?;
    }
    Ok(())
}
