//! `incremental_strategy=auto`: which keys the changes of the inputs touch, and the query run for just those (**M-3**).

mod ranges;
mod sums;

use std::{collections::BTreeMap, sync::Arc};

use arrow::{array::RecordBatch, datatypes::Schema};
use domain::{
    CHANGE, SEQUENCE, TableName,
    sql::{
        self,
        trace::{Trace, changed, prior, quoted},
    },
};
use futures::TryStreamExt;
use ports::{
    Error, Kind, Result,
    feed::{Feed, RowChange},
    query::{AFFECTED, Catalog, Limits, Statement},
    tables::Rows,
};

use super::{
    feeds::{self, Lost},
    job::{Job, Loaded, is_live},
};
use crate::World;

/// Above this many keys the whole query is cheaper, and safer in memory.
const KEYS_MAX: u64 = 200_000;

/// What a refresh recomputes.
#[derive(Debug)]
pub(crate) enum Part {
    /// The rows of some keys.
    Keys {
        /// Key columns.
        key: Vec<String>,
        /// The keys.
        keys: Vec<RecordBatch>,
        /// The query's rows of them.
        rows: Rows,
    },
    /// All rows, and a sentence that says why.
    Whole(String),
}

impl Part {
    /// All rows, for a reason of this refresh alone.
    pub(crate) fn anew(why: &str) -> Self {
        Self::Whole(format!("all rows were computed anew: {why}"))
    }
}

/// The part of a model that changes of its inputs touch. `catalog` pins all that its query `text` reads.
///
/// # Errors
/// What the lake and the query engine answer. That changes cannot be traced is no error.
pub(crate) async fn part(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    text: &str,
    catalog: &Catalog,
) -> Result<Part> {
    let trace = match world.project.traced(job.model) {
        Some(Ok(trace)) => trace,
        Some(Err(why)) => return Ok(Part::Whole(why.to_string())),
        None => return Ok(Part::anew("it is of another strategy")),
    };
    let renumbers = is_live(job.model) && job.inputs.len() > 1;
    if renumbers && trace.key.iter().any(|name| plain(name) == SEQUENCE) {
        return Ok(Part::anew(
            "its key holds the sequence, which is given anew",
        ));
    }
    let feeds = match changes(world, job, loaded, &trace).await? {
        Ok(feeds) => feeds,
        Err(why) => return Ok(Part::anew(&why)),
    };
    if let Some(part) = sums::part(world, job, loaded, &trace, &feeds, (text, catalog)).await? {
        return Ok(part);
    }
    let keys = match keys(world, &trace, text, catalog, &feeds).await? {
        Ok(keys) => keys,
        Err(why) => return Ok(Part::anew(&why)),
    };
    let rows = rows(world, &trace, text, catalog, &keys).await?;
    Ok(Part::Keys {
        key: trace.key.iter().map(|name| plain(name)).collect(),
        keys,
        rows,
    })
}

/// What changed in each input, of those in which anything did; or why nobody can tell.
async fn changes(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    trace: &Trace,
) -> Result<Result<BTreeMap<TableName, Arc<Feed>>, String>> {
    let mut all = BTreeMap::new();
    for (table, _) in &trace.keys {
        if all.contains_key(table) {
            continue;
        }
        let Some(input) = loaded.inputs.iter().find(|input| input.table == *table) else {
            return Ok(Err(format!("nobody tells what changed in `{table}`")));
        };
        if !input.is_behind() {
            continue;
        }
        match feeds::of(world, job, loaded, input).await? {
            Ok(feed) if feed.parts.is_empty() => {}
            Ok(feed) => drop(all.insert(table.clone(), Arc::new(feed))),
            Err(Lost::Unknown) => {
                return Ok(Err(format!(
                    "which rows of `{table}` it has seen is not known"
                )));
            }
            Err(Lost::Feed(why)) => {
                let why = match why {
                    ports::feed::Lost::Expired => "the snapshot it has seen has expired",
                    ports::feed::Lost::Columns => "a column of it went or is another one",
                };
                return Ok(Err(format!(
                    "what changed in `{table}` cannot be told: {why}"
                )));
            }
        }
    }
    Ok(Ok(all))
}

/// The keys that the changes touch; or why the whole query is to be run.
async fn keys(
    world: &World,
    trace: &Trace,
    text: &str,
    catalog: &Catalog,
    feeds: &BTreeMap<TableName, Arc<Feed>>,
) -> Result<Result<Vec<RecordBatch>, String>> {
    let statement = asking(trace, text, |of| feeds.contains_key(of));
    let mut catalog = catalog.clone();
    for (table, _) in &trace.keys {
        let Err(error) = add(&mut catalog, table, feeds.get(table)) else {
            continue;
        };
        return Ok(Err(error.chain()));
    }
    let statement = Statement {
        limits: Limits {
            rows: Some(KEYS_MAX),
            ..Limits::default()
        },
        ..Statement::new(statement)
    };
    match collect(world, &statement, &catalog).await {
        Ok(keys) if keys.iter().any(|keys| is_nested(&keys.schema())) => {
            Ok(Err(String::from(UNORDERED)))
        }
        Ok(keys) => Ok(Ok(keys)),
        Err(error) if error.kind == Kind::TooLarge => {
            Ok(Err(format!("the changes touch more than {KEYS_MAX} keys")))
        }
        // What cannot be planned is asked for in full: the result is the same.
        Err(error) if matches!(error.kind, Kind::Invalid | Kind::NotFound) => {
            tracing::warn!(
                error = error.chain(),
                "the keys of changes cannot be asked for"
            );
            Ok(Err(unaskable(&error)))
        }
        Err(error) => Err(error),
    }
}

/// The statement that asks for the keys that changes of some inputs touch.
fn asking(trace: &Trace, text: &str, of: impl Fn(&TableName) -> bool) -> String {
    let columns = trace.key.join(", ");
    // The types of the query's own columns, whatever the changes alone would have.
    let mut statement = format!(
        "SELECT DISTINCT {columns} FROM (\nSELECT {columns} FROM (\n{text}\n) AS _q WHERE FALSE"
    );
    for (_, query) in trace.keys.iter().filter(|(table, _)| of(table)) {
        statement.push_str(&format!("\nUNION ALL\n({query})"));
    }
    statement.push_str("\n) AS _k");
    statement
}

/// Why no refresh will be able to ask for the keys of changes, although they could be traced: the query names something
/// without its relation that only the columns of its tables tell apart. None when it can.
///
/// # Errors
/// What the query engine answers but that the statement cannot be planned.
pub(crate) async fn trouble(
    world: &World,
    trace: &Trace,
    text: &str,
    catalog: &Catalog,
) -> Result<Option<String>> {
    let mut catalog = catalog.clone();
    for (table, _) in &trace.keys {
        let own = format!("SELECT * FROM {}", quoted(table));
        let names = [changed(table), prior(table)].into_iter().flatten();
        catalog.views.extend(names.map(|name| (name, own.clone())));
    }
    let statement = Statement::new(asking(trace, text, |_| true));
    match world.query.describe(&statement, &catalog).await {
        Ok(schema) => Ok(is_nested(&schema).then(|| String::from(UNORDERED))),
        Err(error) if matches!(error.kind, Kind::Invalid | Kind::NotFound) => {
            Ok(Some(unaskable(&error)))
        }
        Err(error) => Err(error),
    }
}

const UNORDERED: &str = "a column of its key has no order";

fn unaskable(error: &Error) -> String {
    format!("its keys cannot be asked for: {}", error.chain())
}

fn is_nested(keys: &Schema) -> bool {
    let mut fields = keys.fields().iter();
    fields.any(|field| field.data_type().is_nested())
}

async fn collect(
    world: &World,
    statement: &Statement,
    catalog: &Catalog,
) -> Result<Vec<RecordBatch>> {
    let rows = world.query.run(statement, catalog).await?;
    let schema = rows.schema;
    let mut batches: Vec<RecordBatch> = rows.stream.try_collect().await?;
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    Ok(batches)
}

/// Puts the rows that a trace reads of an input into a catalog.
fn add(catalog: &mut Catalog, table: &TableName, feed: Option<&Arc<Feed>>) -> Result<()> {
    let long =
        || Error::new(Kind::Invalid, "read changes of", table).because("the name is too long");
    let names = (changed(table), prior(table), sql::feed(table));
    let (Some(changed), Some(prior), Some(name)) = names else {
        return Err(long());
    };
    let own = quoted(table);
    let Some(feed) = feed else {
        catalog.views.insert(prior, format!("SELECT * FROM {own}"));
        return Ok(());
    };
    let from = quoted(&name);
    let went = feed
        .parts
        .iter()
        .any(|(change, _)| matches!(change, RowChange::Delete | RowChange::UpdateBefore));
    let before = match went {
        true => format!(
            " UNION ALL SELECT * EXCLUDE ({CHANGE}) FROM {from} WHERE {CHANGE} IN ('{}', '{}')",
            RowChange::UpdateBefore.word(),
            RowChange::Delete.word()
        ),
        false => String::new(),
    };
    catalog
        .views
        .insert(prior, format!("SELECT * FROM {own}{before}"));
    catalog
        .views
        .insert(changed, format!("SELECT * EXCLUDE ({CHANGE}) FROM {from}"));
    catalog.feeds.insert(name, Arc::clone(feed));
    Ok(())
}

/// The query's rows of some keys.
async fn rows(
    world: &World,
    trace: &Trace,
    text: &str,
    catalog: &Catalog,
    keys: &[RecordBatch],
) -> Result<Rows> {
    let (mut conditions, parameters) = ranges::ranges(&trace.key, keys);
    conditions.push(match keys.iter().all(|batch| batch.num_rows() == 0) {
        true => String::from("FALSE"),
        false => format!("{AFFECTED}({})", trace.key.join(", ")),
    });
    let conditions = conditions.join(" AND ");
    let statement = Statement {
        parameters,
        ..Statement::new(format!(
            "SELECT * FROM (\n{text}\n) AS _q\nWHERE {conditions}"
        ))
    };
    let catalog = Catalog {
        affected: keys.to_vec(),
        ..catalog.clone()
    };
    world.query.run(&statement, &catalog).await
}

/// A name as it is, without the quotes it has in SQL.
fn plain(name: &str) -> String {
    let inner = name
        .strip_prefix('"')
        .and_then(|name| name.strip_suffix('"'));
    inner.map_or_else(|| name.to_owned(), |inner| inner.replace("\"\"", "\""))
}
