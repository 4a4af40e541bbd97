//! How much of an entry's file is decoded at once: a short file can hold very many bytes, as of one text said often.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, FieldRef, Schema, SchemaRef},
};
use parquet::{
    basic::{Encoding, Type},
    file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData},
};

/// Most rows of a batch.
const ROWS: usize = 8 << 10;
/// Bytes that a batch has at most by what the footer tells of the rows of its group.
pub(super) const BYTES: u64 = 16 << 20;
/// Most bytes of a batch of an upload, where single rows are larger than others, or than the footer tells.
pub(super) const BYTES_MAX: u64 = 8 * BYTES;
/// Bytes of a value beside its text: a view, or the widest number.
const VALUE: u64 = 16;

/// How many rows of a file to decode at once; the same for whoever reads it, with all columns or some.
pub(super) fn rows(footer: &ParquetMetaData) -> usize {
    let largest = footer.row_groups().iter().map(row).max();
    let fit = BYTES / largest.unwrap_or(1).max(1);
    usize::try_from(fit).unwrap_or(ROWS).clamp(1, ROWS)
}

/// Bytes of a row of a group when it is decoded.
fn row(group: &RowGroupMetaData) -> u64 {
    let rows = told(group.num_rows()).max(1);
    let chunks = group.columns().iter().map(|chunk| value(chunk, rows));
    chunks.fold(0, u64::saturating_add)
}

/// Bytes of what a column has for one row.
fn value(chunk: &ColumnChunkMetaData, rows: u64) -> u64 {
    let (pages, texts) = (
        told(chunk.uncompressed_size()),
        chunk.unencoded_byte_array_data_bytes(),
    );
    // A value may be all of the one before it and nothing else, so each may be as long as everything that is there.
    if texts.is_none() && chunk.encodings().any(|e| e == Encoding::DELTA_BYTE_ARRAY) {
        return pages;
    }
    let width = match chunk.column_type() {
        Type::FIXED_LEN_BYTE_ARRAY => {
            u64::try_from(chunk.column_descr().type_length()).unwrap_or(0)
        }
        _ => 0,
    };
    let values = told(chunk.num_values()).saturating_mul(width.max(VALUE));
    let all = pages.max(values.saturating_add(texts.map_or(0, told)));
    all.div_ceil(rows)
}

fn told(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// The schema with texts as views, which are decoded without a copy of a text for each of its values.
pub(super) fn views(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(view).collect::<Vec<_>>();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn view(field: &FieldRef) -> FieldRef {
    let kind = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::List(item) => DataType::List(view(item)),
        DataType::LargeList(item) => DataType::LargeList(view(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(view).collect()),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(kind))
}

/// Bytes of a batch, with a text counted as often as it is said.
pub(super) fn bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| size(column)).sum()
}

fn size(array: &dyn Array) -> u64 {
    let length = |bytes: u32| VALUE + u64::from(bytes);
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().lengths().map(length).sum(),
        DataType::BinaryView => array.as_binary_view().lengths().map(length).sum(),
        DataType::List(_) => size(array.as_list::<i32>().values()),
        DataType::LargeList(_) => size(array.as_list::<i64>().values()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(|c| size(c)).sum(),
        _ => array.get_buffer_memory_size() as u64,
    }
}
