//! Types of landing columns: the SQL words of the state store and the Arrow types they stand for.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, Schema, SchemaRef, TimeUnit};
use domain::{SEQUENCE, items::Column};

use crate::{Error, Kind, Result};

/// The Arrow type of a column word; none when it is no such word. Case does not matter.
///
/// `BIGINT` Int64, `INTEGER` Int32, `DOUBLE` Float64, `VARCHAR` Utf8, `BOOLEAN` Boolean, `TIMESTAMP` microseconds
/// without zone (UTC by rule), `DATE` Date32, `DECIMAL(p,s)` Decimal128, `BLOB` Binary.
#[must_use]
pub fn data_type(kind: &str) -> Option<DataType> {
    Some(match kind.trim().to_ascii_uppercase().as_str() {
        "BIGINT" => DataType::Int64,
        "INTEGER" => DataType::Int32,
        "DOUBLE" => DataType::Float64,
        "VARCHAR" => DataType::Utf8,
        "BOOLEAN" => DataType::Boolean,
        "TIMESTAMP" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "DATE" => DataType::Date32,
        "BLOB" => DataType::Binary,
        other => {
            let (precision, scale) = other
                .strip_prefix("DECIMAL(")?
                .strip_suffix(')')?
                .split_once(',')?;
            let (precision, scale) = (
                precision.trim().parse::<u8>().ok()?,
                scale.trim().parse::<u8>().ok()?,
            );
            let valid = (1..=DECIMAL128_MAX_PRECISION).contains(&precision) && scale <= precision;
            valid.then_some(DataType::Decimal128(precision, scale.try_into().ok()?))?
        }
    })
}

/// The word of an Arrow type, for exactly the types that [`data_type`] gives; none for others.
#[must_use]
pub fn kind(data_type: &DataType) -> Option<String> {
    Some(match data_type {
        DataType::Int64 => "BIGINT".into(),
        DataType::Int32 => "INTEGER".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Utf8 => "VARCHAR".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP".into(),
        DataType::Date32 => "DATE".into(),
        // Of other scales there is no word: their JSON text is kept.
        DataType::Decimal128(precision, scale) if is_scale(*precision, *scale) => {
            format!("DECIMAL({precision},{scale})")
        }
        DataType::Binary => "BLOB".into(),
        _ => return None,
    })
}

/// Whether the digits after the point are among the digits, as SQL has it.
fn is_scale(precision: u8, scale: i8) -> bool {
    u8::try_from(scale).is_ok_and(|scale| scale <= precision)
}

/// A column type in SQL words, for people: any type has some.
#[must_use]
pub fn word(kind: &DataType) -> String {
    let word = match kind {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "UTINYINT",
        DataType::UInt16 => "USMALLINT",
        DataType::UInt32 => "UINTEGER",
        DataType::UInt64 => "UBIGINT",
        DataType::Float16 | DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "BLOB",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP_NS",
        DataType::Timestamp(_, None) => "TIMESTAMP",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Interval(_) => "INTERVAL",
        DataType::Null => "NULL",
        DataType::Union(_, _) => "JSON",
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => return format!("DECIMAL({precision},{scale})"),
        DataType::Dictionary(_, values) => return word(values),
        DataType::List(item) | DataType::LargeList(item) => {
            return format!("{}[]", word(item.data_type()));
        }
        other => return other.to_string(),
    };
    word.to_owned()
}

/// The type that keeps every value of `data_type` in a landing table: itself, or the next wider one. Lists, structs
/// and what else has no word are kept as their JSON text, `VARCHAR`. Moments that are no whole microseconds have no form.
#[must_use]
pub fn widened(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 | DataType::Float32 => DataType::Float64,
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale)
            if is_scale(*precision, *scale) =>
        {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Dictionary(_, value) => widened(value),
        other if kind(other).is_some() => other.clone(),
        _ => DataType::Utf8,
    }
}

/// The fields of a landing table's columns, all nullable, without the sequence column.
///
/// # Errors
/// `Corrupt` names the column whose type is no known word.
pub fn fields(table: &domain::TableName, columns: &[Column]) -> Result<Vec<Field>> {
    columns
        .iter()
        .map(|column| match data_type(&column.kind) {
            Some(data_type) => Ok(Field::new(&column.name, data_type, true)),
            None => Err(
                Error::new(Kind::Corrupt, "read columns of", table).because(format!(
                    "column `{}` has the unknown type `{}`",
                    column.name, column.kind
                )),
            ),
        })
        .collect()
}

/// The schema readers see: the columns, then the sequence column.
///
/// # Errors
/// As [`fields`].
pub fn schema(table: &domain::TableName, columns: &[Column]) -> Result<SchemaRef> {
    let mut fields = fields(table, columns)?;
    fields.push(Field::new(SEQUENCE, DataType::Int64, true));
    Ok(Arc::new(Schema::new(fields)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_for_one_type_and_back() {
        for word in [
            "BIGINT",
            "INTEGER",
            "DOUBLE",
            "VARCHAR",
            "BOOLEAN",
            "TIMESTAMP",
            "DATE",
            "BLOB",
            "DECIMAL(38,0)",
            "DECIMAL(12,2)",
        ] {
            let found = data_type(word).and_then(|data_type| kind(&data_type));
            assert_eq!(found.as_deref(), Some(word));
        }
        assert_eq!(
            data_type("decimal( 9 , 3 )"),
            Some(DataType::Decimal128(9, 3))
        );
        for other in [
            DataType::Decimal128(10, -2),
            DataType::Decimal128(3, 4),
            DataType::Decimal64(10, -2),
            DataType::Decimal256(50, 2),
        ] {
            assert_eq!(kind(&other), None, "{other}");
            assert_eq!(widened(&other), DataType::Utf8, "{other}");
        }
        for bad in [
            "",
            "TEXT",
            "DECIMAL",
            "DECIMAL(39,0)",
            "DECIMAL(0,0)",
            "DECIMAL(3,4)",
        ] {
            assert_eq!(data_type(bad), None, "{bad}");
        }
    }
}
