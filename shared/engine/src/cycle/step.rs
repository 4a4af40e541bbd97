//! A cycle in steps, for refreshes that run elsewhere: each step looks at the state, sends what is ready and returns.
//! Nothing waits in memory between two steps; whoever learns something (an advance, a refresh that ended, a timer) takes
//! the next one, and any number may be taken at once.
//!
//! Orders are sent before they are written down: a crash in between sends them twice, never not at all. An order that
//! came to nothing for as long as the caller's patience is sent again.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Duration, TableName, Timestamp,
    items::{Cycle, Sent},
    plan::{self, Decision},
};
use ports::{
    Error, Kind, Refreshes, Result,
    refreshes::Order,
    state::{Expect, Item, Write},
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
    for _ in 0..ATTEMPTS_MAX {
        let known = Known::load(world).await?;
        let open = known.cycle.clone().filter(|cycle| !cycle.closed);
        let taken = match open {
            Some(cycle) => go_on(world, refreshes, &known, cycle, patience).await?,
            None => begin(world, &known).await?,
        };
        if let Some(step) = taken {
            return Ok(step);
        }
    }
    let busy = "other processes take steps without end";
    Err(Error::new(Kind::Unavailable, "step", "cycle").because(busy))
}

/// One step of an open cycle; none when the state moved or the cycle was closed, and another look is due.
async fn go_on(
    world: &World,
    refreshes: &dyn Refreshes,
    known: &Known,
    mut cycle: Cycle,
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
        let noted = replace(world, known, &cycle).await?;
        return Ok(noted.then_some(Step::Sent(sendable)));
    }
    let ends = running
        .iter()
        .filter_map(|model| cycle.sent.get(model).map(|sent| sent.at + patience))
        .min();
    if let Some(until) = ends {
        return Ok(Some(Step::Waiting(until)));
    }
    cycle.closed = true;
    if replace(world, known, &cycle).await? {
        settle(world, known, &decisions, &attempted).await?;
    }
    Ok(None)
}

/// Opens a cycle when there is anything to do and the last one is long enough ago; none when it was opened, by us or by
/// somebody else, and its first refreshes are to be sent.
async fn begin(world: &World, known: &Known) -> Result<Option<Step>> {
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
    replace(world, known, &cycle).await?;
    Ok(None)
}

/// When the first of the models that time alone holds is due.
fn next(decisions: &BTreeMap<TableName, Decision>, now: Timestamp) -> Option<Timestamp> {
    let due = decisions.values().filter_map(|decision| due(decision, now));
    due.min()
}

/// Replaces the cycle that was read; false when somebody else did.
async fn replace(world: &World, known: &Known, cycle: &Cycle) -> Result<bool> {
    let key = load::cycle();
    let expect = known.expect(&key);
    let write = Write::put(key, cycle, expect);
    Ok(world.state.transact(vec![write]).await?.is_committed())
}

/// Carries out an order: refreshes the model up to the targets of its cycle, notes how that ended and takes the next
/// step; answers with both. An order of a cycle that is over ends `Idle`: what it was for, a later cycle does or has done.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports: the order is to be delivered again. A model's failure is an outcome.
pub async fn carry_out(
    world: &World,
    refreshes: &dyn Refreshes,
    order: &Order,
    patience: Duration,
) -> Result<(Refreshed, Step)> {
    let how = match current(world, order).await? {
        Some((cycle, _)) => {
            let how = refresh::refresh(world, &order.model, &cycle.targets).await?;
            note(world, order, &how).await?;
            how
        }
        None => Refreshed::Idle,
    };
    Ok((how, step(world, refreshes, patience).await?))
}

/// The order's cycle, while it is open, and the condition that nobody changed it since.
async fn current(world: &World, order: &Order) -> Result<Option<(Cycle, Expect)>> {
    let item = world.state.get(&load::cycle()).await?;
    let expect = Expect::as_read(item.as_ref());
    let cycle = item.as_ref().map(Item::decode::<Cycle>).transpose()?;
    let open = cycle.filter(|cycle| cycle.number == order.cycle && !cycle.closed);
    Ok(open.map(|cycle| (cycle, expect)))
}

/// Notes how an order ended.
async fn note(world: &World, order: &Order, how: &Refreshed) -> Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        let Some((mut cycle, expect)) = current(world, order).await? else {
            return Ok(());
        };
        cycle.done.insert(order.model.clone(), how.word().into());
        let write = Write::put(load::cycle(), &cycle, expect);
        if world.state.transact(vec![write]).await?.is_committed() {
            return Ok(());
        }
    }
    let busy = "other processes change the cycle without end";
    Err(Error::new(Kind::Unavailable, "note", order.model.to_string()).because(busy))
}
