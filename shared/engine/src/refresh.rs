//! One refresh: pin, query, stage, check, commit.

mod alert;
mod asserts;
pub(crate) mod auto;
pub(crate) mod bad_rows;
pub(crate) mod checks;
pub(crate) mod commit;
pub(crate) mod events;
mod feeds;
mod history;
pub(crate) mod job;
pub(crate) mod lag;
pub(crate) mod make;

use std::collections::BTreeMap;

use domain::{Model, Position, TableName, Timestamp, name::nearest};
use ports::{Error, Kind, Result, state::Key};
use serde::Serialize;

pub(crate) use self::commit::Why;
use self::{
    commit::Times,
    job::{Job, Loaded, Reason},
    make::Stopped,
};
use crate::{World, load::Items};

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
        /// Why a model that replaces the rows of affected keys when it can computed all of them anew.
        #[serde(skip_serializing_if = "Option::is_none")]
        recomputed: Option<String>,
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
    let model = find(world, model)?;
    build(world, model, Some(targets), Reason::Live).await
}

/// Keys of all that a refresh of a model decides from: for whoever has something else to read in the same request. None
/// when no model has this name.
pub(crate) fn keys(world: &World, model: &TableName) -> Vec<Key> {
    let job = |model| Job::new(&world.project, model, None, Reason::Live);
    let model = world.project.models.get(model);
    model.map_or_else(Vec::new, |model| job(model).keys())
}

/// As [`refresh`], from items that were read already, those of [`keys`] among them.
///
/// # Errors
/// As [`refresh`].
pub(crate) async fn refresh_from(
    world: &World,
    model: &TableName,
    targets: &BTreeMap<TableName, Position>,
    items: Items,
) -> Result<Refreshed> {
    let began = world.clock.now();
    let model = find(world, model)?;
    let job = Job::new(&world.project, model, Some(targets), Reason::Live);
    let loaded = Loaded::of(&job, items)?;
    match attempt(world, &job, loaded, began).await? {
        Refreshed::Conflict => build(world, model, Some(targets), Reason::Live).await,
        ended => Ok(ended),
    }
}

/// Records that attempts on a model came to no end of their own, as one that failed: it is backed off from, and people are told.
///
/// # Errors
/// As [`refresh`].
pub(crate) async fn give_up(
    world: &World,
    model: &TableName,
    targets: &BTreeMap<TableName, Position>,
    why: Why<'_>,
) -> Result<Refreshed> {
    let model = find(world, model)?;
    let job = Job::new(&world.project, model, Some(targets), Reason::Live);
    let loaded = Loaded::read(world, &job).await?;
    if !loaded.is_due(&job) {
        return Ok(Refreshed::Idle);
    }
    Ok(match commit::fail(world, &job, loaded, why).await? {
        true => Refreshed::Error {
            message: why.message.to_owned(),
        },
        false => Refreshed::Conflict,
    })
}

fn find<'a>(world: &'a World, model: &TableName) -> Result<&'a Model> {
    let found = world.project.models.get(model);
    found.ok_or_else(|| unknown(world, model))
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
    let names: Vec<_> = world
        .project
        .models
        .keys()
        .map(ToString::to_string)
        .collect();
    let near = nearest(&name.to_string(), names.iter().map(String::as_str));
    match near {
        _ if name.is_landing() => {
            error.because("it is a landing table: models read it, and it is fed by events")
        }
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
    match look(world, &job).await? {
        Refreshed::Conflict => look(world, &job).await,
        ended => Ok(ended),
    }
}

async fn look(world: &World, job: &Job<'_>) -> Result<Refreshed> {
    let began = world.clock.now();
    let loaded = Loaded::read(world, job).await?;
    attempt(world, job, loaded, began).await
}

async fn attempt(
    world: &World,
    job: &Job<'_>,
    loaded: Loaded,
    began: Timestamp,
) -> Result<Refreshed> {
    if !loaded.is_due(job) {
        return Ok(Refreshed::Idle);
    }
    let (message, assertion) = match make::make(world, job, &loaded).await {
        Ok(made) => {
            // Asked only now: what has just been read of a landing table is known without a question.
            let origin = lag::origin(world, &loaded.inputs).await?;
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
    if !commit::fail(world, job, loaded, Why::said(&message)).await? {
        return Ok(Refreshed::Conflict);
    }
    Ok(match assertion {
        true => Refreshed::AssertionFailed { message },
        false => Refreshed::Error { message },
    })
}
