//! A cycle in steps, for refreshes that run elsewhere: each step looks at the state, sends what is ready and returns.
//! Nothing waits in memory between two steps; whoever learns something (an advance, a refresh that ended, a timer) takes
//! the next one, and any number may be taken at once.
//!
//! Orders are sent before they are written down: a crash in between sends them twice, never not at all. An order that
//! came to nothing for as long as the caller's patience is sent again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use domain::{
    Duration, TableName, Timestamp,
    items::{Cycle, Sent},
    plan::{self, Decision},
};
use ports::{
    Error, Kind, Queue, Refreshes, Result,
    queue::Announcement,
    refreshes::Order,
    state::{Expect, Item, Outcome, Write},
};

use super::{due, ready, settle};
use crate::{
    World,
    known::Known,
    load,
    refresh::{self, Refreshed},
};

/// Attempts of one step while others take theirs.
const ATTEMPTS_MAX: u32 = 32;

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Refreshes were sent.
    Sent(Vec<TableName>),
    /// Refreshes of the open cycle have not ended: they take the next step, or patience is over then.
    Waiting(Timestamp),
    /// Nothing is to be done before this moment unless something advances; none when nothing ever is.
    Idle(Option<Timestamp>),
}

/// Takes the next step of the open cycle, or opens one when models are behind and `min_interval` allows. `patience` is the
/// longest a refresh may take: one that has not ended by then is sent again.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports.
pub async fn step(world: &World, refreshes: &dyn Refreshes, patience: Duration) -> Result<Step> {
    take(world, refreshes, patience, None).await
}

/// Takes a step, and writes down with it how an order ended, when there is one: a request less than on its own.
async fn take(
    world: &World,
    refreshes: &dyn Refreshes,
    patience: Duration,
    ended: Option<(&Order, &Refreshed)>,
) -> Result<Step> {
    for _ in 0..ATTEMPTS_MAX {
        let known = Known::load(world).await?;
        let expect = known.expect(&load::cycle());
        let mut open = known.cycle.clone().filter(|cycle| !cycle.closed);
        if let (Some(cycle), Some((order, how))) = (&mut open, ended)
            && cycle.number == order.cycle
        {
            cycle.done.insert(order.model.clone(), how.word().into());
        }
        let taken = match open {
            Some(cycle) => go_on(world, refreshes, &known, (cycle, expect), patience).await?,
            None => begin(world, refreshes, &known, patience).await?,
        };
        if let Some(step) = taken {
            return Ok(step);
        }
    }
    let busy = "other processes take steps without end";
    Err(Error::new(Kind::Unavailable, "step", "cycle").because(busy))
}

/// One step of an open cycle, which replaces one as expected; none when the state moved or the cycle was closed, and
/// another look is due.
async fn go_on(
    world: &World,
    refreshes: &dyn Refreshes,
    known: &Known,
    (mut cycle, expect): (Cycle, Expect),
    patience: Duration,
) -> Result<Option<Step>> {
    let now = world.clock.now();
    let attempted: BTreeSet<TableName> = cycle.done.keys().cloned().collect();
    let decisions = plan::decide(&known.view(world, now, &cycle.targets, &attempted));
    // A refresh that was sent and is behind still may be running; one that is not has committed, whatever else it did.
    let (running, sendable): (Vec<_>, Vec<_>) = ready(&decisions).into_iter().partition(|model| {
        cycle
            .sent
            .get(model)
            .is_some_and(|sent| now < sent.at + patience)
    });
    if !sendable.is_empty() {
        let orders: Vec<Order> = sendable
            .iter()
            .map(|model| Order {
                model: model.clone(),
                cycle: cycle.number,
                attempt: cycle.sent.get(model).map_or(0, |sent| sent.attempt) + 1,
            })
            .collect();
        refreshes.send(&orders).await?;
        for Order { model, attempt, .. } in orders {
            cycle.sent.insert(model, Sent { at: now, attempt });
        }
        let noted = replace(world, expect, &cycle).await?;
        return Ok(noted.map(|_| Step::Sent(sendable)));
    }
    let ends = running
        .iter()
        .filter_map(|model| cycle.sent.get(model).map(|sent| sent.at + patience))
        .min();
    if let Some(until) = ends {
        // Nothing is written unless an order's end is to be.
        let noted =
            known.cycle.as_ref() == Some(&cycle) || replace(world, expect, &cycle).await?.is_some();
        return Ok(noted.then_some(Step::Waiting(until)));
    }
    cycle.closed = true;
    if replace(world, expect, &cycle).await?.is_some() {
        settle(world, known, &decisions, &attempted).await?;
    }
    Ok(None)
}

/// Opens a cycle when there is anything to do and the last one is long enough ago, and takes its first step; none when
/// somebody else opened one, and another look is due.
async fn begin(
    world: &World,
    refreshes: &dyn Refreshes,
    known: &Known,
    patience: Duration,
) -> Result<Option<Step>> {
    let now = world.clock.now();
    let decisions = known.outlook(world);
    if ready(&decisions).is_empty() {
        settle(world, known, &decisions, &BTreeSet::new()).await?;
        return Ok(Some(Step::Idle(next(&decisions, now))));
    }
    let last = known.cycle.as_ref();
    if let Some(from) = last.map(|cycle| cycle.opened_at + world.live.min_interval)
        && now < from
    {
        return Ok(Some(Step::Idle(Some(from))));
    }
    let cycle = Cycle {
        number: last.map_or(0, |cycle| cycle.number) + 1,
        opened_at: now,
        targets: known.targets(),
        ..Cycle::default()
    };
    // It may be gone on with as it was written: nothing that it is decided by was read before the rest.
    let expect = known.expect(&load::cycle());
    match replace(world, expect, &cycle).await? {
        Some(expect) => go_on(world, refreshes, known, (cycle, expect), patience).await,
        None => Ok(None),
    }
}

/// When the first of the models that time alone holds is due.
fn next(decisions: &BTreeMap<TableName, Decision>, now: Timestamp) -> Option<Timestamp> {
    let due = decisions.values().filter_map(|decision| due(decision, now));
    due.min()
}

/// Replaces the cycle; what is expected of it then, or none when it was another one.
async fn replace(world: &World, expect: Expect, cycle: &Cycle) -> Result<Option<Expect>> {
    let write = Write::put(load::cycle(), cycle, expect);
    Ok(match world.state.transact(vec![write]).await? {
        Outcome::Committed(versions) => versions.first().copied().map(Expect::Version),
        Outcome::Conflict(_) => None,
    })
}

/// Carries out an order: refreshes the model up to the targets of its cycle, takes the next step and notes with it how the
/// refresh ended; answers with both. An order of a cycle that is over ends `Idle`: what it was for, a later cycle does or has done.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports: the order is to be delivered again. A model's failure is an outcome.
pub async fn carry_out(
    world: &World,
    refreshes: &dyn Refreshes,
    order: &Order,
    patience: Duration,
) -> Result<(Refreshed, Step)> {
    let Some(cycle) = current(world, order).await? else {
        let next = step(world, refreshes, patience).await?;
        return Ok((Refreshed::Idle, next));
    };
    // The step that follows sees what was committed. Announcing it would only have another one taken, which finds nothing
    // to do; the order comes again, or the schedule, when this one ends in between.
    let quiet = World {
        queue: Arc::new(Quiet),
        ..world.clone()
    };
    let how = refresh::refresh(&quiet, &order.model, &cycle.targets).await?;
    let next = take(world, refreshes, patience, Some((order, &how))).await?;
    Ok((how, next))
}

/// The order's cycle, while it is open.
async fn current(world: &World, order: &Order) -> Result<Option<Cycle>> {
    let item = world.state.get(&load::cycle()).await?;
    let cycle = item.as_ref().map(Item::decode::<Cycle>).transpose()?;
    Ok(cycle.filter(|cycle| cycle.number == order.cycle && !cycle.closed))
}

/// Takes announcements that need not be sent.
#[derive(Debug)]
struct Quiet;

#[async_trait]
impl Queue for Quiet {
    async fn send(&self, _: &[Announcement]) -> Result<()> {
        Ok(())
    }

    async fn receive(&self) -> Result<Vec<Announcement>> {
        std::future::pending().await
    }
}
