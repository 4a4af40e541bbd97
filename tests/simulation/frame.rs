//! Rows as plain values: what the pretend query engine and the oracle compute with.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray},
    compute::{concat_batches, filter_record_batch},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
    error::ArrowError,
};
use domain::SEQUENCE;
use object_store::{ObjectStoreExt, path::Path};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ports::{
    Error, Kind, Objects, Result, Tables,
    feed::{Feed, RowChange},
    tables::{FilePart, Part, Pin},
};

/// One value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bool(bool),
}

impl Cell {
    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(value) => *value,
            Self::Null | Self::Text(_) | Self::Bool(_) => 0,
        }
    }
}

/// Rows of some columns.
pub(crate) type Rows = Vec<Vec<Cell>>;

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Kind::Corrupt, "read rows of", "the simulation").because(error)
}

/// The values of columns of a batch, by name; a column that is not there is NULL.
pub(crate) fn rows(batch: &RecordBatch, columns: &[&str]) -> Rows {
    let arrays: Vec<Option<&ArrayRef>> = columns
        .iter()
        .map(|name| batch.column_by_name(name))
        .collect();
    let row = |at| arrays.iter().map(|array| cell(*array, at)).collect();
    (0..batch.num_rows()).map(row).collect()
}

fn cell(array: Option<&ArrayRef>, at: usize) -> Cell {
    let Some(array) = array.filter(|array| !array.is_null(at)) else {
        return Cell::Null;
    };
    match array.data_type() {
        DataType::Int64 => Cell::Int(array.as_primitive::<Int64Type>().value(at)),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(at).to_owned()),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(at).to_owned()),
        DataType::Boolean => Cell::Bool(array.as_boolean().value(at)),
        _ => Cell::Null,
    }
}

/// A batch of values, by columns and their types: Int64 or Utf8.
pub(crate) fn batch(columns: &[(&str, DataType)], rows: &Rows) -> Result<RecordBatch> {
    let column = |(at, (_, kind)): (usize, &(&str, DataType))| -> ArrayRef {
        let cells = rows.iter().map(|row| &row[at]);
        match kind {
            DataType::Utf8 => Arc::new(
                cells
                    .map(|cell| match cell {
                        Cell::Text(text) => Some(text.as_str()),
                        Cell::Null | Cell::Int(_) | Cell::Bool(_) => None,
                    })
                    .collect::<StringArray>(),
            ),
            _ => Arc::new(
                cells
                    .map(|cell| match cell {
                        Cell::Int(value) => Some(*value),
                        Cell::Null | Cell::Text(_) | Cell::Bool(_) => None,
                    })
                    .collect::<Int64Array>(),
            ),
        }
    };
    let arrays = columns.iter().enumerate().map(column).collect();
    RecordBatch::try_new(schema(columns), arrays).map_err(failed)
}

pub(crate) fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, kind): &(&str, DataType)| Field::new(*name, kind.clone(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// The rows of a pinned table; of landing tables those after a sequence.
pub(crate) async fn table(
    tables: &dyn Tables,
    objects: &Objects,
    pin: &Pin,
    after: u64,
    columns: &[&str],
) -> Result<Rows> {
    let scan = tables.scan(pin, after).await?;
    let mut all = Vec::new();
    for part in &scan.parts {
        all.extend(rows(&self::part(objects, part, |_| true).await?, columns));
    }
    if let Pin::Landing { through, .. } = pin
        && let Some(at) = columns.iter().position(|name| *name == SEQUENCE)
    {
        let within = |row: &Vec<Cell>| {
            u64::try_from(row[at].int()).is_ok_and(|seq| after < seq && seq <= *through)
        };
        all.retain(within);
    }
    Ok(all)
}

/// The rows of a feed, with what happened to each.
pub(crate) async fn feed(
    objects: &Objects,
    feed: &Feed,
    columns: &[&str],
) -> Result<Vec<(RowChange, Vec<Cell>)>> {
    let mut all = Vec::new();
    for (change, picked) in &feed.parts {
        let wanted = |row| picked.rows.as_ref().is_none_or(|rows| rows.contains(row));
        let batch = part(objects, &picked.part, wanted).await?;
        all.extend(rows(&batch, columns).into_iter().map(|row| (*change, row)));
    }
    Ok(all)
}

async fn part(objects: &Objects, part: &Part, wanted: impl Fn(u64) -> bool) -> Result<RecordBatch> {
    match part {
        Part::Memory(batch) => Ok(batch.clone()),
        Part::File(file) => {
            let path = Path::from(file.path.as_str());
            let bytes = objects.get(&path).await?.bytes().await?;
            read(file, bytes, wanted).map_err(failed)
        }
    }
}

fn read(
    file: &FilePart,
    bytes: bytes::Bytes,
    wanted: impl Fn(u64) -> bool,
) -> Result<RecordBatch, ArrowError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let schema = reader.schema().clone();
    let batches = reader.build()?.collect::<Result<Vec<_>, _>>()?;
    let mut batch = concat_batches(&schema, &batches)?;
    if let Some(first) = file.first_sequence {
        let first = i64::try_from(first).unwrap_or(i64::MAX);
        let count = i64::try_from(batch.num_rows()).unwrap_or(0);
        let numbers: Int64Array = (first..first + count).collect();
        let mut fields = schema.fields().to_vec();
        fields.push(Arc::new(Field::new(SEQUENCE, DataType::Int64, true)));
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(numbers));
        batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    }
    let keep: BooleanArray = (0..batch.num_rows() as u64)
        .map(|row| {
            let gone = file.deleted.as_ref().is_some_and(|rows| rows.contains(row));
            Some(!gone && wanted(row))
        })
        .collect();
    filter_record_batch(&batch, &keep)
}
