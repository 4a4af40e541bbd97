//! The change feeds a build reads: of what, since when, and what to do when nobody can tell any more.

use std::{collections::BTreeMap, sync::Arc};

use domain::{Materialized, Project, TableName, sql};
use ports::{
    Result,
    feed::{Between, Changes, Feed, Since},
};

use super::job::{Input, Job, Loaded, Reason};
use crate::{World, pins};

/// Feeds by the names they go by in the text.
pub(crate) type Feeds = BTreeMap<TableName, Arc<Feed>>;

/// Reads the feeds that a text names, from what the model has consumed to what this build consumes. A model that is
/// built from nothing sees every row as an insert. None: what it consumed cannot be told any more, or never was, so that
/// only a build from nothing is right.
///
/// # Errors
/// What the lake answers; `NotFound` for an input that has not been built.
pub(crate) async fn read(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    text: &str,
) -> Result<Option<Feeds>> {
    let mut feeds = Feeds::new();
    for name in pins::tables(&job.model.file, text)? {
        let of = sql::fed_by(&name);
        let Some(input) = loaded
            .inputs
            .iter()
            .find(|input| Some(&input.table) == of.as_ref())
        else {
            continue;
        };
        match self::of(world, job, loaded, input).await? {
            Ok(feed) => drop(feeds.insert(name, Arc::new(feed))),
            Err(why) => {
                tracing::info!(
                    model = %job.model.name,
                    input = %input.table,
                    ?why,
                    "rebuilt: the change feed cannot be told"
                );
                return Ok(None);
            }
        }
    }
    Ok(Some(feeds))
}

/// Why there is no feed of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Which snapshot was consumed is not known.
    Unknown,
    /// The lake cannot tell it.
    Feed(ports::feed::Lost),
}

/// The feed of one input, from what the model has consumed to what this build consumes.
///
/// # Errors
/// As [`read`].
pub(crate) async fn of(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    input: &Input,
) -> Result<Result<Feed, Lost>> {
    let Some(since) = since(job, loaded, input) else {
        return Ok(Err(Lost::Unknown));
    };
    let head = loaded.items.head(&input.table)?;
    let limit = Some(input.to.sequence);
    let between = Between {
        since,
        to: pins::pin(&world.project, &input.table, head.as_ref(), limit)?,
        key: key(&world.project, &input.table),
    };
    Ok(match world.tables.changes(&between).await? {
        Changes::Told(feed) => Ok(feed),
        Changes::Lost(why) => Err(Lost::Feed(why)),
    })
}

/// Where the feed of an input begins for this build.
fn since(job: &Job<'_>, loaded: &Loaded, input: &Input) -> Option<Since> {
    // What is not there, or is to be replaced, has seen nothing.
    if job.reason == Reason::Full || !loaded.is_built() {
        return Some(Since::Beginning);
    }
    match (input.landing, &input.from) {
        (true, _) => Some(Since::Sequence(input.consumed.sequence)),
        (false, from) => from.clone().map(Since::Snapshot),
    }
}

/// What tells the rows of a table apart.
fn key(project: &Project, table: &TableName) -> Vec<String> {
    match project.models.get(table) {
        Some(model) if model.config.materialized == Materialized::Incremental => {
            model.config.unique_key.clone()
        }
        Some(_) | None => Vec::new(),
    }
}
