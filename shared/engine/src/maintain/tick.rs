//! Rounds of processes that come and go: each tick of a schedule may be in another one, so when the last round was is
//! written down. Where nothing happens, a tick asks for one item.

use domain::{Timestamp, items};
use ports::{
    Result,
    state::{Expect, Item, Key, Write},
};
use serde::{Deserialize, Serialize};

use super::{AGAIN, Budget, Report, maintain};
use crate::World;

const ROUND: &str = "round";

/// How the last round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RoundMark {
    /// When it was.
    at: Timestamp,
    /// Whether it found something to do: then there is likely to be more.
    busy: bool,
}

/// A round, unless the last one found nothing to do and is not long ago; none then.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the state store. What goes wrong in the round is in its report.
pub async fn tick(world: &World, budget: &Budget, now: Timestamp) -> Result<Option<Report>> {
    let key = Key::new(items::MAINTENANCE, ROUND);
    let item = world.state.get(&key).await?;
    let last = item.as_ref().map(Item::decode::<RoundMark>).transpose()?;
    if last.is_some_and(|last| !last.busy && now < last.at + AGAIN) {
        return Ok(None);
    }
    let report = maintain(world, budget, now).await;
    let mark = RoundMark {
        at: now,
        busy: report.did_anything() || !report.errors.is_empty(),
    };
    // Another process that had a round meanwhile knows as much.
    let write = Write::put(key, &mark, Expect::as_read(item.as_ref()));
    world.state.transact(vec![write]).await?;
    Ok(Some(report))
}
