//! Batch runs: every model in order, with the bookkeeping of refreshes, so that whoever comes first applies the batch.

use std::collections::BTreeSet;

use domain::{Model, TableName};
use ports::{Kind, Result, query::Statement};

use crate::{
    World,
    cycle::{Observer, Report},
    load::{self, Items},
    pins::{self, Reads},
    refresh::{self, Refreshed, job::Reason},
};

/// Builds `only` (with all they read), or everything when empty. `full` builds from nothing: `only`, or everything. What those
/// read is brought up to date as ever, and what reads them follows them with its next build.
///
/// Pauses and backoffs are the runner's: a batch run was asked for. Tables and models that have nothing new to read are
/// left alone; views and ephemeral models are only checked.
///
/// # Errors
/// `NotFound` for a name that is no model; `Unavailable` or `Corrupt` from the ports.
pub async fn run(
    world: &World,
    only: &[TableName],
    full: bool,
    observer: &dyn Observer,
) -> Result<Report> {
    let chosen = chosen(world, only)?;
    let reason = |name: &TableName| match full && (only.is_empty() || only.contains(name)) {
        true => Reason::Full,
        false => Reason::Batch,
    };
    let mut report = Report::default();
    let mut failed: BTreeSet<TableName> = BTreeSet::new();
    for name in world
        .project
        .order
        .iter()
        .filter(|name| chosen.contains(*name))
    {
        let Some(model) = world.project.models.get(name) else {
            continue;
        };
        let how = match model.reads.iter().find(|read| failed.contains(*read)) {
            Some(cause) => Refreshed::Held {
                reason: format!("waiting on {cause}"),
            },
            None if pins::is_view(model) => checked(world, model).await?,
            None => {
                observer.started(name);
                let how = refresh::build(world, model, None, reason(name)).await?;
                observer.ended(name, &how);
                how
            }
        };
        match how {
            Refreshed::Built { .. } | Refreshed::Idle => {}
            Refreshed::Conflict
            | Refreshed::Error { .. }
            | Refreshed::AssertionFailed { .. }
            | Refreshed::Held { .. } => {
                failed.insert(name.clone());
            }
        }
        report.models.insert(name.clone(), how);
    }
    Ok(report)
}

/// The models to build: those named and all they read.
fn chosen(world: &World, only: &[TableName]) -> Result<BTreeSet<TableName>> {
    let models = &world.project.models;
    if only.is_empty() {
        return Ok(models.keys().cloned().collect());
    }
    let mut chosen = BTreeSet::new();
    let mut next = Vec::new();
    for name in only {
        let model = models
            .get(name)
            .ok_or_else(|| refresh::unknown(world, name))?;
        next.push(model);
    }
    while let Some(model) = next.pop() {
        if chosen.insert(model.name.clone()) {
            next.extend(model.reads.iter().filter_map(|read| models.get(read)));
        }
    }
    Ok(chosen)
}

/// A view is never built: its query is planned.
async fn checked(world: &World, model: &Model) -> Result<Refreshed> {
    let reads = match Reads::of(&world.project, [model.name.clone()]) {
        Ok(reads) => reads,
        Err(error) => {
            return Ok(Refreshed::Error {
                message: error.chain(),
            });
        }
    };
    let heads = Items::load(&*world.state, reads.tables.iter().map(load::head)).await?;
    let mut pinned = Vec::with_capacity(reads.tables.len());
    let mut awaited = None;
    for table in &reads.tables {
        let head = heads.head(table)?;
        if head.is_none() && table.is_landing() {
            awaited = Some(table.clone());
        }
        match pins::pin(&world.project, table, head.as_ref(), None) {
            Ok(pin) => pinned.push(pin),
            Err(error) => {
                return Ok(Refreshed::Error {
                    message: error.chain(),
                });
            }
        }
    }
    let statement = Statement::new(format!("SELECT * FROM {}", model.name));
    match world
        .query
        .describe(&statement, &reads.catalog(pinned))
        .await
    {
        Ok(_) => Ok(Refreshed::Idle),
        Err(error) if error.kind == Kind::Unavailable => Err(error),
        Err(error) => Ok(match awaited {
            Some(table) => refresh::awaits(&table),
            None => Refreshed::Error {
                message: error.chain(),
            },
        }),
    }
}
