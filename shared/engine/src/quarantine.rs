//! Rows in quarantine: listed, looked at, put through their model again, or dropped.
//!
//! A model's quarantine is a list of rows of its input, by their sequence in it; that is also how a caller names them. The
//! rows themselves are in `quarantine.<model>`, which keeps for ever what was ever put there.

mod asked;
mod replay;

use std::collections::BTreeSet;

use arrow::array::AsArray;
use domain::{
    Model, TableName,
    items::{self, BadRow, Head, ModelState, Quarantine},
};
use futures::TryStreamExt;
use ports::{
    Error, Kind, Result,
    query::{Parameter, Statement},
    state::{Span, Write, query_all},
};
use serde::Serialize;

use crate::{
    World,
    ingest::QUARANTINE,
    load::{self, Items},
    read,
    refresh::{
        bad_rows::ROWS_MAX,
        job::{Job, Reason},
        unknown,
    },
};

pub use asked::{Asked, Told, ask, carry_out};
pub use replay::{Replayed, replay};

/// Attempts to change a list that others change too.
const ATTEMPTS_MAX: u32 = 4;
/// Most sequences of dropped rows that a model remembers.
const DROPPED_MAX: usize = 10_000;
/// Tables listed by one request.
const PAGE: usize = 1_000;

/// What is in quarantine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// Rows that stay out of their models, by model.
    pub models: Vec<Held>,
    /// Tables of all that was ever quarantined: events that did not fit their source, events without a sequence, bad rows.
    pub tables: Vec<Kept>,
}

/// Rows that stay out of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The model.
    pub model: TableName,
    /// The rows, in order of their sequence.
    pub rows: Vec<Row>,
    /// The replay that another process was asked for last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Asked>,
}

/// A row in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// How it is named: its sequence in the input.
    pub id: u64,
    /// The input.
    pub input: TableName,
    /// When it broke the model, RFC 3339.
    pub at: String,
    /// How.
    pub reason: String,
    /// The row as JSON, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
}

/// A table of quarantined rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The table: a query reads it.
    pub table: TableName,
    /// Its rows.
    pub rows: u64,
}

/// What was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The model.
    pub model: TableName,
    /// Rows that are listed no more.
    pub dropped: u64,
    /// Rows that still are.
    pub left: u64,
}

impl From<&BadRow> for Row {
    fn from(row: &BadRow) -> Self {
        Self {
            id: row.sequence,
            input: row.input.clone(),
            at: row.at.to_string(),
            reason: row.reason.clone(),
            row: None,
        }
    }
}

/// What is in quarantine, of one model or of all.
///
/// # Errors
/// `NotFound` for a name that is no model; what the state store answers.
pub async fn list(world: &World, model: Option<&TableName>) -> Result<Listing> {
    let models: Vec<&Model> = match model {
        Some(name) => vec![find(world, name)?],
        None => world.project.models.values().collect(),
    };
    let keys = models.iter().map(|model| load::quarantine(&model.name));
    let items = Items::load(&*world.state, keys).await?;
    let mut held = Vec::new();
    for name in models.iter().map(|model| &model.name) {
        let list: Quarantine = items.get(&load::quarantine(name))?.unwrap_or_default();
        if model.is_some() || !list.rows.is_empty() {
            held.push(Held {
                model: name.clone(),
                rows: list.rows.iter().map(Row::from).collect(),
                replay: None,
            });
        }
    }
    asked::fill_in(world, &mut held).await?;
    let mut tables = tables(world).await?;
    if let Some(model) = model {
        tables.retain(|kept| kept.table.name() == model.name());
    }
    Ok(Listing {
        models: held,
        tables,
    })
}

/// Every table of quarantined rows.
async fn tables(world: &World) -> Result<Vec<Kept>> {
    let span = Span::prefix(items::TABLES, &format!("{QUARANTINE}."), PAGE);
    let listed = query_all(&*world.state, span).await?;
    let names: Vec<TableName> = listed
        .iter()
        .filter_map(|item| item.key.sort.parse().ok())
        .collect();
    let heads = Items::load(&*world.state, names.iter().map(load::head)).await?;
    let kept = |table: TableName| {
        let head: Option<Head> = heads.head(&table)?;
        let rows = head.map_or(0, |head| head.rows);
        Ok(Kept { table, rows })
    };
    names.into_iter().map(kept).collect()
}

/// A row in quarantine, with the row itself.
///
/// # Errors
/// `NotFound` for a row that is not there; what the ports answer.
pub async fn show(world: &World, model: &TableName, id: u64) -> Result<Row> {
    let items = Items::load(&*world.state, [load::quarantine(&find(world, model)?.name)]).await?;
    let list: Quarantine = items.get(&load::quarantine(model))?.unwrap_or_default();
    let found = list.rows.iter().find(|row| row.sequence == id);
    let mut row = Row::from(found.ok_or_else(|| absent(model, id))?);
    let table = TableName::new(QUARANTINE, model.name())
        .map_err(|error| Error::new(Kind::Invalid, "show quarantine of", model).because(error))?;
    let mut statement = Statement::new(format!(
        "SELECT payload FROM {table} WHERE model = $1 AND sequence = $2 ORDER BY _seq DESC LIMIT 1"
    ));
    let number = i64::try_from(id).unwrap_or(i64::MAX);
    statement.parameters = vec![
        Parameter::Text(model.to_string()),
        Parameter::Integer(number),
    ];
    let batches: Vec<_> = read::query(world, &statement)
        .await?
        .stream
        .try_collect()
        .await?;
    let batch = batches.iter().find(|batch| batch.num_rows() > 0);
    row.row = batch.and_then(|batch| {
        let text = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8).ok()?;
        text.as_string_opt::<i32>()
            .map(|text| text.value(0).to_owned())
    });
    Ok(row)
}

/// Drops rows for good: no refresh and no build from nothing reads them again, and they are listed no more. Without `ids` all of
/// them. The rows stay in the input, and in `quarantine.<model>`; a replay that names one takes it back.
///
/// # Errors
/// `NotFound` for a row that is not there; what the state store answers.
pub async fn drop_rows(world: &World, model: &TableName, ids: Option<&[u64]>) -> Result<Dropped> {
    let model = find(world, model)?;
    let (reads, model) = (inputs(world, model), &model.name);
    for _ in 0..ATTEMPTS_MAX {
        let (items, mut list) = listed(world, model).await?;
        let chosen = chosen(model, &list, ids)?;
        let dropped = chosen.len() as u64;
        let is_chosen = |row: &BadRow| chosen.contains(&row.sequence);
        // A model that has been given another input lists rows of both. Those of the one before no build reads any more.
        let is_read = |row: &&BadRow| reads.contains(&row.input);
        let of = list.rows.iter().filter(|row| is_chosen(row)).find(is_read);
        if let Some(input) = of.map(|row| row.input.clone()) {
            if !list.drops_of(&input) {
                list.dropped.clear();
            }
            let rows = list.rows.iter().filter(|row| row.input == input);
            let rows = rows.filter(|row| is_chosen(row)).map(|row| row.sequence);
            list.dropped.extend(rows);
            list.dropped_of = Some(input);
        }
        list.rows.retain(|row| !is_chosen(row));
        if list.dropped.len() > DROPPED_MAX {
            let why = format!(
                "it would remember more than {DROPPED_MAX} dropped rows: leave such rows out by a condition in the model, then \
                 `headwater run {model} --full`"
            );
            return Err(Error::new(Kind::TooLarge, "drop rows of", model).because(why));
        }
        if is_kept(world, model, &items, &list).await? {
            return Ok(Dropped {
                model: model.clone(),
                dropped,
                left: list.rows.len() as u64,
            });
        }
    }
    Err(Error::new(Kind::Conflict, "drop rows of", model).because("it changes all the time"))
}

/// Puts those of the rows that were dropped among the others in quarantine again, the first of them for as long as there is room.
/// Answers those that stay dropped.
///
/// # Errors
/// `TooLarge` when there is room for none; what the state store answers.
async fn take_back(world: &World, model: &Model, ids: &[u64]) -> Result<Vec<u64>> {
    let (reads, model) = (inputs(world, model), &model.name);
    for _ in 0..ATTEMPTS_MAX {
        let (items, mut list) = listed(world, model).await?;
        let is_read = |input: &TableName| reads.contains(input);
        let Some(input) = list.dropped_of.clone().filter(is_read) else {
            return Ok(Vec::new());
        };
        let named: BTreeSet<u64> = ids.iter().copied().collect();
        let (mut back, mut dropped): (Vec<u64>, Vec<u64>) =
            list.dropped.iter().partition(|row| named.contains(*row));
        if back.is_empty() {
            return Ok(Vec::new());
        }
        // What names a row that is not there changes nothing.
        let there: BTreeSet<u64> = list.rows.iter().map(|row| row.sequence).collect();
        let there: BTreeSet<u64> = there.into_iter().chain(back.iter().copied()).collect();
        if let Some(missing) = named.difference(&there).next() {
            return Err(absent(model, *missing));
        }
        back.sort_unstable();
        let room = ROWS_MAX.saturating_sub(list.rows.len());
        let stay = back.split_off(room.min(back.len()));
        if back.is_empty() {
            let why = format!(
                "{} rows are in it, and it holds at most {ROWS_MAX}: replay or drop those first",
                list.rows.len()
            );
            return Err(
                Error::new(Kind::TooLarge, "take rows back into quarantine of", model).because(why),
            );
        }
        dropped.extend(&stay);
        list.dropped = dropped;
        let at = world.clock.now();
        list.rows.extend(back.into_iter().map(|sequence| BadRow {
            input: input.clone(),
            sequence,
            at,
            reason: String::from("it had been dropped"),
        }));
        list.rows.sort_by_key(|row| row.sequence);
        if is_kept(world, model, &items, &list).await? {
            return Ok(stay);
        }
    }
    Err(Error::new(Kind::Conflict, "take rows back of", model).because("it changes all the time"))
}

/// What a build of a model reads, be it live or not.
fn inputs(world: &World, model: &Model) -> Vec<TableName> {
    Job::new(&world.project, model, None, Reason::Batch).inputs
}

/// A model's list, and the items that it is changed with.
async fn listed(world: &World, model: &TableName) -> Result<(Items, Quarantine)> {
    let keys = [load::quarantine(model), load::state(model)];
    let items = Items::load(&*world.state, keys).await?;
    let list = items.get(&load::quarantine(model))?.unwrap_or_default();
    Ok((items, list))
}

/// Keeps a list, and its length in the model's state, unless somebody changed either since it was read.
async fn is_kept(
    world: &World,
    model: &TableName,
    items: &Items,
    list: &Quarantine,
) -> Result<bool> {
    let (list_key, state_key) = (load::quarantine(model), load::state(model));
    let state = ModelState {
        quarantined: list.rows.len() as u64,
        ..items.state(model)?
    };
    let expect = [&list_key, &state_key].map(|key| items.expect(key));
    let [list_is, state_is] = expect;
    let writes = vec![
        Write::put(list_key, list, list_is),
        Write::put(state_key, &state, state_is),
    ];
    Ok(world.state.transact(writes).await?.is_committed())
}

/// The rows that are meant: those named, or all.
fn chosen(model: &TableName, list: &Quarantine, ids: Option<&[u64]>) -> Result<BTreeSet<u64>> {
    let all: BTreeSet<u64> = list.rows.iter().map(|row| row.sequence).collect();
    let Some(ids) = ids else {
        return Ok(all);
    };
    match ids.iter().find(|id| !all.contains(id)) {
        Some(missing) => Err(absent(model, *missing)),
        None => Ok(ids.iter().copied().collect()),
    }
}

fn absent(model: &TableName, id: u64) -> Error {
    Error::new(Kind::NotFound, "find quarantined row", id).because(format!(
        "there is no such row; `headwater quarantine list {model}` shows them"
    ))
}

/// A model that may have rows in quarantine.
fn find<'a>(world: &'a World, name: &TableName) -> Result<&'a Model> {
    let model = world.project.models.get(name);
    model.ok_or_else(|| unknown(world, name))
}
