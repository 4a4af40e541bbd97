//! A cycle in steps, for refreshes that run elsewhere: each step looks at the state, sends what is ready and returns.
//! Nothing waits in memory between two steps; whoever learns something (an advance, a refresh that ended, a timer) takes
//! the next one, and any number may be taken at once.
//!
//! Orders are sent before they are written down: a crash in between sends them twice, never not at all. The first orders
//! of a cycle are sent before the cycle is, and written down with it: one may come to be carried out first, and then
//! writes it. An order that came to nothing for as long as the caller's patience is sent again.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Duration, Position, TableName, Timestamp,
    items::{Cycle, Sent},
    plan::{self, Decision},
};
use ports::{
    Error, Kind, Refreshes, Result,
    refreshes::Order,
    state::{Expect, Item, Key, Outcome, Write},
};

use super::{due, ready, settle};
use crate::{
    World,
    known::Known,
    load,
    refresh::{self, Refreshed, Why},
};

/// Attempts of one step while others take theirs.
pub(super) const ATTEMPTS_MAX: u32 = 32;
/// Most orders for one model in a cycle. One whose refreshes never end, as each is killed, would keep the cycle open, and all
/// other models from what came since: after that it has one, for as long as nothing is heard of it.
const ORDERS_MAX: u32 = 3;
/// How a model ended whose refreshes never did.
pub(super) const LOST: &str = "lost";
/// Most targets that are sent along with an order; a cycle that has more is written down before anything is sent.
const TARGETS_SENT_MAX: usize = 256;

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

/// The same, and an item that is none of a cycle's, read along with what the step looks at: a request less than on its own.
pub(crate) async fn step_beside(
    world: &World,
    refreshes: &dyn Refreshes,
    patience: Duration,
    beside: &Key,
) -> Result<(Step, Option<Item>)> {
    look(world, refreshes, patience, None, Some(beside)).await
}

/// Takes a step, and writes down with it how an order ended, when there is one: a request less than on its own.
pub(super) async fn take(
    world: &World,
    refreshes: &dyn Refreshes,
    patience: Duration,
    ended: Option<(&Order, &Refreshed)>,
) -> Result<Step> {
    let (step, _) = look(world, refreshes, patience, ended, None).await?;
    Ok(step)
}

async fn look(
    world: &World,
    refreshes: &dyn Refreshes,
    patience: Duration,
    ended: Option<(&Order, &Refreshed)>,
    beside: Option<&Key>,
) -> Result<(Step, Option<Item>)> {
    for _ in 0..ATTEMPTS_MAX {
        let known = Known::load_beside(world, beside).await?;
        let found = beside.and_then(|key| known.item(key).cloned());
        let expect = known.expect(&load::cycle());
        let mut open = known.cycle.clone().filter(|cycle| !cycle.closed);
        if let (Some(cycle), Some((order, how))) = (&mut open, ended)
            && cycle.number == order.cycle
        {
            cycle.done.insert(order.model.clone(), how.word().into());
        }
        let closed = match open {
            Some(cycle) => {
                match go_on(world, refreshes, &known, (cycle, expect), patience).await? {
                    Went::Took(step) => return Ok((step, found)),
                    Went::Moved => continue,
                    // What was seen is enough for the next one too: whoever announces more from here on finds none open.
                    Went::Closed(cycle, expect) => (Some(cycle), expect),
                }
            }
            None => (known.cycle.clone(), expect),
        };
        if let Some(step) = begin(world, refreshes, &known, closed).await? {
            return Ok((step, found));
        }
    }
    let busy = "other processes take steps without end";
    Err(Error::new(Kind::Unavailable, "step", "cycle").because(busy))
}

/// How an open cycle went on.
enum Went {
    /// This step was taken.
    Took(Step),
    /// It was closed, and is as expected now.
    Closed(Cycle, Expect),
    /// The state moved: another look is due.
    Moved,
}

/// One step of an open cycle, which replaces one as expected.
async fn go_on(
    world: &World,
    refreshes: &dyn Refreshes,
    known: &Known,
    (mut cycle, expect): (Cycle, Expect),
    patience: Duration,
) -> Result<Went> {
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
    let (lost, sendable): (Vec<_>, Vec<_>) = sendable.into_iter().partition(|model| {
        let sent = cycle.sent.get(model);
        sent.is_some_and(|sent| sent.attempt >= orders_max(known, model))
    });
    if !lost.is_empty() {
        // Written down first: one of several that take this step tells of it. Should it end here, the next cycle finds the model.
        let done = lost.iter().map(|model| (model.clone(), LOST.into()));
        cycle.done.extend(done);
        if replace(world, expect, &cycle).await?.is_some() {
            for model in &lost {
                let times = match orders_max(known, model) {
                    1 => "once".to_owned(),
                    times => format!("{times} times"),
                };
                let why = format!(
                    "its refresh was asked for {times} and never ended: it needs more memory or time than its function has"
                );
                refresh::give_up(world, model, &cycle.targets, Why::lost(&why)).await?;
            }
        }
        return Ok(Went::Moved);
    }
    if !sendable.is_empty() {
        let sent = send(world, refreshes, (cycle, expect), sendable, None).await?;
        return Ok(sent.map_or(Went::Moved, Went::Took));
    }
    let ends = running
        .iter()
        .filter_map(|model| cycle.sent.get(model).map(|sent| sent.at + patience))
        .min();
    if let Some(until) = ends {
        // Nothing is written unless an order's end is to be.
        let noted =
            known.cycle.as_ref() == Some(&cycle) || replace(world, expect, &cycle).await?.is_some();
        let waiting = Step::Waiting(until);
        return Ok(if noted {
            Went::Took(waiting)
        } else {
            Went::Moved
        });
    }
    cycle.closed = true;
    let closed = replace(world, expect, &cycle).await?;
    Ok(closed.map_or(Went::Moved, |expect| Went::Closed(cycle, expect)))
}

/// Most orders for a model in one cycle.
fn orders_max(known: &Known, model: &TableName) -> u32 {
    let lost = known.states.get(model).is_some_and(|state| state.lost);
    if lost { 1 } else { ORDERS_MAX }
}

/// Opens a cycle when there is anything to do and the last one, which is as expected, is long enough ago, and takes its
/// first step; none when somebody else opened one, and another look is due.
async fn begin(
    world: &World,
    refreshes: &dyn Refreshes,
    known: &Known,
    (last, expect): (Option<Cycle>, Expect),
) -> Result<Option<Step>> {
    let now = world.clock.now();
    let decisions = known.outlook(world);
    settle(world, known, &decisions, &BTreeSet::new()).await?;
    let ready = ready(&decisions);
    if ready.is_empty() {
        return Ok(Some(Step::Idle(next(&decisions, now))));
    }
    if let Some(from) = last
        .as_ref()
        .map(|cycle| cycle.opened_at + world.live.min_interval)
        && now < from
    {
        return Ok(Some(Step::Idle(Some(from))));
    }
    let cycle = opened(last.as_ref(), known.targets(), now);
    if cycle.targets.len() <= TARGETS_SENT_MAX {
        let opens = Some(cycle.targets.clone());
        return send(world, refreshes, (cycle, expect), ready, opens).await;
    }
    // It may be gone on with as it was written: nothing that it is decided by was read before the rest.
    match replace(world, expect, &cycle).await? {
        Some(expect) => send(world, refreshes, (cycle, expect), ready, None).await,
        None => Ok(None),
    }
}

/// The cycle after the last one.
pub(super) fn opened(
    last: Option<&Cycle>,
    targets: BTreeMap<TableName, Position>,
    now: Timestamp,
) -> Cycle {
    Cycle {
        number: last.map_or(0, |cycle| cycle.number) + 1,
        opened_at: now,
        targets,
        ..Cycle::default()
    }
}

/// Sends orders for models, and then writes them down in their cycle, which replaces one as expected; none when that was
/// another one.
async fn send(
    world: &World,
    refreshes: &dyn Refreshes,
    (mut cycle, expect): (Cycle, Expect),
    models: Vec<TableName>,
    opens: Option<BTreeMap<TableName, Position>>,
) -> Result<Option<Step>> {
    let order = |model: &TableName| Order {
        model: model.clone(),
        cycle: cycle.number,
        attempt: cycle.sent.get(model).map_or(0, |sent| sent.attempt) + 1,
        opens: opens.clone(),
    };
    let orders: Vec<Order> = models.iter().map(order).collect();
    refreshes.send(&orders).await?;
    let at = world.clock.now();
    for Order { model, attempt, .. } in orders {
        cycle.sent.insert(model, Sent { at, attempt });
    }
    let noted = replace(world, expect, &cycle).await?;
    Ok(noted.map(|_| Step::Sent(models)))
}

/// When the first of the models that time alone holds is due.
fn next(decisions: &BTreeMap<TableName, Decision>, now: Timestamp) -> Option<Timestamp> {
    let due = decisions.values().filter_map(|decision| due(decision, now));
    due.min()
}

/// Replaces the cycle; what is expected of it then, or none when it was another one.
pub(super) async fn replace(
    world: &World,
    expect: Expect,
    cycle: &Cycle,
) -> Result<Option<Expect>> {
    let write = Write::put(load::cycle(), cycle, expect);
    Ok(match world.state.transact(vec![write]).await? {
        Outcome::Committed(versions) => versions.first().copied().map(Expect::Version),
        Outcome::Conflict(_) => None,
    })
}
