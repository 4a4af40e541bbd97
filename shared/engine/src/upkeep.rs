//! Upkeep of a deployment, where processes come and go: rounds of maintenance and sweeps of entries. Whoever a schedule wakes
//! asks for them, and whoever is linked with tables carries them out.
//!
//! One item, the mark, says when both last were. A tick reads it along with what its step looks at, and sends one job when
//! either is due: where nothing happens that is no request beside the step's. The mark is written when a job has been carried
//! out, whatever came of it. So its version names the job: one that is doubled or late finds another version and does nothing,
//! one that was lost has left the mark as it was, and is sent again.

use domain::{Duration, Timestamp, items};
use ports::{
    Refreshes, Result,
    jobs::UpkeepJob,
    state::{Expect, Item, Key, Write},
};
use serde::{Deserialize, Serialize};

use crate::{
    World,
    cycle::{self, Step},
    entries::{Registry, Swept},
    maintain::{AGAIN, Budget, Report, maintain},
};

const ROUND: &str = "round";
/// Longest a round takes, about: the schedule ticks once a minute.
const ROUND_MAX: Duration = Duration::from_secs(20);
/// Between two sweeps of entries: as between two rounds where nothing happens.
const SWEEP_AGAIN: Duration = AGAIN;

/// How far the clock of another process may be ahead of ours. What is further ahead is a clock that is wrong: followed, it would
/// end every grace at once, and a mark of its time would keep upkeep away until then.
const SKEW: Duration = Duration::from_secs(60);

/// How the last round and the last sweep ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// When the round was.
    at: Timestamp,
    /// Whether it found something to do, failed or was cut short: then there is likely to be more.
    busy: bool,
    /// When entries were swept; absent while they never were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    swept: Option<Timestamp>,
}

impl Mark {
    fn of(item: Option<&Item>) -> Result<Option<Self>> {
        item.map(Item::decode).transpose()
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
struct Due {
    round: bool,
    sweep: bool,
}

impl Due {
    fn at(mark: Option<&Mark>, now: Timestamp) -> Self {
        let swept = mark.and_then(|mark| mark.swept);
        let is_ahead = |at: Timestamp| at > now + SKEW;
        let sweep = swept.is_none_or(|swept| now >= swept + SWEEP_AGAIN || is_ahead(swept));
        // A sweep brings a round with it: where nothing happens one job is both, and there are not two that alternate.
        let is_due = |mark: &Mark| mark.busy || now >= mark.at + AGAIN || is_ahead(mark.at);
        let round = sweep || mark.is_none_or(is_due);
        Self { round, sweep }
    }
}

/// What came of a job that was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Upkept {
    /// The round; none when it was not due, or was cut short.
    pub round: Option<Report>,
    /// The sweep; none when it was not due, failed or was cut short.
    pub swept: Option<Swept>,
    /// What did not come to its end; the next tick asks for it again.
    pub left: Vec<String>,
}

fn key() -> Key {
    Key::new(items::MAINTENANCE, ROUND)
}

/// A tick of a schedule: takes a step, and has upkeep done when it is due. Answers with the step, and whether a job was sent:
/// what goes wrong with one does not keep the other from happening.
pub async fn tick(
    world: &World,
    refreshes: &dyn Refreshes,
    patience: Duration,
) -> (Result<Step>, Result<bool>) {
    if !world.live.maintenance.enabled {
        return (cycle::step(world, refreshes, patience).await, Ok(false));
    }
    let key = key();
    let (step, item) = match cycle::step_beside(world, refreshes, patience, &key).await {
        Ok((step, item)) => (Ok(step), Ok(item)),
        Err(error) => (Err(error), world.state.get(&key).await),
    };
    let asked = match item {
        Ok(item) => ask(world, item.as_ref()).await,
        Err(error) => Err(error),
    };
    (step, asked)
}

/// Sends a job if the mark says that something is due.
async fn ask(world: &World, item: Option<&Item>) -> Result<bool> {
    let now = world.clock.now();
    let due = Due::at(Mark::of(item)?.as_ref(), now);
    let Some(jobs) = world.jobs.as_ref().filter(|_| due.round || due.sweep) else {
        return Ok(false);
    };
    let job = UpkeepJob {
        mark: item.map(|item| item.version),
        at: now,
    };
    jobs.upkeep(&job).await?;
    Ok(true)
}

/// Carries out a job that was delivered, in at most so long; cut short anywhere it has lost nothing. None when another
/// delivery has, or there was upkeep since it was sent.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the state store, about the mark. What goes wrong in the round or the sweep is in the answer.
pub async fn carry_out(
    registry: &Registry,
    job: &UpkeepJob,
    time: Duration,
) -> Result<Option<Upkept>> {
    let (world, key) = (registry.world(), key());
    let began = world.clock.now();
    let item = world.state.get(&key).await?;
    if item.as_ref().map(|item| item.version) != job.mark {
        return Ok(None);
    }
    let mut mark = Mark::of(item.as_ref())?;
    // The clock of whoever asked may be ahead of ours, a little.
    let now = began.max(job.at.min(began + SKEW));
    let due = Due::at(mark.as_ref(), now);
    let (until, mut done) = (began + time, Upkept::default());
    if due.round {
        let budget = Budget {
            time: time.min(ROUND_MAX),
            steps: u32::MAX,
            all: false,
        };
        done.round = within(world, until, maintain(world, &budget, now)).await;
        if done.round.is_none() {
            done.left
                .push("the round of maintenance was cut short".into());
        }
        let mark = mark.get_or_insert_default();
        mark.at = now;
        mark.busy = done
            .round
            .as_ref()
            .is_none_or(|round| round.did_anything() || !round.errors.is_empty());
    }
    if due.sweep {
        match within(world, until, registry.sweep()).await {
            Some(Ok(swept)) => {
                mark.get_or_insert_default().swept = Some(now);
                done.swept = Some(swept);
            }
            Some(Err(error)) => done.left.push(error.chain()),
            None => done.left.push("the sweep of entries was cut short".into()),
        }
    }
    // Whoever else wrote it meanwhile knows as much.
    let write = Write::put(
        key,
        &mark.unwrap_or_default(),
        Expect::as_read(item.as_ref()),
    );
    world.state.transact(vec![write]).await?;
    Ok(Some(done))
}

/// What comes of work that ends before a moment.
async fn within<T>(world: &World, until: Timestamp, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = world.clock.sleep_until(until) => None,
    }
}
