//! Columns of landing batches: made canonical, compared with the table's, joined by name.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayData, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringBuilder,
        make_array, new_null_array,
    },
    compute::{CastOptions, cast_with_options, concat},
    datatypes::{
        DataType, Field, Float16Type, Float32Type, Float64Type, Schema, TimeUnit,
        TimestampNanosecondType,
    },
    error::ArrowError,
    json::writer::{EncoderOptions, make_encoder},
};
use domain::{SEQUENCE, SEQUENCE_ALIAS, TableName, items::Column};
use ports::{Error, Kind, Result, columns};

/// The batch in the types of landing columns, widened where they have no word of their own; lists and structs become
/// their JSON text.
///
/// # Errors
/// `Invalid` for a batch without rows, a column named like the sequence, twice the same column, or a value that does
/// not fit.
pub(super) fn canonical(table: &TableName, rows: RecordBatch) -> Result<RecordBatch> {
    let refuse = |why: String| Error::new(Kind::Invalid, "append to", table).because(why);
    if rows.num_rows() == 0 {
        return Err(refuse("there are no rows".into()));
    }
    let schema = rows.schema();
    check_names(schema.fields().iter().map(|field| field.name().as_str())).map_err(refuse)?;
    if schema
        .fields()
        .iter()
        .all(|field| columns::kind(field.data_type()).is_some())
    {
        return Ok(rows);
    }
    let mut fields = Vec::with_capacity(schema.fields().len());
    let mut arrays = Vec::with_capacity(schema.fields().len());
    for (field, array) in schema.fields().iter().zip(rows.columns()) {
        let wide = columns::widened(field.data_type());
        let array =
            widen(array, &wide).map_err(|e| refuse(format!("column `{}`: {e}", field.name())))?;
        fields.push(Field::new(field.name(), wide, true));
        arrays.push(array);
    }
    batch(table, fields, arrays, rows.num_rows())
}

/// Refuses names that the sequence has, empty ones, and one that comes twice.
pub(super) fn check_names<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
) -> std::result::Result<(), String> {
    for (index, name) in names.clone().enumerate() {
        if name.eq_ignore_ascii_case(SEQUENCE) || name.eq_ignore_ascii_case(SEQUENCE_ALIAS) {
            return Err(format!(
                "column `{name}` has the name of the sequence; give it another"
            ));
        }
        if name.is_empty() {
            return Err(format!("column {} has no name", index + 1));
        }
        if names.clone().take(index).any(|earlier| earlier == name) {
            return Err(format!("column `{name}` is there twice"));
        }
    }
    Ok(())
}

/// The schema as [`canonical`] makes it.
pub(super) fn widened(schema: &Schema) -> Arc<Schema> {
    let fields = schema.fields().iter();
    let fields = fields.map(|f| Field::new(f.name(), columns::widened(f.data_type()), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Whether a reader that expects landing columns gets them from a file of this schema: of the same types, or other
/// layouts of the same texts and bytes.
pub(super) fn is_canonical(schema: &Schema) -> bool {
    schema.fields().iter().all(|field| {
        let layout = matches!(
            field.data_type(),
            DataType::LargeUtf8 | DataType::Utf8View | DataType::LargeBinary | DataType::BinaryView
        );
        layout || columns::kind(field.data_type()).is_some()
    })
}

fn widen(array: &ArrayRef, wide: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    match array.data_type() {
        found if found == wide => Ok(Arc::clone(array)),
        DataType::Dictionary(_, values) => widen(&cast(array, values)?, wide),
        DataType::Utf8View | DataType::LargeUtf8 | DataType::Null => cast(array, wide),
        _ if *wide == DataType::Utf8 => json_text(array),
        DataType::Timestamp(TimeUnit::Nanosecond, _) if !is_micros(array) => {
            Err(ArrowError::CastError(String::from(
                "it has moments that are no whole microseconds, which a TIMESTAMP cannot tell apart; round it, or write \
                 it as BIGINT or VARCHAR",
            )))
        }
        _ => cast(array, wide),
    }
}

fn cast(array: &ArrayRef, wide: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    let options = CastOptions {
        safe: false,
        ..Default::default()
    };
    // Text is not told from an instant of a zone: the zone goes, the instant stays.
    if let (DataType::Timestamp(unit, Some(_)), DataType::Timestamp(..)) = (array.data_type(), wide)
    {
        let utc = cast_with_options(
            array,
            &DataType::Timestamp(*unit, Some("UTC".into())),
            &options,
        )?;
        let naive = utc
            .to_data()
            .into_builder()
            .data_type(DataType::Timestamp(*unit, None))
            .build()?;
        return cast_with_options(&arrow::array::make_array(naive), wide, &options);
    }
    cast_with_options(array, wide, &options)
}

/// Whether moments in nanoseconds are whole microseconds.
fn is_micros(array: &ArrayRef) -> bool {
    let nanos = array.as_primitive_opt::<TimestampNanosecondType>();
    nanos.is_none_or(|nanos| nanos.iter().flatten().all(|nanos| nanos % 1000 == 0))
}

/// Whether every number in a list or struct has a form in JSON, where NaN and infinities would be NULL.
fn is_finite(data: &ArrayData) -> bool {
    let array = || make_array(data.clone());
    let all = |finite: Option<bool>| finite.unwrap_or(true);
    match data.data_type() {
        DataType::Float16 => {
            let numbers = array();
            let numbers = numbers.as_primitive_opt::<Float16Type>();
            all(numbers.map(|numbers| numbers.iter().flatten().all(|number| number.is_finite())))
        }
        DataType::Float32 => {
            let numbers = array();
            let numbers = numbers.as_primitive_opt::<Float32Type>();
            all(numbers.map(|numbers| numbers.iter().flatten().all(f32::is_finite)))
        }
        DataType::Float64 => {
            let numbers = array();
            let numbers = numbers.as_primitive_opt::<Float64Type>();
            all(numbers.map(|numbers| numbers.iter().flatten().all(f64::is_finite)))
        }
        _ => data.child_data().iter().all(is_finite),
    }
}

/// Each value as its JSON text; NULL stays NULL.
fn json_text(array: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    if !is_finite(&array.to_data()) {
        return Err(ArrowError::CastError(String::from(
            "it has NaN or an infinity inside of lists or structs, which their JSON text cannot tell from NULL; write \
             the numbers as VARCHAR",
        )));
    }
    let field = Arc::new(Field::new("value", array.data_type().clone(), true));
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(&field, array, &options)?;
    let mut text = StringBuilder::with_capacity(array.len(), array.len() * 16);
    let mut buffer = Vec::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            text.append_null();
            continue;
        }
        buffer.clear();
        encoder.encode(row, &mut buffer);
        text.append_value(
            std::str::from_utf8(&buffer).map_err(|e| ArrowError::JsonError(e.to_string()))?,
        );
    }
    Ok(Arc::new(text.finish()))
}

/// The columns of a canonical batch.
pub(super) fn columns_of(schema: &Schema) -> Vec<Column> {
    let fields = schema.fields().iter();
    fields
        .filter_map(|field| {
            let kind = columns::kind(field.data_type())?;
            Some(Column {
                name: field.name().clone(),
                kind,
            })
        })
        .collect()
}

/// Adds to `known` the columns of `found` that it lacks.
///
/// # Errors
/// A sentence that names the first column of another type, and both types, or says that the table holds rows of another
/// kind, or has a column of events that is spelled otherwise; `known` is as it was.
pub(super) fn unite(
    table: &TableName,
    known: &mut Vec<Column>,
    found: &[Column],
) -> std::result::Result<(), String> {
    let of_events = of_one_kind(known, found)?;
    let mut new = Vec::new();
    for column in found {
        match known.iter().find(|known| known.name == column.name) {
            Some(same) if same.kind == column.kind => {}
            Some(other) => {
                return Err(format!(
                    "column `{}` is {} here and {} in the table",
                    column.name, column.kind, other.kind
                ));
            }
            None => {
                let alike = |other: &&Column| other.name.eq_ignore_ascii_case(&column.name);
                // Every query of all columns would break on it. A quarantine takes in columns of others.
                let told_apart = of_events && table.is_landing();
                if let Some(other) = known.iter().find(alike).filter(|_| told_apart) {
                    return Err(format!(
                        "column `{}` is `{}` in the table, and SQL does not tell the two apart; spell it so",
                        column.name, other.name
                    ));
                }
                new.push(column.clone());
            }
        }
    }
    known.extend(new);
    Ok(())
}

/// Refuses rows that would be none of what the readers of the table expect: a table of webhook events gets no rows
/// without an id and a payload, and one of changes none without an operation and its place in the order. Says whether it
/// is one of those.
fn of_one_kind(known: &[Column], found: &[Column]) -> std::result::Result<bool, String> {
    let has = |columns: &[Column], names: &[&str]| {
        let one = |name: &&str| columns.iter().any(|column| column.name == **name);
        names.iter().all(one)
    };
    let (kind, core): (_, &[&str]) = match () {
        () if has(known, &["id", "received_at", "payload"]) => {
            ("webhook events", &["id", "payload"])
        }
        () if has(known, &["op", "lsn", "received_at", "payload"]) => ("changes", &["op", "lsn"]),
        () => return Ok(false),
    };
    if has(found, core) {
        return Ok(true);
    }
    let core: Vec<_> = core.iter().map(|name| format!("`{name}`")).collect();
    Err(format!(
        "the table holds {kind}, and these rows are none: they have no {}; give them a source of their own",
        core.join(" and ")
    ))
}

/// One batch of all rows, in order, with every column of any of them; NULL where a batch lacks one.
pub(super) fn join(table: &TableName, batches: &[&RecordBatch]) -> Result<RecordBatch> {
    if let [only] = batches {
        return Ok((*only).clone());
    }
    let mut fields: Vec<Arc<Field>> = Vec::new();
    for batch in batches {
        for field in batch.schema_ref().fields() {
            if !fields.iter().any(|known| known.name() == field.name()) {
                fields.push(Arc::clone(field));
            }
        }
    }
    let mut arrays = Vec::with_capacity(fields.len());
    for field in &fields {
        let pieces: Vec<ArrayRef> = batches
            .iter()
            .map(|batch| match batch.column_by_name(field.name()) {
                Some(column) => Arc::clone(column),
                None => new_null_array(field.data_type(), batch.num_rows()),
            })
            .collect();
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        arrays.push(
            concat(&pieces)
                .map_err(|e| Error::new(Kind::Invalid, "join rows of", table).because(e))?,
        );
    }
    let rows = batches.iter().map(|batch| batch.num_rows()).sum();
    let fields = fields
        .iter()
        .map(|f| Field::new(f.name(), f.data_type().clone(), true))
        .collect();
    batch(table, fields, arrays, rows)
}

fn batch(
    table: &TableName,
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .map_err(|e| Error::new(Kind::Invalid, "read rows for", table).because(e))
}
