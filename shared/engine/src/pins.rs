//! From names to a catalog: views looked through, tables pinned at heads that were read together.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use domain::{
    Materialized, Model, Project, SEQUENCE, TableName,
    items::Head,
    sql::{self, Bindings, SqlError},
};
use ports::{Error, Kind, Result, columns, query::Catalog, tables::Pin};

use crate::refresh::job::is_live;

/// What a statement reads, views looked through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    /// Tables with rows of their own.
    pub(crate) tables: BTreeSet<TableName>,
    /// Views and ephemeral models with their queries.
    pub(crate) views: BTreeMap<TableName, String>,
}

impl Reads {
    /// Looks through the views among `names`.
    ///
    /// # Errors
    /// `Invalid` for a view whose query cannot be read.
    pub(crate) fn of(
        project: &Project,
        names: impl IntoIterator<Item = TableName>,
    ) -> Result<Self> {
        let mut reads = Self::default();
        let mut next: Vec<TableName> = names.into_iter().collect();
        while let Some(name) = next.pop() {
            match project.models.get(&name) {
                Some(model) if is_view(model) => {
                    if let Entry::Vacant(place) = reads.views.entry(name) {
                        let text = view(model)?;
                        next.extend(tables(&model.file, &text)?);
                        place.insert(text);
                    }
                }
                Some(_) | None => {
                    reads.tables.insert(name);
                }
            }
        }
        Ok(reads)
    }

    /// The catalog, given a pin per table.
    pub(crate) fn catalog(self, pins: impl IntoIterator<Item = Pin>) -> Catalog {
        let tables = pins
            .into_iter()
            .map(|pin| (pin.table().clone(), pin))
            .collect();
        Catalog {
            tables,
            feeds: BTreeMap::new(),
            views: self.views,
            affected: Vec::new(),
        }
    }
}

/// Whether a model has no rows of its own.
pub(crate) fn is_view(model: &Model) -> bool {
    match model.config.materialized {
        Materialized::View | Materialized::Ephemeral => true,
        Materialized::Table | Materialized::Incremental => false,
    }
}

/// The query of a view.
fn view(model: &Model) -> Result<String> {
    let bindings = Bindings {
        this: &model.name,
        watermark: None,
        watermarks: BTreeMap::new(),
        changes: None,
    };
    sql::text(model, &bindings, false).map_err(|error| unreadable(&model.file, error))
}

/// Tables and views that a query names.
///
/// # Errors
/// `Invalid` for a query that cannot be read; `subject` says whose it is.
pub(crate) fn tables(subject: &str, text: &str) -> Result<Vec<TableName>> {
    sql::parse(text)
        .and_then(|statement| sql::tables(&statement))
        .map_err(|error| unreadable(subject, error))
}

/// The error of a query that cannot be read.
pub(crate) fn unreadable(subject: &str, error: SqlError) -> Error {
    Error::new(Kind::Invalid, "read the query of", subject).because(error)
}

/// Pins a table at its head, a landing table no further than `limit`.
///
/// A landing table that nothing has been declared of reads as an empty table of webhook events.
///
/// # Errors
/// `NotFound` for a table that has not been built, `Corrupt` for columns nobody knows.
pub(crate) fn pin(
    project: &Project,
    table: &TableName,
    head: Option<&Head>,
    limit: Option<u64>,
) -> Result<Pin> {
    match head {
        Some(Head {
            snapshot: Some(snapshot),
            ..
        }) => Ok(Pin::Model {
            table: table.clone(),
            snapshot: snapshot.clone(),
        }),
        Some(head) => {
            let through = limit.map_or(head.position.sequence, |l| l.min(head.position.sequence));
            let schema = columns::schema(table, &head.columns)?;
            Ok(Pin::Landing {
                table: table.clone(),
                schema,
                through,
            })
        }
        None if table.is_landing() => Ok(Pin::Landing {
            table: table.clone(),
            schema: webhook_columns(),
            through: 0,
        }),
        None => Err(missing(project, table)),
    }
}

/// The error of a table that is not there.
pub(crate) fn missing(project: &Project, table: &TableName) -> Error {
    let error = Error::new(Kind::NotFound, "read table", table);
    if let Some(model) = project.models.get(table) {
        return error.because(match is_live(model) {
            true => format!(
                "the model has not been built yet: where `headwater serve` or `headwater live` runs, it is there about a \
                 second after its first rows have landed; `headwater run {table}` builds it now"
            ),
            false => format!("the model has not been built yet: `headwater run {table}` builds it"),
        });
    }
    let mut models = project.models.values();
    if table.is_landing() && models.any(|model| model.reads.contains(table)) {
        return error.because("nothing has landed in it yet");
    }
    if table.schema() == "information_schema" {
        return error.because(
            "there is no catalog to select from: `headwater tables` lists tables, `headwater tables schema.name` the columns \
             of one",
        );
    }
    match project.nearest(&table.to_string()) {
        Some(near) => error.because(format!("there is no such table; did you mean `{near}`?")),
        None => error.because("there is no such table"),
    }
}

/// Columns of a landing table of webhook events.
fn webhook_columns() -> SchemaRef {
    let moment = DataType::Timestamp(TimeUnit::Microsecond, None);
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Utf8, true),
        Field::new("received_at", moment, true),
        Field::new("payload", DataType::Utf8, true),
        Field::new(SEQUENCE, DataType::Int64, true),
    ]))
}
