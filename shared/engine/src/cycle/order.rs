//! An order carried out: the refresh, and the step after it.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use domain::{
    Duration, TableName,
    items::{Cycle, Sent},
    plan,
};
use ports::{Error, Kind, Queue, Refreshes, Result, queue::Announcement, refreshes::Order};

use super::{
    ready,
    step::{ATTEMPTS_MAX, LOST, Step, opened, replace, step, take},
};
use crate::{
    World,
    known::Known,
    load::{self, Items},
    refresh::{self, Refreshed, Why},
};

/// Carries out an order: refreshes the model up to the targets of its cycle, takes the next step and notes with it how the
/// refresh ended; answers with both. An order whose cycle is over, or its model's turn in that, ends `Idle`: what it was for, a
/// later cycle does or has done.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports: the order is to be delivered again. A model's failure is an outcome.
pub async fn carry_out(
    world: &World,
    refreshes: &dyn Refreshes,
    order: &Order,
    patience: Duration,
) -> Result<(Refreshed, Step)> {
    // The step that follows sees what was committed. Announcing it would only have another one taken, which finds nothing
    // to do; the order comes again, or the schedule, when this one ends in between.
    let quiet = World {
        queue: Arc::new(Quiet),
        ..world.clone()
    };
    // The cycle comes with what the refresh decides from: one request less.
    let mut keys = refresh::keys(world, &order.model);
    keys.push(load::cycle());
    let items = Items::load(&*world.state, keys).await?;
    let how = match standing(items.get(&load::cycle())?, order) {
        Standing::Noted(cycle) => {
            refresh::refresh_from(&quiet, &order.model, &cycle.targets, items).await?
        }
        Standing::Unknown => match claim(world, order).await? {
            Some(cycle) => refresh::refresh(&quiet, &order.model, &cycle.targets).await?,
            None => return pass_by(world, refreshes, patience).await,
        },
        Standing::Over => return pass_by(world, refreshes, patience).await,
    };
    let next = take(world, refreshes, patience, Some((order, &how))).await?;
    Ok((how, next))
}

/// Ends an order that came to no end in the time it had: its model failed for that reason. Takes the next step.
///
/// # Errors
/// As [`carry_out`].
pub async fn give_up(
    world: &World,
    refreshes: &dyn Refreshes,
    order: &Order,
    why: &str,
    patience: Duration,
) -> Result<(Refreshed, Step)> {
    let items = Items::load(&*world.state, [load::cycle()]).await?;
    let Standing::Noted(cycle) = standing(items.get(&load::cycle())?, order) else {
        return pass_by(world, refreshes, patience).await;
    };
    let how = refresh::give_up(world, &order.model, &cycle.targets, Why::said(why)).await?;
    let next = take(world, refreshes, patience, Some((order, &how))).await?;
    Ok((how, next))
}

/// An order that is nobody's any more: the step that it would have caused is taken all the same.
async fn pass_by(
    world: &World,
    refreshes: &dyn Refreshes,
    patience: Duration,
) -> Result<(Refreshed, Step)> {
    let next = step(world, refreshes, patience).await?;
    Ok((Refreshed::Idle, next))
}

/// Where an order stands.
enum Standing {
    /// Its cycle is open and knows it.
    Noted(Cycle),
    /// Its cycle does not know it, or has not been written down: it was faster than its sender, or its sender is gone, or
    /// another one opened the cycle that it was for.
    Unknown,
    /// Its cycle is over, or its model's turn in it is.
    Over,
}

fn standing(cycle: Option<Cycle>, order: &Order) -> Standing {
    let (number, closed) = cycle.as_ref().map_or((0, true), |c| (c.number, c.closed));
    match cycle {
        Some(cycle) if number == order.cycle && !closed => {
            let sent = cycle.sent.contains_key(&order.model);
            let done = cycle.done.get(&order.model);
            match done.is_some_and(|how| how != LOST) {
                // It was delivered again; what failed is backed off from. One that was only late is carried out.
                true => Standing::Over,
                false if sent => Standing::Noted(cycle),
                false => Standing::Unknown,
            }
        }
        Some(_) | None if closed && order.opens.is_some() && number + 1 == order.cycle => {
            Standing::Unknown
        }
        Some(_) | None => Standing::Over,
    }
}

/// Notes an order that its cycle does not know, and opens that when it is not there yet, as its sender would have; the
/// cycle. None when the cycle is over, or another one than its sender meant and the model's turn has not come in it.
async fn claim(world: &World, order: &Order) -> Result<Option<Cycle>> {
    for _ in 0..ATTEMPTS_MAX {
        let known = Known::load(world).await?;
        match standing(known.cycle.clone(), order) {
            Standing::Noted(cycle) => return Ok(Some(cycle)),
            Standing::Over => return Ok(None),
            Standing::Unknown => {}
        }
        let now = world.clock.now();
        let mut cycle = match (&known.cycle, &order.opens) {
            (Some(cycle), _) if !cycle.closed => cycle.clone(),
            (last, Some(targets)) => opened(last.as_ref(), targets.clone(), now),
            (_, None) => return Ok(None),
        };
        let attempted: BTreeSet<TableName> = cycle.done.keys().cloned().collect();
        let decisions = plan::decide(&known.view(world, now, &cycle.targets, &attempted));
        if !ready(&decisions).contains(&order.model) {
            return Ok(None);
        }
        let attempt = order.attempt;
        cycle
            .sent
            .insert(order.model.clone(), Sent { at: now, attempt });
        let expect = known.expect(&load::cycle());
        if replace(world, expect, &cycle).await?.is_some() {
            return Ok(Some(cycle));
        }
    }
    let busy = "other processes take steps without end";
    Err(Error::new(Kind::Unavailable, "note order of", &order.model).because(busy))
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
