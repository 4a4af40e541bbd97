//! One refresh: pin, query, stage, check, commit.

mod alert;
mod asserts;
pub(crate) mod bad_rows;
mod checks;
pub(crate) mod commit;
pub(crate) mod events;
mod feeds;
pub(crate) mod job;
pub(crate) mod lag;
pub(crate) mod make;

use std::collections::BTreeMap;

use domain::{Model, Position, TableName};
use ports::{Error, Kind, Result};
use serde::Serialize;

use self::{
    commit::Times,
    job::{Job, Loaded, Reason},
    make::Stopped,
};
use crate::World;

/// How an attempt on a model ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Refreshed {
    /// Committed.
    Built {
        /// Rows added.
        added: u64,
        /// Rows removed.
        deleted: u64,
        /// Rows in the table now.
        rows: u64,
        /// Lag removed: age of the oldest data applied, milliseconds.
        lag_ms: u64,
        /// Time it took, milliseconds.
        duration_ms: u64,
        /// Warn-severity assertions that failed.
        warnings: Vec<String>,
        /// Change events without a sequence, and rows that broke the model, kept in `quarantine.<model>` instead.
        quarantined: u64,
    },
    /// Nothing to do.
    Idle,
    /// Somebody else committed this model meanwhile; looked at again next cycle. Not a failure of the model.
    Conflict,
    /// Nothing committed.
    Error {
        /// The chain.
        message: String,
    },
    /// Nothing committed: an error-severity assertion failed.
    AssertionFailed {
        /// Which, and what was found.
        message: String,
    },
    /// Not attempted: paused, backing off, waiting on another model, or inside its interval.
    Held {
        /// Why.
        reason: String,
    },
}

impl Refreshed {
    /// The outcome in one word, as its JSON says it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Built { .. } => "built",
            Self::Idle => "idle",
            Self::Conflict => "conflict",
            Self::Error { .. } => "error",
            Self::AssertionFailed { .. } => "assertion_failed",
            Self::Held { .. } => "held",
        }
    }
}

/// Brings one model up to `targets` (a landing table read no further than its target; models through their head) and
/// records how it went. Failures of the model are an outcome; only the world failing is an error.
///
/// # Errors
/// `NotFound` when no model has this name; `Unavailable` or `Corrupt` from the ports.
pub async fn refresh(
    world: &World,
    model: &TableName,
    targets: &BTreeMap<TableName, Position>,
) -> Result<Refreshed> {
    let model = world
        .project
        .models
        .get(model)
        .ok_or_else(|| unknown(world, model))?;
    build(world, model, Some(targets), Reason::Live).await
}

/// How a model ends whose query cannot be run before a landing table has columns.
pub(crate) fn awaits(table: &TableName) -> Refreshed {
    Refreshed::Held {
        reason: format!("waiting on {table}, which nothing has landed in"),
    }
}

/// The error of a name that is no model's.
pub(crate) fn unknown(world: &World, name: &TableName) -> Error {
    let error = Error::new(Kind::NotFound, "find model", name);
    match world.project.nearest(&name.to_string()) {
        Some(near) => error.because(format!("there is no such model; did you mean `{near}`?")),
        None => error.because("there is no such model"),
    }
}

/// Builds one model if there is reason to. When somebody else commits it meanwhile, looks once more.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports.
pub(crate) async fn build(
    world: &World,
    model: &Model,
    targets: Option<&BTreeMap<TableName, Position>>,
    reason: Reason,
) -> Result<Refreshed> {
    let job = Job::new(&world.project, model, targets, reason);
    match attempt(world, &job).await? {
        Refreshed::Conflict => attempt(world, &job).await,
        ended => Ok(ended),
    }
}

async fn attempt(world: &World, job: &Job<'_>) -> Result<Refreshed> {
    let began = world.clock.now();
    let loaded = Loaded::read(world, job).await?;
    if !loaded.is_due(job) {
        return Ok(Refreshed::Idle);
    }
    let origin = lag::origin(&*world.state, &loaded.inputs).await?;
    let (message, assertion) = match make::make(world, job, &loaded).await {
        Ok(made) => {
            match commit::commit(world, job, &loaded, made, Times { began, origin }).await {
                Err(error) if error.kind == Kind::TooLarge => (error.chain(), false),
                ended => return ended,
            }
        }
        Err(Stopped::Conflict) => return Ok(Refreshed::Conflict),
        Err(Stopped::World(error)) => return Err(error),
        Err(Stopped::Failed(error)) => match job.awaits(&loaded)? {
            Some(table) => return Ok(awaits(table)),
            None => (error.chain(), false),
        },
        Err(Stopped::Assertion(message) | Stopped::BadRows { message, .. }) => (message, true),
    };
    if !commit::fail(world, job, loaded, &message).await? {
        return Ok(Refreshed::Conflict);
    }
    Ok(match assertion {
        true => Refreshed::AssertionFailed { message },
        false => Refreshed::Error { message },
    })
}
