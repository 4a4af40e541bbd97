//! Columns that a format has no form for, as text.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray, UnionArray},
    datatypes::{DataType, Field, FieldRef, Float64Type, Schema, SchemaRef},
    error::ArrowError,
    json::{Encoder, EncoderFactory, EncoderOptions, writer::NullableEncoder},
    util::display::{ArrayFormatter, FormatOptions},
};
use ports::Result;

use super::unencodable;

/// Marks a text column whose values are JSON already.
const RAW_JSON: &str = "headwater.json";

/// Whether a column holds JSON values of any kind: what `->` answers with.
pub(super) fn is_json(kind: &DataType) -> bool {
    matches!(kind, DataType::Union(_, _))
}

/// The batch under the names of `schema`, with the columns of a kind that is `beyond` the format as text.
pub(super) fn batch(
    batch: &RecordBatch,
    schema: &SchemaRef,
    beyond: fn(&DataType) -> bool,
) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    let mut fields = Vec::with_capacity(batch.num_columns());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let (column, is_raw) = match column.as_any().downcast_ref::<UnionArray>() {
            Some(union) => (json(union)?, true),
            None if beyond(column.data_type()) => (text(column)?, false),
            None => (Arc::clone(column), false),
        };
        let mut field = Field::new(field.name(), column.data_type().clone(), true);
        if is_raw {
            field = field.with_metadata([(RAW_JSON.to_owned(), String::new())].into());
        }
        fields.push(field);
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(unencodable)
}

/// Values as people read them.
fn text(column: &ArrayRef) -> Result<ArrayRef> {
    let options = FormatOptions::default().with_display_error(true);
    let formatter = ArrayFormatter::try_new(column, &options).map_err(unencodable)?;
    let nulls = column.logical_nulls();
    let is_valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let text = (0..column.len()).map(|row| is_valid(row).then(|| formatter.value(row).to_string()));
    Ok(Arc::new(StringArray::from_iter(text)))
}

/// JSON values of any kind as JSON text.
fn json(union: &UnionArray) -> Result<ArrayRef> {
    let texts = (0..union.len())
        .map(|row| value(union, row))
        .collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StringArray::from(texts)))
}

fn value(union: &UnionArray, row: usize) -> Result<Option<String>> {
    let DataType::Union(fields, _) = union.data_type() else {
        return Ok(None);
    };
    let id = union.type_id(row);
    let name = fields
        .iter()
        .find(|(found, _)| *found == id)
        .map_or("", |(_, field)| field.name());
    let value = union.value(row);
    if value.is_empty() || value.is_null(0) || matches!(value.data_type(), DataType::Null) {
        return Ok(None);
    }
    // JSON has no word for them, as in columns of numbers.
    let number = value.as_primitive_opt::<Float64Type>();
    if number.is_some_and(|numbers| !numbers.value(0).is_finite()) {
        return Ok(None);
    }
    let shown = ArrayFormatter::try_new(&value, &FormatOptions::default())
        .map_err(unencodable)?
        .value(0)
        .to_string();
    let is_text = matches!(value.data_type(), DataType::Utf8 | DataType::Utf8View);
    // Arrays and objects are carried as their JSON text, other text is a string.
    Ok(Some(if is_text && name == "str" {
        serde_json::Value::from(shown).to_string()
    } else {
        shown
    }))
}

/// Writes columns that are JSON already as they are.
#[derive(Debug)]
pub(super) struct RawJson;

impl EncoderFactory for RawJson {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> std::result::Result<Option<NullableEncoder<'a>>, ArrowError> {
        if !field.metadata().contains_key(RAW_JSON) {
            return Ok(None);
        }
        let raw = Raw(array.as_string::<i32>());
        Ok(Some(NullableEncoder::new(
            Box::new(raw),
            array.nulls().cloned(),
        )))
    }
}

struct Raw<'a>(&'a StringArray);

impl Encoder for Raw<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.value(row).as_bytes());
    }
}
