//! From what was loaded to staged rows: text, pins, query, stage, assertions.

use std::collections::BTreeMap;

use arrow::datatypes::{Schema, SchemaRef};
use domain::{
    Materialized, Model, OnSchemaChange, SEQUENCE, Strategy, TableName,
    sql::{self, Bindings, Placeholder},
};
use ports::{
    Error, Kind, Result,
    query::{Catalog, FOREIGN, Limits, RowOrder, Statement},
    state::Write,
    tables::{Apply, Change, Pin, Rows, Staged},
};

use super::{
    asserts::check,
    auto::{self, Part},
    bad_rows::{self, Out},
    events,
    feeds::{self, Feeds},
    job::{Job, Loaded, Reason, is_edited, is_live},
};
use crate::{
    World,
    pins::{self, Reads},
};

/// Staged rows that passed, and what the assertions of severity warn said.
#[derive(Debug)]
pub(crate) struct Made {
    /// The rows.
    pub(crate) staged: Staged,
    /// Warnings; none when nothing was checked.
    pub(crate) warnings: Option<Vec<String>>,
    /// Change events that could not be applied.
    pub(crate) quarantined: u64,
    /// Whether the rows replace all there were.
    pub(crate) rebuilt: bool,
    /// Why all rows were computed anew, by a model that replaces those of affected keys when it can.
    pub(crate) recomputed: Option<String>,
    /// Whether rows have sequences that readers are past: these are built anew.
    pub(crate) late: bool,
    /// Rows in quarantine from now on, when that changes.
    pub(crate) held: Option<u64>,
    /// What else moves with the rows.
    pub(crate) writes: Vec<Write>,
}

/// Why nothing was made.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// Somebody else committed the model meanwhile.
    Conflict,
    /// The world failed, not the model.
    World(Error),
    /// The model failed.
    Failed(Error),
    /// An error-severity assertion failed.
    Assertion(String),
    /// The same, and these rows of the input are why.
    BadRows {
        /// Each with how it breaks the model.
        rows: BTreeMap<u64, String>,
        /// What an assertion says.
        message: String,
    },
}

/// Runs the query and stages its rows, without those that break it when the model says so.
pub(crate) async fn make(world: &World, job: &Job<'_>, loaded: &Loaded) -> Result<Made, Stopped> {
    let out = Out::of(job, loaded).map_err(Stopped::World)?;
    let (mut made, out) = bad_rows::make(world, job, loaded, out).await?;
    bad_rows::keep(world, job, loaded, &mut made, &out)
        .await
        .map_err(Stopped::from)?;
    Ok(made)
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        match error.kind {
            Kind::Conflict => Self::Conflict,
            Kind::Unavailable | Kind::Corrupt => Self::World(error),
            Kind::Invalid | Kind::NotFound | Kind::TooLarge => Self::Failed(error),
        }
    }
}

/// One attempt, without the rows that are left out.
pub(crate) async fn once(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    out: &Out,
) -> Result<Made, Stopped> {
    let began = world.clock.now();
    // A statement that ran out of its time is the model's fault; any other silence is the world's.
    let stopped = |error: Error| match error.kind {
        Kind::Conflict => Stopped::Conflict,
        Kind::Unavailable if world.clock.now().since(began) < Limits::default().time => {
            Stopped::World(error)
        }
        Kind::Unavailable | Kind::Invalid | Kind::NotFound | Kind::TooLarge | Kind::Corrupt => {
            Stopped::Failed(error)
        }
    };
    let whole = job.rebuilt();
    // What a rebuilt input's readers took from it is no part of it any more, and rows under another key are others.
    let job = match loaded.is_outdated() || loaded.is_reshaped(job.model) {
        true => &whole,
        false => job,
    };
    let (change, rebuilt, recomputed) = query(world, job, loaded, out).await.map_err(stopped)?;
    let mut staged = world.tables.stage(change).await.map_err(stopped)?;
    staged.changed |= !loaded.is_built();
    let warnings = match check(world, job, loaded, &staged).await.map_err(stopped)? {
        Err(Stopped::Assertion(message)) => {
            let bad = bad_rows::breaking(world, job, loaded, out, &staged).await;
            return Err(match bad.map_err(stopped)? {
                Some(rows) => Stopped::BadRows { rows, message },
                None => Stopped::Assertion(message),
            });
        }
        checked => checked?,
    };
    let quarantined = events::quarantine(world, job, loaded, &staged)
        .await
        .map_err(stopped)?;
    Ok(Made {
        staged,
        warnings,
        quarantined,
        rebuilt,
        recomputed,
        late: out.replay.is_some(),
        held: None,
        writes: Vec::new(),
    })
}

/// The change whose rows are the query's, whether they replace all there are, and why an auto model is computed anew.
pub(super) async fn query(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    out: &Out,
) -> Result<(Change, bool, Option<String>)> {
    let whole = job.rebuilt();
    let mut job = job;
    let mut ran = run(world, job, loaded, out).await?;
    let useless = match &ran {
        Some(ran) => retypes(world, job, loaded, &ran.rows.schema).await?,
        None => true,
    };
    if useless {
        job = &whole;
        ran = run(world, job, loaded, out).await?;
    }
    let Ran {
        rows,
        apply,
        recomputed,
    } = ran.ok_or_else(|| {
        Error::new(Kind::Corrupt, "build model", &job.model.name)
            .because("an input has no rows to begin from")
    })?;
    let restamps = is_live(job.model)
        && job.inputs.len() > 1
        && rows.schema.column_with_name(SEQUENCE).is_some();
    if is_foreign(job.model, job.inputs.len(), &rows.schema) {
        let told = FOREIGN_SEQUENCE;
        return Err(Error::new(Kind::Invalid, "build model", &job.model.name).because(told));
    }
    let watermark =
        |(table, to): (&TableName, u64)| (format!("headwater.watermark.{table}"), to.to_string());
    let change = Change {
        table: job.model.name.clone(),
        base: loaded.head.as_ref().and_then(|head| head.snapshot.clone()),
        pointers: job.pointers(loaded),
        apply,
        on_schema_change: policy(job, loaded),
        rows,
        restamp_from: restamps.then(|| loaded.published().sequence + 1),
        properties: loaded
            .inputs
            .iter()
            .map(|i| (&i.table, i.to.sequence))
            .map(watermark)
            .collect(),
    };
    // Rows of another definition are others, whoever reads them.
    let rebuilt = is_anew(job, loaded);
    Ok((change, rebuilt, recomputed))
}

/// Whether a build reads all rows again, whatever was made of them before.
pub(super) fn is_anew(job: &Job<'_>, loaded: &Loaded) -> bool {
    job.reason == Reason::Full || is_edited_auto(job, loaded)
}

/// Whether a model of which no row may stay as it was is another one than was built.
fn is_edited_auto(job: &Job<'_>, loaded: &Loaded) -> bool {
    job.model.is_auto() && loaded.is_built() && is_edited(&loaded.state, &job.digest)
}

/// What happens to columns that are not the table's. Those of an edited auto model are the new definition's, as all of its
/// rows are, unless the model says otherwise.
fn policy(job: &Job<'_>, loaded: &Loaded) -> OnSchemaChange {
    match job.model.config.on_schema_change {
        OnSchemaChange::AppendNewColumns if is_edited_auto(job, loaded) => {
            OnSchemaChange::SyncAllColumns
        }
        said => said,
    }
}

/// What a query gave.
struct Ran {
    rows: Rows,
    /// How they meet the table's.
    apply: Apply,
    /// Why an auto model is computed anew.
    recomputed: Option<String>,
}

/// The query's rows; none when a feed that it reads begins at a snapshot that is gone.
async fn run(world: &World, job: &Job<'_>, loaded: &Loaded, out: &Out) -> Result<Option<Ran>> {
    let text = text(job, loaded, out.replay.is_some())?;
    let feeds = match feeds::read(world, job, loaded, &text).await? {
        Some(feeds) => feeds,
        None if job.reason == Reason::Full => Feeds::default(),
        None => return Ok(None),
    };
    let mut catalog = catalog(job, world, loaded, &text, feeds)?;
    let mut watermarks = watermarks(job.model, &marks(job, loaded, out.replay.is_some()));
    out.restrict(world, &mut catalog, &mut watermarks, is_anew(job, loaded))
        .await?;
    let mut recomputed = None;
    let mut apply = apply(world, job, loaded)?;
    if job.model.is_auto() && job.reason != Reason::Full && loaded.is_built() {
        let part = match is_edited_auto(job, loaded) {
            true => Part::anew("its definition changed"),
            false => auto::part(world, job, loaded, &text, &catalog).await?,
        };
        match part {
            Part::Keys { key, keys, rows } => {
                return Ok(Some(Ran {
                    rows,
                    apply: Apply::Replace { key, keys },
                    recomputed: None,
                }));
            }
            Part::Whole(why) => {
                tracing::info!(model = %job.model.name, why, "computed anew");
                (apply, recomputed) = (Apply::ReplaceAll, Some(why));
            }
        }
    }
    let statement = Statement {
        order: order(job.model, job.inputs.len()),
        watermarks,
        ..Statement::new(text)
    };
    let rows = world.query.run(&statement, &catalog).await?;
    Ok(Some(Ran {
        rows,
        apply,
        recomputed,
    }))
}

/// Whether a column has another type now, which the rows there are could not keep their values in.
async fn retypes(world: &World, job: &Job<'_>, loaded: &Loaded, rows: &SchemaRef) -> Result<bool> {
    let snapshot = loaded.head.as_ref().and_then(|head| head.snapshot.clone());
    let (Some(snapshot), OnSchemaChange::SyncAllColumns, true) =
        (snapshot, policy(job, loaded), job.reason != Reason::Full)
    else {
        return Ok(false);
    };
    let table = job.model.name.clone();
    let pin = Pin::Model { table, snapshot };
    world.tables.retypes(&pin, rows).await
}

/// The text to run.
fn text(job: &Job<'_>, loaded: &Loaded, replay: bool) -> Result<String> {
    let model = job.model;
    let fresh = job.reason == Reason::Full;
    let watermarks = marks(job, loaded, replay);
    let watermark = match loaded.inputs.as_slice() {
        [only] => watermarks.get(&only.table).copied(),
        _ => None,
    };
    let changes = match loaded.inputs.as_slice() {
        [only] => Some(&only.table),
        _ => None,
    };
    let bindings = Bindings {
        this: &model.name,
        watermark,
        watermarks,
        changes,
    };
    let filtered = is_filtered(model, loaded.is_built() && !fresh);
    let text = sql::text(model, &bindings, filtered)
        .map_err(|error| pins::unreadable(&model.file, error))?;
    Ok(match replay && is_merge(model) {
        true => bad_rows::unless_newer(&text, &model.name, &model.config.unique_key),
        false => text,
    })
}

/// Up to where each input has been read.
fn marks(job: &Job<'_>, loaded: &Loaded, replay: bool) -> BTreeMap<TableName, u64> {
    let anew = job.reason == Reason::Full || replay;
    let marks = loaded.inputs.iter().map(|input| {
        let sequence = if anew { 0 } else { input.consumed.sequence };
        (input.table.clone(), sequence)
    });
    marks.collect()
}

/// The inputs of a live model whose rows it reads from where it was, with that where they are asked for by it.
pub(crate) fn watermarks(
    model: &Model,
    marks: &BTreeMap<TableName, u64>,
) -> Option<BTreeMap<TableName, Option<u64>>> {
    let filter = model.config.filter.as_deref().filter(|_| !model.is_auto());
    let texts = [Some(model.sql.as_str()), filter];
    // A text that cannot be read has failed before: it is substituted first.
    let placeholders = texts.into_iter().flatten().map(sql::placeholders);
    let only = marks.keys().next().filter(|_| marks.len() == 1);
    let mut watermarks = BTreeMap::new();
    for placeholder in placeholders.flatten().flatten() {
        let (table, is_marked) = match &placeholder {
            Placeholder::Watermark => (only, true),
            Placeholder::WatermarkOf(table) => (Some(table), true),
            Placeholder::Changes => (only, false),
            Placeholder::ChangesOf(table) => (Some(table), false),
            Placeholder::This => continue,
        };
        let Some(table) = table.cloned() else {
            continue;
        };
        let mark = marks.get(&table).copied().filter(|_| is_marked);
        let known = watermarks.entry(table).or_insert(mark);
        *known = known.or(mark);
    }
    is_live(model).then_some(watermarks)
}

/// Whether the filter applies: always to a live model, whose watermark is 0 at first; to another one only when there
/// is a table. A filter that reads the table itself waits until there is one.
fn is_filtered(model: &Model, built: bool) -> bool {
    let filter = match (&model.config.filter, model.config.materialized) {
        (Some(filter), Materialized::Incremental) if !model.is_auto() => filter,
        _ => return false,
    };
    let reads_itself = || {
        sql::placeholders(filter)
            .is_ok_and(|found| found.iter().any(|p| matches!(p, Placeholder::This)))
    };
    built || is_live(model) && !reads_itself()
}

/// Whether the model keeps the last delivered row per key. Change events come with an order of their own.
pub(crate) fn is_merge(model: &Model) -> bool {
    model.config.strategy == Strategy::Merge
        && model.config.cdc.is_none()
        && model.config.materialized == Materialized::Incremental
        && !model.config.unique_key.is_empty()
}

/// The order in which the rows of a model with so many inputs are to come: files of a model are read at once, and of rows
/// of one key it counts which came last. Those of several inputs are numbered anew as they come.
pub(crate) fn order(model: &Model, inputs: usize) -> RowOrder {
    match &model.config.cdc {
        Some(_) => RowOrder::Sequence,
        None if is_live(model) && inputs > 1 => RowOrder::Known,
        None if is_merge(model) => RowOrder::Told,
        None => RowOrder::Any,
    }
}

/// Why a query is refused whose rows [`is_foreign`] are.
pub(crate) const FOREIGN_SEQUENCE: &str = "readers take `_seq` of a live model for the order in which its rows came: let it \
    be `_seq` of its input, or max(_seq) of a group, and give another name to anything else";

/// Whether readers of a live model would take something for its sequence that is none. Several inputs number rows anew.
pub(crate) fn is_foreign(model: &Model, inputs: usize, schema: &Schema) -> bool {
    is_live(model) && inputs <= 1 && schema.metadata().contains_key(FOREIGN)
}

/// How the rows meet the table's.
fn apply(world: &World, job: &Job<'_>, loaded: &Loaded) -> Result<Apply> {
    let config = &job.model.config;
    let key = || config.unique_key.clone();
    if let Some(cdc) = &config.cdc {
        return Ok(Apply::Events(Box::new(events::apply(
            world, job, loaded, cdc,
        )?)));
    }
    Ok(match (config.materialized, job.reason) {
        // Rows that replace all others meet none of their key but in the batch itself (**M-1**).
        (Materialized::Incremental, Reason::Full) if loaded.is_built() => Apply::Overwrite {
            key: if is_merge(job.model) {
                key()
            } else {
                Vec::new()
            },
        },
        (Materialized::Incremental, _) => match config.strategy {
            Strategy::Merge if config.unique_key.is_empty() => Apply::Append,
            Strategy::Merge => Apply::Merge { key: key() },
            Strategy::DeleteInsert => Apply::DeleteInsert { key: key() },
            Strategy::Append | Strategy::Auto => Apply::Append,
        },
        (Materialized::Table | Materialized::View | Materialized::Ephemeral, _) => {
            Apply::Overwrite { key: Vec::new() }
        }
    })
}

/// Pins all that the text reads, at the positions this build consumes (**C-1**).
fn catalog(
    job: &Job<'_>,
    world: &World,
    loaded: &Loaded,
    text: &str,
    feeds: Feeds,
) -> Result<Catalog> {
    let project = &world.project;
    let mut named = pins::tables(&job.model.file, text)?;
    named.retain(|name| !feeds.contains_key(name));
    let reads = Reads::of(project, named)?;
    let mut pinned = Vec::with_capacity(reads.tables.len());
    for table in &reads.tables {
        let input = loaded.inputs.iter().find(|input| input.table == *table);
        let head = loaded.items.head(table)?;
        if *table == job.model.name && head.is_none() {
            return Err(Error::new(Kind::Invalid, "build model", table).because(
                "its query reads {this}, and there is no table yet; read {this} in the incremental_filter, which \
                 waits for the table",
            ));
        }
        let limit = input.map(|input| input.to.sequence);
        pinned.push(pins::pin(project, table, head.as_ref(), limit)?);
    }
    Ok(Catalog {
        feeds,
        ..reads.catalog(pinned)
    })
}
