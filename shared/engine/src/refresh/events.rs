//! Models of change events: how their rows are applied, where their tombstones are, and what becomes of events that have
//! no sequence.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray},
    json::writer::{LineDelimited, WriterBuilder},
};
use domain::{
    Model, Position, SEQUENCE, SEQUENCE_ALIAS, TableName,
    items::{Collected, Head},
    model::Cdc,
};
use ports::{
    Error, Kind, Result,
    landing::Append,
    queue::Announcement,
    state::{Expect, Write},
    tables::{Deletes, Events, Staged, Tombstones},
};

use super::{
    commit::announce,
    job::{Job, Loaded, Reason, hash},
};
use crate::{World, ingest::QUARANTINE, load};

/// What the names of tables of tombstones end in.
pub(crate) const TOMBSTONES: &str = "__tombstones";

/// The table of a model's tombstones; none unless it takes in change events and its deletes are hard.
///
/// # Errors
/// `Invalid` for a model whose name is too long for it.
pub(crate) fn tombstones(model: &Model) -> Result<Option<TableName>> {
    let hard = model
        .config
        .cdc
        .as_ref()
        .is_some_and(|cdc| !cdc.soft_deletes);
    let name = |model: &TableName| {
        TableName::new(model.schema(), &format!("{}{TOMBSTONES}", model.name())).map_err(|error| {
            Error::new(Kind::Invalid, "name the tombstones of", model).because(error)
        })
    };
    hard.then(|| name(&model.name)).transpose()
}

/// The column that orders a model's events.
pub(crate) fn sequence(cdc: &Cdc) -> String {
    match cdc.seq.eq_ignore_ascii_case(SEQUENCE_ALIAS) {
        true => SEQUENCE.to_owned(),
        false => cdc.seq.clone(),
    }
}

/// How a model's events are applied.
///
/// # Errors
/// `Invalid` when another model has the name of its tombstones; `Corrupt` from the state store.
pub(super) fn apply(world: &World, job: &Job<'_>, loaded: &Loaded, cdc: &Cdc) -> Result<Events> {
    let known = collected(job, loaded)?;
    let deletes = match tombstones(job.model)? {
        Some(table) if world.project.models.contains_key(&table) => {
            return Err(
                Error::new(Kind::Invalid, "build model", &job.model.name).because(format!(
                    "its tombstones are kept in {table}, which is a model; rename that one"
                )),
            );
        }
        Some(tombstones) => Deletes::Hard {
            base: loaded
                .items
                .head(&tombstones)?
                .and_then(|head| head.snapshot),
            tombstones,
            collected: known.as_ref().and_then(|known| known.through.clone()),
        },
        None => Deletes::Soft,
    };
    let sequence = sequence(cdc);
    Ok(Events {
        key: job.model.config.unique_key.clone(),
        op: cdc.op.clone(),
        sequence,
        unavailable: world.live.unavailable_value.clone(),
        deletes,
        truncated: known.and_then(|known| known.truncated),
        rebuild: job.reason == Reason::Full && loaded.is_built(),
    })
}

/// What is known of the model's rows that are gone without a tombstone.
fn collected(job: &Job<'_>, loaded: &Loaded) -> Result<Option<Collected>> {
    loaded.items.get(&load::collected(&job.model.name))
}

/// What is known from now on of rows that are gone without a tombstone: a truncate, if there was one. A model that is built
/// from nothing has all its tombstones again.
///
/// # Errors
/// `Corrupt` from the state store.
pub(super) fn remember(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    (rebuilt, truncated): (bool, Option<&String>),
) -> Result<Option<Write>> {
    let known = collected(job, loaded)?;
    let key = load::collected(&job.model.name);
    let expect = loaded.items.expect(&key);
    let Some(truncated) = truncated else {
        let forgotten = known.filter(|_| rebuilt);
        return Ok(forgotten.map(|_| Write::Delete { key, expect }));
    };
    let before = known.filter(|_| !rebuilt).unwrap_or_else(|| Collected {
        at: world.clock.now(),
        ..Collected::default()
    });
    let note = Collected {
        truncated: Some(truncated.clone()),
        ..before
    };
    Ok(Some(Write::put(key, &note, expect)))
}

/// The writes that make staged tombstones the table everybody reads.
///
/// # Errors
/// `Corrupt` from the state store.
pub(super) fn bury(world: &World, loaded: &Loaded, staged: &Tombstones) -> Result<Vec<Write>> {
    let before = loaded.items.head(&staged.table)?;
    let commits = before.map_or(0, |head| head.position.commits) + 1;
    let head = Head {
        position: Position {
            sequence: commits,
            commits,
        },
        rows: staged.rows,
        rebuilt: 0,
        advanced_at: world.clock.now(),
        columns: Vec::new(),
        snapshot: Some(staged.snapshot.clone()),
    };
    let key = load::head(&staged.table);
    let expect = loaded.items.expect(&key);
    let listing = load::listing(&staged.table);
    let listed = (commits == 1).then(|| Write::put(listing, &serde_json::json!({}), Expect::Any));
    Ok([Write::put(key, &head, expect)]
        .into_iter()
        .chain(listed)
        .collect())
}

/// Keeps events without a sequence, and those that may be older than a tombstone that is gone, in `quarantine.<model>`,
/// before the commit that leaves them out (**Q-1**); how many.
///
/// An attempt that is repeated with the same events keeps them once. One that is repeated with more of them, after a
/// crash or a lost race, may keep some twice: rather twice than never.
///
/// # Errors
/// What the landing tables answer, and `Invalid` for events that have no form in JSON.
pub(super) async fn quarantine(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    staged: &Staged,
) -> Result<u64> {
    let column = job.model.config.cdc.as_ref().map_or("", |cdc| &cdc.seq);
    let model = &job.model.name;
    let unordered = format!(
        "change event of {model} without a sequence: column `{column}` is NULL, or neither a number nor a timestamp"
    );
    let late = format!(
        "late_after_gc: change event of {model} that may be of a row deleted longer ago than \
         live.tombstone_retention; its tombstone is gone"
    );
    let count = set_aside(world, job, loaded, &staged.refused, &unordered).await?;
    Ok(count + set_aside(world, job, loaded, &staged.late, &late).await?)
}

/// Keeps events in `quarantine.<model>`; how many.
async fn set_aside(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    events: &[RecordBatch],
    reason: &str,
) -> Result<u64> {
    if events.iter().all(|batch| batch.num_rows() == 0) {
        return Ok(0);
    }
    let model = &job.model.name;
    let failed = |error| Error::new(Kind::Invalid, "quarantine events of", model).because(error);
    let mut text = Vec::new();
    for batch in events {
        let mut writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, LineDelimited>(&mut text);
        writer.write(batch).map_err(failed)?;
        writer.finish().map_err(failed)?;
    }
    let text = String::from_utf8_lossy(&text);
    let payloads: Vec<&str> = text.lines().collect();
    let mut key = format!("{model}");
    for input in &loaded.inputs {
        let (from, to) = (input.consumed.sequence, input.to.sequence);
        key.push_str(&format!(" {}:{from}-{to}", input.table));
    }
    key.push_str(&format!(" {:016x}", hash(text.bytes())));
    let table = TableName::new(QUARANTINE, model.name())
        .map_err(|error| Error::new(Kind::Invalid, "quarantine events of", model).because(error))?;
    let now = world.clock.now();
    let append = Append {
        table: table.clone(),
        rows: rows(world, model, &payloads, reason).map_err(failed)?,
        origin_at: now,
        key: Some(key),
    };
    let stored = world.landing.append(append).await?;
    let count = payloads.len() as u64;
    tracing::warn!(%model, events = count, %table, reason, "change events were quarantined");
    let position = stored.position;
    announce(world, Announcement { table, position }).await;
    Ok(count)
}

/// Rows of the quarantine, in the columns that webhooks use.
fn rows(
    world: &World,
    model: &TableName,
    payloads: &[&str],
    reason: &str,
) -> Result<RecordBatch, arrow::error::ArrowError> {
    let now = world.clock.now();
    let base = world.chance.id(now);
    let ids = (0..payloads.len()).map(|index| format!("{base}-{index:08}"));
    let reasons = std::iter::repeat_n(reason, payloads.len());
    let models = std::iter::repeat_n(model.to_string(), payloads.len());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(StringArray::from_iter_values(ids))),
        (
            "received_at",
            Arc::new(TimestampMicrosecondArray::from_value(now.0, payloads.len())),
        ),
        ("payload", Arc::new(StringArray::from_iter_values(payloads))),
        ("reason", Arc::new(StringArray::from_iter_values(reasons))),
        ("model", Arc::new(StringArray::from_iter_values(models))),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
}
