//! Columns of parquet files that one reading loses something of: they are read twice, and put together.
//!
//! An INTERVAL has months, days and milliseconds, and is read as months or as days and milliseconds. A moment of 96 bits
//! has nanoseconds of any year, and is read as nanoseconds of some 600 years or without its parts of a microsecond.

use std::{fs::File, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, RecordBatch, RecordBatchOptions},
    datatypes::{
        DataType, Field, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit,
        IntervalYearMonthType, Schema, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
    },
};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
        },
    },
    basic::{ConvertedType, Type},
};

/// What makes the columns of batches whole.
pub(super) struct Whole {
    second: Option<ParquetRecordBatchReader>,
    /// Columns that are read twice.
    columns: Vec<usize>,
}

impl Whole {
    /// The second reading of a file, as far as one is needed. `again` is the file, opened once more.
    ///
    /// # Errors
    /// A sentence that names a column which cannot be read whole, and what to do about it.
    pub(super) fn new(
        first: &ParquetRecordBatchReaderBuilder<File>,
        again: File,
        rows: usize,
    ) -> Result<Self, String> {
        let parquet = first.parquet_schema();
        let mut columns = Vec::new();
        for (leaf, column) in parquet.columns().iter().enumerate() {
            let interval = column.converted_type() == ConvertedType::INTERVAL;
            if !interval && column.physical_type() != Type::INT96 {
                continue;
            }
            let root = parquet.get_column_root_idx(leaf);
            let nested = column.path().parts().len() > 1;
            let field = first.schema().fields().get(root).filter(|_| !nested);
            match field.and_then(|field| other(field.data_type())) {
                Some(_) => columns.push(root),
                None => return Err(refused(&column.path().string(), interval)),
            }
        }
        if columns.is_empty() {
            let second = None;
            return Ok(Self { second, columns });
        }
        let fields = first.schema().fields().iter().enumerate();
        let fields: Vec<Field> = fields
            .map(|(at, field)| {
                let kind = other(field.data_type()).filter(|_| columns.contains(&at));
                let kind = kind.unwrap_or_else(|| field.data_type().clone());
                field.as_ref().clone().with_data_type(kind)
            })
            .collect();
        let told = |error: parquet::errors::ParquetError| error.to_string();
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
        let second = ParquetRecordBatchReaderBuilder::try_new_with_options(again, options);
        let second = second.map_err(told)?;
        let mask = ProjectionMask::roots(second.parquet_schema(), columns.iter().copied());
        let second = second.with_projection(mask).with_batch_size(rows);
        let second = Some(second.build().map_err(told)?);
        Ok(Self { second, columns })
    }

    /// The next batch of the file, made whole. To be called with every batch, in order.
    ///
    /// # Errors
    /// A sentence that names the column, when a value of it has no form here.
    pub(super) fn next(&mut self, batch: RecordBatch) -> Result<RecordBatch, String> {
        let Some(second) = &mut self.second else {
            return Ok(batch);
        };
        let again = match second.next() {
            Some(again) => again.map_err(|error| error.to_string())?,
            None => return Err(String::from("it ended while it was read")),
        };
        if again.num_rows() != batch.num_rows() {
            return Err(String::from("it changed while it was read"));
        }
        let mut columns = batch.columns().to_vec();
        let mut fields: Vec<Field> = batch
            .schema()
            .fields()
            .iter()
            .map(|f| f.as_ref().clone())
            .collect();
        for (at, other) in self.columns.iter().zip(again.columns()) {
            let name = fields[*at].name().clone();
            let (one, other) = match columns[*at].data_type() {
                DataType::Interval(IntervalUnit::YearMonth)
                | DataType::Timestamp(TimeUnit::Microsecond, _) => (other, &columns[*at]),
                _ => (&columns[*at], other),
            };
            let joined = match one.data_type() {
                DataType::Interval(_) => interval(one, other),
                _ => moment(one, other)?.then(|| Arc::clone(other)),
            };
            let joined = joined
                .ok_or_else(|| refused(&name, matches!(one.data_type(), DataType::Interval(_))))?;
            fields[*at] = Field::new(name, joined.data_type().clone(), true);
            columns[*at] = joined;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
            .map_err(|error| error.to_string())
    }
}

fn refused(column: &str, interval: bool) -> String {
    match interval {
        true => format!(
            "column `{column}` has intervals where they cannot be read whole; write it as VARCHAR, or as numbers of \
             months, days and milliseconds"
        ),
        false => format!(
            "column `{column}` has moments of 96 bits that are no whole microseconds, or are inside of lists or structs; \
             write it as a timestamp of microseconds"
        ),
    }
}

/// The type of the second reading; none for one that has no second.
fn other(kind: &DataType) -> Option<DataType> {
    Some(match kind {
        DataType::Interval(IntervalUnit::DayTime) => DataType::Interval(IntervalUnit::YearMonth),
        DataType::Interval(IntervalUnit::YearMonth) => DataType::Interval(IntervalUnit::DayTime),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            DataType::Timestamp(TimeUnit::Nanosecond, zone.clone())
        }
        _ => return None,
    })
}

/// Days and milliseconds with their months.
fn interval(days: &ArrayRef, months: &ArrayRef) -> Option<ArrayRef> {
    let days = days.as_primitive_opt::<IntervalDayTimeType>()?;
    let months = months.as_primitive_opt::<IntervalYearMonthType>()?;
    let whole = days.iter().zip(months.iter()).map(|(days, months)| {
        let (days, months) = (days?, months?);
        // Parquet's three numbers have no sign.
        let nanos = i64::from(days.milliseconds.cast_unsigned()) * 1_000_000;
        Some(IntervalMonthDayNanoType::make_value(
            months, days.days, nanos,
        ))
    });
    Some(Arc::new(whole.collect::<IntervalMonthDayNanoArray>()))
}

/// Whether moments are whole microseconds. Both readings wrap around, at the same place.
fn moment(nanos: &ArrayRef, micros: &ArrayRef) -> Result<bool, String> {
    let unexpected = || String::from("its moments were read as something else");
    let nanos = nanos.as_primitive_opt::<TimestampNanosecondType>();
    let micros = micros.as_primitive_opt::<TimestampMicrosecondType>();
    let (nanos, micros) = (
        nanos.ok_or_else(unexpected)?,
        micros.ok_or_else(unexpected)?,
    );
    let mut pairs = nanos.iter().zip(micros.iter());
    Ok(pairs.all(|(nanos, micros)| nanos == micros.map(|micros| micros.wrapping_mul(1000))))
}
