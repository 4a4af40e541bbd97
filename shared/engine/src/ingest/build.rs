//! Columns under construction.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder,
        Int32Builder, Int64Builder, RecordBatch, RecordBatchOptions, StringBuilder,
        TimestampMicrosecondBuilder,
    },
    datatypes::{DataType, Field, Schema},
    error::ArrowError,
};

use super::value::Value;

/// One column under construction, of a landing type.
#[derive(Debug)]
pub(super) enum Builder {
    Boolean(BooleanBuilder),
    Integer(Int32Builder),
    Bigint(Int64Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder),
    Text(StringBuilder),
    Blob(BinaryBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Date(Date32Builder),
}

impl Builder {
    /// A builder for a type of `ports::columns`; any other type is built as text.
    pub(super) fn new(data_type: &DataType, rows: usize) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean(BooleanBuilder::with_capacity(rows)),
            DataType::Int32 => Self::Integer(Int32Builder::with_capacity(rows)),
            DataType::Int64 => Self::Bigint(Int64Builder::with_capacity(rows)),
            DataType::Float64 => Self::Double(Float64Builder::with_capacity(rows)),
            DataType::Decimal128(..) => Self::Decimal(
                Decimal128Builder::with_capacity(rows).with_data_type(data_type.clone()),
            ),
            DataType::Binary => Self::Blob(BinaryBuilder::with_capacity(rows, rows * 16)),
            DataType::Timestamp(..) => {
                Self::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows))
            }
            DataType::Date32 => Self::Date(Date32Builder::with_capacity(rows)),
            _ => Self::Text(StringBuilder::with_capacity(rows, rows * 16)),
        }
    }

    /// Appends a value that was coerced to this column's type.
    ///
    /// # Panics
    /// When it was coerced to another type.
    pub(super) fn append(&mut self, value: Value<'_>) {
        match (self, value) {
            (Self::Boolean(builder), Value::Boolean(value)) => builder.append_value(value),
            (Self::Integer(builder), Value::Integer(value)) => {
                builder.append_value(i32::try_from(value).expect("an INTEGER was checked"));
            }
            (Self::Bigint(builder), Value::Integer(value)) => builder.append_value(value),
            (Self::Double(builder), Value::Double(value)) => builder.append_value(value),
            (Self::Decimal(builder), Value::Decimal(value)) => builder.append_value(value),
            (Self::Text(builder), Value::Text(value)) => builder.append_value(value),
            (Self::Blob(builder), Value::Text(value)) => builder.append_value(value.as_bytes()),
            (Self::Timestamp(builder), Value::Timestamp(value)) => builder.append_value(value),
            (Self::Date(builder), Value::Date(value)) => builder.append_value(value),
            (builder, Value::Null) => builder.append_null(),
            (builder, value) => unreachable!("{value:?} was not coerced to {builder:?}"),
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Boolean(builder) => builder.append_null(),
            Self::Integer(builder) => builder.append_null(),
            Self::Bigint(builder) => builder.append_null(),
            Self::Double(builder) => builder.append_null(),
            Self::Decimal(builder) => builder.append_null(),
            Self::Text(builder) => builder.append_null(),
            Self::Blob(builder) => builder.append_null(),
            Self::Timestamp(builder) => builder.append_null(),
            Self::Date(builder) => builder.append_null(),
        }
    }

    /// The column.
    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::Boolean(mut builder) => Arc::new(builder.finish()),
            Self::Integer(mut builder) => Arc::new(builder.finish()),
            Self::Bigint(mut builder) => Arc::new(builder.finish()),
            Self::Double(mut builder) => Arc::new(builder.finish()),
            Self::Decimal(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Blob(mut builder) => Arc::new(builder.finish()),
            Self::Timestamp(mut builder) => Arc::new(builder.finish()),
            Self::Date(mut builder) => Arc::new(builder.finish()),
        }
    }
}

/// A batch of named columns, all nullable.
pub(super) fn batch(
    columns: Vec<(String, ArrayRef)>,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
}
