//! Columns that a format has no form for, as text.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, ArrowNativeTypeOp, AsArray, GenericListArray, Int64Array, OffsetSizeTrait,
        PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray, UnionArray,
        downcast_temporal_array,
    },
    compute::{cast, max, min},
    datatypes::{
        ArrowPrimitiveType, DataType, Field, FieldRef, Float64Type, Int64Type, Schema, SchemaRef,
        TimeUnit,
    },
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
        // A writer names the place of what it cannot write, if it says so at all, and not the column.
        inside(column, shown).map_err(|error| unshown(field.name(), &error))?;
        let (column, is_raw) = match column.as_any().downcast_ref::<UnionArray>() {
            Some(union) => (json(union)?, true),
            None if beyond(column.data_type()) => {
                let text = text(column).map_err(|error| unshown(field.name(), &error))?;
                (text, false)
            }
            None => match keyed_by_text(column.data_type()) {
                Some(kind) => (cast(column, &kind).map_err(unencodable)?, false),
                None => (Arc::clone(column), false),
            },
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
fn text(column: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let options = FormatOptions::default().with_display_error(false);
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let nulls = column.logical_nulls();
    let is_valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let value = |row| formatter.value(row).try_to_string();
    let text = (0..column.len()).map(|row| is_valid(row).then(|| value(row)).transpose());
    let text: StringArray = text.collect::<std::result::Result<_, _>>()?;
    Ok(Arc::new(text))
}

/// Checks values at any depth.
fn inside(array: &dyn Array, check: Check) -> Checked {
    let all = |columns: &[ArrayRef]| columns.iter().try_for_each(|one| inside(one, check));
    match array.data_type() {
        DataType::List(_) => inside(&items(array.as_list::<i32>()), check),
        DataType::LargeList(_) => inside(&items(array.as_list::<i64>()), check),
        DataType::FixedSizeList(_, _) => inside(array.as_fixed_size_list().values(), check),
        DataType::Struct(_) => all(array.as_struct().columns()),
        DataType::Map(_, _) => all(array.as_map().entries().columns()),
        DataType::Dictionary(_, _) => inside(array.as_any_dictionary().values(), check),
        _ => check(array),
    }
}

/// The items of a list's own rows: others may be in its array.
fn items<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> ArrayRef {
    let offsets = list.value_offsets();
    let (Some(first), Some(end)) = (offsets.first(), offsets.last()) else {
        return Arc::clone(list.values());
    };
    let (first, end) = (first.as_usize(), end.as_usize());
    list.values().slice(first, end - first)
}

type Checked = std::result::Result<(), ArrowError>;
type Check = fn(&dyn Array) -> Checked;

/// Fails where a moment is in no calendar, at its offset if it has one.
fn shown(array: &dyn Array) -> Checked {
    let DataType::Timestamp(unit, Some(_)) = array.data_type() else {
        return calendar(array);
    };
    let numbers = cast(array, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let (Some(first), Some(last)) = (min(numbers), max(numbers)) else {
        return Ok(());
    };
    // Offsets are less than a day, and the formatter panics over one that leads out of the calendar.
    let second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let day = 86_400 * second;
    let widest = [first.saturating_sub(day), last.saturating_add(day)];
    let widest: ArrayRef = Arc::new(Int64Array::from_iter_values(widest));
    let plain = cast(&widest, &DataType::Timestamp(*unit, None))?;
    let told = format!("moments from {first} to {last} are in no calendar at every offset");
    text(&plain)
        .map(drop)
        .map_err(|_| ArrowError::CastError(told))
}

/// Why a column cannot be shown, and what would help.
fn unshown(name: &str, error: &ArrowError) -> ports::Error {
    unencodable(advised(name, error))
}

fn advised(name: &str, error: &ArrowError) -> ArrowError {
    ArrowError::InvalidArgumentError(format!(
        "column `{name}`: {error}; CAST it to BIGINT, or ask for Arrow"
    ))
}

/// The same type with texts as the keys of its maps, as JSON has them; none if it is so already.
fn keyed_by_text(kind: &DataType) -> Option<DataType> {
    let item = |field: &FieldRef| -> Option<FieldRef> {
        let kind = keyed_by_text(field.data_type())?;
        Some(Arc::new(field.as_ref().clone().with_data_type(kind)))
    };
    Some(match kind {
        DataType::List(of) => DataType::List(item(of)?),
        DataType::LargeList(of) => DataType::LargeList(item(of)?),
        DataType::FixedSizeList(of, length) => DataType::FixedSizeList(item(of)?, *length),
        DataType::Struct(fields) => {
            let texts: Vec<Option<FieldRef>> = fields.iter().map(item).collect();
            if texts.iter().all(Option::is_none) {
                return None;
            }
            let fields = fields.iter().zip(texts);
            let fields = fields.map(|(field, text)| text.unwrap_or_else(|| Arc::clone(field)));
            DataType::Struct(fields.collect())
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(pair) = entries.data_type() else {
                return None;
            };
            let [key, value] = pair.as_ref() else {
                return None;
            };
            let is_text = matches!(
                key.data_type(),
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
            );
            let values = item(value);
            if is_text && values.is_none() {
                return None;
            }
            let key = match is_text {
                true => Arc::clone(key),
                false => Arc::new(key.as_ref().clone().with_data_type(DataType::Utf8)),
            };
            let value = values.unwrap_or_else(|| Arc::clone(value));
            let pair = DataType::Struct([key, value].into_iter().collect());
            let entries = entries.as_ref().clone().with_data_type(pair);
            DataType::Map(Arc::new(entries), *sorted)
        }
        _ => return None,
    })
}

/// Fails where the first or last moment of a column is in no calendar: the writer would say so in the place of the value, as
/// text that is no JSON.
fn calendar(array: &dyn Array) -> Checked {
    fn ends<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> Option<ArrayRef>
    where
        T::Native: ArrowNativeTypeOp,
    {
        let ends = PrimitiveArray::<T>::from_iter_values([min(array)?, max(array)?]);
        Some(Arc::new(ends.with_data_type(array.data_type().clone())))
    }
    let ends = downcast_temporal_array!(
        array => ends(array),
        _ => None
    );
    ends.map_or(Ok(()), |ends| text(&ends).map(|_| ()))
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

/// Writes columns that are JSON already as they are, and refuses moments that are in no calendar.
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
            return match calendar(array) {
                Ok(()) => Ok(None),
                Err(error) => Err(advised(field.name(), &error)),
            };
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
