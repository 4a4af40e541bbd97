//! Replays that another process carries out: the one that is asked may read tables, and may not write any.
//!
//! What is to be done stands in an item before the job is sent, and how it ended is written there. Only the job that the item
//! names does anything: one that is doubled finds that it has ended, one that is late finds another. Whoever asks while one
//! waits asks for both: nothing that was asked for is forgotten, also when the job before was lost.

use domain::{
    Duration, TableName,
    items::{self, Quarantine, Replay, ReplayCounts, ReplayEnd, ReplayOutcome},
};
use ports::{
    Error, Kind, Result,
    jobs::ReplayJob,
    state::{Expect, Key, Write},
};
use serde::Serialize;

use super::{
    ATTEMPTS_MAX, Held, Replayed, chosen, find,
    replay::{put_in, replay, without},
    take_back,
};
use crate::{
    World,
    load::{self, Items},
};

/// A replay that was asked for, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// `waiting`, `done` or `failed`.
    pub status: &'static str,
    /// The job.
    pub job: String,
    /// When it was asked for, RFC 3339.
    pub asked_at: String,
    /// The rows; `null` for all.
    pub ids: Option<Vec<u64>>,
    /// Rows that were named and stay dropped, as there is no room for them yet: another replay takes them back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<u64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// What came of it: `replayed`, `added`, `rebuilt` and `left`, which here is a number, or the `reason`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Told>,
}

/// What came of a replay, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Told {
    /// It was carried out.
    Done(ReplayCounts),
    /// It was not.
    Failed {
        /// Why.
        reason: String,
    },
}

impl From<Replay> for Asked {
    fn from(replay: Replay) -> Self {
        let status = match replay.ended.as_ref().map(|ended| &ended.outcome) {
            None => "waiting",
            Some(ReplayOutcome::Done(_)) => "done",
            Some(ReplayOutcome::Failed { .. }) => "failed",
        };
        Self {
            status,
            job: replay.job,
            asked_at: replay.asked_at.to_string(),
            ids: replay.rows,
            dropped: Vec::new(),
            ended_at: replay.ended.as_ref().map(|ended| ended.at.to_string()),
            outcome: replay.ended.map(|ended| ended.outcome.into()),
        }
    }
}

impl From<ReplayOutcome> for Told {
    fn from(outcome: ReplayOutcome) -> Self {
        match outcome {
            ReplayOutcome::Done(counts) => Self::Done(counts),
            ReplayOutcome::Failed { reason } => Self::Failed { reason },
        }
    }
}

fn key(model: &TableName) -> Key {
    Key::new(items::model(model), items::REPLAY)
}

/// Tells of each model's last replay.
pub(super) async fn fill_in(world: &World, held: &mut [Held]) -> Result<()> {
    if held.is_empty() || world.jobs.is_none() {
        return Ok(());
    }
    let items = Items::load(&*world.state, held.iter().map(|held| key(&held.model))).await?;
    for held in held {
        let last: Option<Replay> = items.get(&key(&held.model))?;
        held.replay = last.map(Asked::from);
    }
    Ok(())
}

/// Has rows in quarantine put through their model again by another process; without `ids` all of them. `ids` may name dropped
/// ones: they are in quarantine again from now on.
///
/// # Errors
/// `NotFound` for a row that is not there; `Invalid` where nobody carries out jobs; what the ports answer: a job that could
/// not be sent is sent when somebody asks again.
pub async fn ask(world: &World, model: &TableName, ids: Option<&[u64]>) -> Result<Asked> {
    let model = &find(world, model)?.name;
    let jobs = world.jobs.as_ref().ok_or_else(|| {
        Error::new(Kind::Invalid, "have rows replayed of", model).because("no other process does")
    })?;
    let stay = take_back(world, find(world, model)?, ids.unwrap_or_default()).await?;
    let ids = without(ids, &stay);
    let ids = ids.as_deref();
    let key = key(model);
    for _ in 0..ATTEMPTS_MAX {
        let items = Items::load(&*world.state, [load::quarantine(model), key.clone()]).await?;
        let list: Quarantine = items.get(&load::quarantine(model))?.unwrap_or_default();
        chosen(model, &list, ids)?;
        let before: Option<Replay> = items.get(&key)?;
        let now = world.clock.now();
        let next = Replay {
            job: world.chance.id(now),
            asked_at: now,
            rows: both(before.filter(|before| before.ended.is_none()), ids),
            ended: None,
        };
        let write = Write::put(key.clone(), &next, items.expect(&key));
        if world.state.transact(vec![write]).await?.is_committed() {
            let job = ReplayJob {
                model: model.clone(),
                job: next.job.clone(),
            };
            jobs.replay(&job).await?;
            return Ok(Asked {
                dropped: stay,
                ..next.into()
            });
        }
    }
    let contended = Error::new(Kind::Conflict, "have rows replayed of", model);
    Err(contended.because("others ask for it all the time"))
}

/// The rows that are asked for, and those of a replay that waits; none for all.
fn both(waiting: Option<Replay>, ids: Option<&[u64]>) -> Option<Vec<u64>> {
    let mut rows = ids?.to_vec();
    if let Some(waiting) = waiting {
        rows.extend(waiting.rows?);
    }
    rows.sort_unstable();
    rows.dedup();
    Some(rows)
}

/// Carries out a job that was delivered, in at most so long; delivered again, it goes on where it was, as rows that went in
/// are in quarantine no more. None when another delivery has, or somebody asked anew.
///
/// # Errors
/// `Unavailable` or `Conflict`: it has to be delivered again. Whatever else it fails of is its outcome.
pub async fn carry_out(
    world: &World,
    job: &ReplayJob,
    time: Duration,
) -> Result<Option<ReplayOutcome>> {
    let until = world.clock.now() + time;
    let key = key(&job.model);
    let Some(item) = world.state.get(&key).await? else {
        return Ok(None);
    };
    let mut asked: Replay = item.decode()?;
    if asked.job != job.job || asked.ended.is_some() {
        return Ok(None);
    }
    let ended = tokio::select! {
        biased;
        ended = there(world, &job.model, asked.rows.as_deref()) => ended,
        () = world.clock.sleep_until(until) => Err(overdue(&job.model)),
    };
    let outcome = match ended {
        Ok(done) => ReplayOutcome::Done(ReplayCounts {
            replayed: done.replayed,
            added: done.added,
            rebuilt: done.rebuilt,
            left: done.left.len() as u64,
        }),
        Err(error) if matches!(error.kind, Kind::Unavailable | Kind::Conflict) => {
            return Err(error);
        }
        Err(error) => ReplayOutcome::Failed {
            reason: error.chain(),
        },
    };
    asked.ended = Some(ReplayEnd {
        at: world.clock.now(),
        outcome: outcome.clone(),
    });
    // Somebody who asked anew meanwhile asked for these rows too.
    let write = Write::put(key, &asked, Expect::Version(item.version));
    world.state.transact(vec![write]).await?;
    Ok(Some(outcome))
}

fn overdue(model: &TableName) -> Error {
    Error::new(Kind::TooLarge, "replay rows of", model).because(
        "it takes longer than a function may run (rows that left the quarantine are in): name fewer rows at once, or give the \
         function more memory",
    )
}

/// Replays those of the rows that are in quarantine still: others went in before, or were dropped since.
async fn there(world: &World, model: &TableName, ids: Option<&[u64]>) -> Result<Replayed> {
    let Some(ids) = ids else {
        return replay(world, model, None).await;
    };
    let known = find(world, model)?;
    let (key, mut attempts) = (load::quarantine(model), ATTEMPTS_MAX);
    loop {
        let items = Items::load(&*world.state, [key.clone()]).await?;
        let list: Quarantine = items.get(&key)?.unwrap_or_default();
        let is_there = |id: &u64| list.rows.iter().any(|row| row.sequence == *id);
        let left: Vec<u64> = ids.iter().copied().filter(is_there).collect();
        attempts -= 1;
        match put_in(world, known, Some(&left)).await {
            // Another delivery of the job took them in between, or somebody dropped them.
            Err(error) if error.kind == Kind::NotFound && attempts > 0 => {}
            done => return done,
        }
    }
}
