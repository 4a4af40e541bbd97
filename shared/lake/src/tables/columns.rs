//! A table's columns, and how they follow a query whose columns changed.

use std::{collections::HashSet, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array},
    compute::{CastOptions, cast_with_options, kernels::cmp::distinct},
    datatypes::{DataType, Schema, SchemaRef},
    error::ArrowError,
    util::display::array_value_to_string,
};
use domain::{OnSchemaChange, TableName};
use iceberg::spec::{NestedField, NestedFieldRef};
use ports::{Error, Kind, Result, query::ARRIVAL};

use super::types::{self, Ids};

/// The policies of `on_schema_change`, as messages name them.
const POLICIES: &str = "on_schema_change is append_new_columns, ignore, fail or sync_all_columns";

/// The column of a table of change events that is ours alone; see `origins`.
pub(crate) const ORIGINS: &str = "_origins";

/// A table's columns four ways: Iceberg's, as they are read, as parquet files have them, as readers see them.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// With ids.
    pub iceberg: iceberg::spec::SchemaRef,
    /// Without ids.
    pub read: SchemaRef,
    /// The same without [`ORIGINS`].
    pub shown: SchemaRef,
    /// With ids in the metadata of each field.
    pub file: SchemaRef,
}

impl Columns {
    /// Of an Iceberg schema; `Corrupt` when it has types no table of ours has.
    pub(crate) fn new(table: &TableName, iceberg: iceberg::spec::SchemaRef) -> Result<Self> {
        let arrow = |ids| {
            let fields = iceberg.as_struct().fields().iter().map(|f| {
                types::to_arrow(f, ids).ok_or_else(|| {
                    Error::new(Kind::Corrupt, "read columns", table).because(format!(
                        "column `{}` has the foreign type {}",
                        f.name, f.field_type
                    ))
                })
            });
            Ok::<_, Error>(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
        };
        let (read, file) = (arrow(Ids::Left)?, arrow(Ids::Kept)?);
        let shown = match position(&read, ORIGINS) {
            None => read.clone(),
            Some(own) => {
                let others = read.fields().iter().enumerate();
                let others = others.filter(|(at, _)| *at != own);
                let others: Vec<_> = others.map(|(_, field)| field.clone()).collect();
                Arc::new(Schema::new(others))
            }
        };
        Ok(Self {
            iceberg,
            read,
            shown,
            file,
        })
    }

    /// Position of a column by name, whatever its case.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        position(&self.read, name)
    }
}

/// Position of a field by name, whatever its case.
pub(crate) fn position(schema: &Schema, name: &str) -> Option<usize> {
    schema
        .fields()
        .iter()
        .position(|f| f.name().eq_ignore_ascii_case(name))
}

/// A column as a query delivers it.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// Its name.
    pub name: String,
    /// Its canonical type; none for a column of nothing but NULL, which suits every type.
    pub kind: Option<DataType>,
}

impl Incoming {
    /// The column that no query delivers.
    pub(crate) fn origins() -> Self {
        Self {
            name: ORIGINS.to_owned(),
            kind: Some(DataType::Utf8),
        }
    }
}

/// What a query delivers, checked: at least one column, no name twice, no type that tables cannot hold.
pub(crate) fn incoming(table: &TableName, schema: &Schema) -> Result<Vec<Incoming>> {
    let invalid = |why: String| Error::new(Kind::Invalid, "store rows of", table).because(why);
    if schema.fields().is_empty() {
        return Err(invalid("the query yields no columns".into()));
    }
    let mut seen = HashSet::new();
    schema
        .fields()
        .iter()
        // What tells the order of rows is none of theirs.
        .filter(|field| field.name() != ARRIVAL)
        .map(|field| {
            let name = field.name().clone();
            if !seen.insert(name.to_lowercase()) {
                return Err(invalid(format!(
                    "the query yields column `{name}` twice; rename one with AS"
                )));
            }
            if name.eq_ignore_ascii_case(ORIGINS) {
                return Err(invalid(format!(
                    "the query yields column `{name}`, which is kept for where values of change events are from; rename it with AS"
                )));
            }
            let kind = types::canonical(field.data_type()).ok_or_else(|| {
                let given = ports::columns::word(field.data_type());
                invalid(format!(
                    "column `{name}` has type {given}, which tables cannot hold; cast it"
                ))
            })?;
            let kind = (*field.data_type() != DataType::Null).then_some(kind);
            Ok(Incoming { name, kind })
        })
        .collect()
}

/// Columns a table will have.
#[derive(Debug)]
pub(crate) struct Evolved {
    /// The fields, with ids.
    pub fields: Vec<NestedFieldRef>,
    /// Whether they differ from the table's.
    pub changed: bool,
}

/// Fields of a new table.
pub(crate) fn create(incoming: &[Incoming]) -> Vec<NestedFieldRef> {
    Fresh { last: 0 }.fields(&incoming.iter().collect::<Vec<_>>())
}

/// Fields of a table with [`ORIGINS`] behind the others. It is numbered after `last_id`.
pub(crate) fn with_origins(columns: &Columns, last_id: i32) -> Vec<NestedFieldRef> {
    let fields = columns.iceberg.as_struct().fields().iter().cloned();
    let own = Fresh { last: last_id }.field(&Incoming::origins());
    fields.chain([own]).collect()
}

/// Decides the columns of an existing table under a policy. New fields are numbered after `last_id`.
pub(crate) fn evolve(
    table: &TableName,
    columns: &Columns,
    incoming: &[Incoming],
    policy: OnSchemaChange,
    last_id: i32,
) -> Result<Evolved> {
    let fields = columns.iceberg.as_struct().fields();
    let find = |name: &str| columns.position(name);
    let extra: Vec<&Incoming> = incoming
        .iter()
        .filter(|c| find(&c.name).is_none())
        .collect();
    let refused = |why: String, hint: &str| {
        Error::new(Kind::Invalid, "change columns of", table)
            .because(format!("{why}; {hint}; {POLICIES}"))
    };
    let mut differences = Vec::new();
    for field in columns.read.fields() {
        match incoming
            .iter()
            .find(|c| c.name.eq_ignore_ascii_case(field.name()))
        {
            // No query delivers it.
            None if field.name() == ORIGINS => {}
            None => differences.push(format!(
                "column `{}` is missing from the query",
                field.name()
            )),
            Some(Incoming {
                kind: Some(kind), ..
            }) if kind != field.data_type() => {
                let (old, new) = (types::word(field.data_type()), types::word(kind));
                differences.push(format!(
                    "column `{}` is {old} in the table and {new} in the query",
                    field.name()
                ));
            }
            Some(_) => {}
        }
    }
    let mut fresh = Fresh { last: last_id };
    match policy {
        OnSchemaChange::Ignore => Ok(Evolved {
            fields: fields.to_vec(),
            changed: false,
        }),
        OnSchemaChange::Fail => {
            differences.extend(extra.iter().map(|c| format!("column `{}` is new", c.name)));
            match differences.is_empty() {
                true => Ok(Evolved {
                    fields: fields.to_vec(),
                    changed: false,
                }),
                false => Err(refused(
                    differences.join(", "),
                    "the policy `fail` refuses any difference",
                )),
            }
        }
        OnSchemaChange::AppendNewColumns if !differences.is_empty() => Err(refused(
            differences.join(", "),
            "the policy `append_new_columns` only adds columns",
        )),
        OnSchemaChange::AppendNewColumns => {
            let added = fresh.fields(&extra);
            Ok(Evolved {
                changed: !added.is_empty(),
                fields: fields.iter().cloned().chain(added).collect(),
            })
        }
        OnSchemaChange::SyncAllColumns => {
            let fields: Vec<_> = incoming.iter().map(|c| fresh.sync(columns, c)).collect();
            Ok(Evolved {
                changed: fields != columns.iceberg.as_struct().fields(),
                fields,
            })
        }
    }
}

/// Numbers new fields.
struct Fresh {
    last: i32,
}

impl Fresh {
    fn id(&mut self) -> i32 {
        self.last += 1;
        self.last
    }

    fn fields(&mut self, added: &[&Incoming]) -> Vec<NestedFieldRef> {
        added.iter().map(|column| self.field(column)).collect()
    }

    fn field(&mut self, column: &Incoming) -> NestedFieldRef {
        let id = self.id();
        let text = DataType::Utf8;
        let kind = types::to_iceberg(column.kind.as_ref().unwrap_or(&text), &mut || self.id());
        let kind = kind.expect("incoming columns have canonical types");
        Arc::new(NestedField::optional(id, &column.name, kind))
    }

    /// The table's field of that name and type, or a new one.
    fn sync(&mut self, columns: &Columns, column: &Incoming) -> NestedFieldRef {
        let same = columns.position(&column.name).filter(|at| {
            column
                .kind
                .as_ref()
                .is_none_or(|kind| kind == columns.read.field(*at).data_type())
        });
        match same {
            Some(at) => columns.iceberg.as_struct().fields()[at].clone(),
            None => self.field(column),
        }
    }
}

/// Brings batches of one schema into the columns of a table: by name, cast, NULL where there is none.
#[derive(Clone, Debug)]
pub(crate) struct Alignment {
    file: SchemaRef,
    sources: Vec<Option<usize>>,
}

impl Alignment {
    /// From `given` to the columns of a table.
    pub(crate) fn new(given: &Schema, columns: &Columns) -> Self {
        let sources = columns
            .read
            .fields()
            .iter()
            .map(|f| position(given, f.name()))
            .collect();
        Self {
            file: columns.file.clone(),
            sources,
        }
    }

    /// Aligns one batch. `Invalid` when a value does not fit the column's type.
    pub(crate) fn align(&self, table: &TableName, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = Vec::with_capacity(self.sources.len());
        for (field, source) in self.file.fields().iter().zip(&self.sources) {
            columns.push(match source {
                None => new_null_array(field.data_type(), rows),
                Some(at) => fit(batch.column(*at), field.data_type()).map_err(|e| {
                    Error::new(
                        Kind::Invalid,
                        "store column",
                        format!("{table}.{}", field.name()),
                    )
                    .because(e)
                })?,
            });
        }
        batch_of(&self.file, columns, rows)
    }
}

fn fit(column: &ArrayRef, kind: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == kind {
        return Ok(column.clone());
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let fitted = cast_with_options(column, kind, &options)?;
    if !cuts(column.data_type(), kind) {
        return Ok(fitted);
    }
    // A number that loses digits is another number, and as a key another row.
    let back = cast_with_options(&fitted, column.data_type(), &options)?;
    let cut = distinct(&back, column)?;
    match cut.values().set_indices().next() {
        None => Ok(fitted),
        Some(at) => {
            let value = array_value_to_string(column, at)?;
            let kind = ports::columns::word(kind);
            Err(ArrowError::CastError(format!("{value} is no {kind}")))
        }
    }
}

/// Whether a cast may take digits from numbers.
fn cuts(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => from > to,
        (from, DataType::Decimal128(..)) => from.is_floating(),
        (DataType::Decimal128(..), to) => to.is_integer(),
        (from, to) => from.is_floating() && to.is_integer(),
    }
}

/// A batch of columns whose nested fields may be named or annotated otherwise than the schema's.
pub(crate) fn batch_of(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new()
        .with_match_field_names(false)
        .with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|e| Error::new(Kind::Corrupt, "build batch", "rows").because(e))
}
