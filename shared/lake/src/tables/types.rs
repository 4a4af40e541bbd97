//! Column types: what a query yields, what a table stores, and the same in Iceberg's words.
//!
//! A table stores one *canonical* Arrow type per Iceberg type, so that what is read does not depend on what was written
//! first: `Utf8View` is stored and read as `Utf8`, any timestamp as microseconds, small integers as `Int32`.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use iceberg::spec::{ListType, MapType, NestedField, PrimitiveType, StructType, Type};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

/// Largest precision an Iceberg decimal has.
const DECIMAL_PRECISION_MAX: u8 = 38;

/// The type a column is stored and read as; none when a table cannot hold it.
pub(crate) fn canonical(given: &DataType) -> Option<DataType> {
    Some(match given {
        DataType::Boolean => DataType::Boolean,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => {
            DataType::Int32
        }
        DataType::Int64 | DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 | DataType::Float32 => DataType::Float32,
        DataType::Float64 => DataType::Float64,
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => decimal(*p, *s)?,
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            DataType::Utf8
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date32 => DataType::Date32,
        DataType::Date64 | DataType::Timestamp(_, None) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        DataType::Timestamp(_, Some(_)) => utc(),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _)
        | DataType::ListView(element)
        | DataType::LargeListView(element) => DataType::List(Arc::new(Field::new(
            "element",
            canonical(element.data_type())?,
            true,
        ))),
        DataType::Struct(fields) if !fields.is_empty() => DataType::Struct(
            fields
                .iter()
                .map(|f| Some(Field::new(f.name(), canonical(f.data_type())?, true)))
                .collect::<Option<Fields>>()?,
        ),
        DataType::Map(entries, _) => {
            let DataType::Struct(pair) = entries.data_type() else {
                return None;
            };
            let [key, value] = pair.as_ref() else {
                return None;
            };
            map(
                Arc::new(Field::new("key", canonical(key.data_type())?, false)),
                Arc::new(Field::new("value", canonical(value.data_type())?, true)),
            )
        }
        DataType::Dictionary(_, value) => canonical(value)?,
        DataType::RunEndEncoded(_, value) => canonical(value.data_type())?,
        DataType::Struct(_)
        | DataType::Duration(_)
        | DataType::Interval(_)
        | DataType::Union(_, _) => return None,
    })
}

fn decimal(precision: u8, scale: i8) -> Option<DataType> {
    // Iceberg has no negative scale: the digits before the point grow instead.
    let (precision, scale) = if scale < 0 {
        (precision.checked_add(scale.unsigned_abs())?, 0)
    } else {
        (precision, scale)
    };
    (precision <= DECIMAL_PRECISION_MAX).then_some(DataType::Decimal128(precision, scale))
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn map(key: FieldRef, value: FieldRef) -> DataType {
    let entries = DataType::Struct(Fields::from(vec![key, value]));
    DataType::Map(Arc::new(Field::new("key_value", entries, false)), false)
}

/// A canonical type as Iceberg's; nested fields take their ids from `id`. None when `kind` is not canonical.
pub(crate) fn to_iceberg(kind: &DataType, id: &mut impl FnMut() -> i32) -> Option<Type> {
    Some(match kind {
        DataType::Boolean => Type::Primitive(PrimitiveType::Boolean),
        DataType::Int32 => Type::Primitive(PrimitiveType::Int),
        DataType::Int64 => Type::Primitive(PrimitiveType::Long),
        DataType::Float32 => Type::Primitive(PrimitiveType::Float),
        DataType::Float64 => Type::Primitive(PrimitiveType::Double),
        DataType::Decimal128(precision, scale) => Type::Primitive(PrimitiveType::Decimal {
            precision: u32::from(*precision),
            scale: u32::try_from(*scale).ok()?,
        }),
        DataType::Utf8 => Type::Primitive(PrimitiveType::String),
        DataType::Binary => Type::Primitive(PrimitiveType::Binary),
        DataType::Date32 => Type::Primitive(PrimitiveType::Date),
        DataType::Time64(TimeUnit::Microsecond) => Type::Primitive(PrimitiveType::Time),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            Type::Primitive(PrimitiveType::Timestamp)
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            Type::Primitive(PrimitiveType::Timestamptz)
        }
        DataType::List(element) => {
            let element_id = id();
            let kind = to_iceberg(element.data_type(), id)?;
            Type::List(ListType::new(Arc::new(NestedField::list_element(
                element_id, kind, false,
            ))))
        }
        DataType::Struct(fields) => {
            let ids: Vec<i32> = fields.iter().map(|_| id()).collect();
            let fields = fields.iter().zip(ids).map(|(field, field_id)| {
                let kind = to_iceberg(field.data_type(), id)?;
                Some(Arc::new(NestedField::optional(
                    field_id,
                    field.name(),
                    kind,
                )))
            });
            Type::Struct(StructType::new(fields.collect::<Option<Vec<_>>>()?))
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(pair) = entries.data_type() else {
                return None;
            };
            let [key, value] = pair.as_ref() else {
                return None;
            };
            let (key_id, value_id) = (id(), id());
            let key = to_iceberg(key.data_type(), id)?;
            let value = to_iceberg(value.data_type(), id)?;
            Type::Map(MapType::optional(key_id, key, value_id, value))
        }
        _ => return None,
    })
}

/// Whether the Arrow fields made from Iceberg's carry their ids, as parquet files need, or not, as readers see them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    Kept,
    Left,
}

/// An Iceberg field as an Arrow field; none when it has a type no table of ours has.
pub(crate) fn to_arrow(field: &NestedField, ids: Ids) -> Option<Field> {
    let arrow = Field::new(&field.name, kind(&field.field_type, ids)?, !field.required);
    Some(match ids {
        Ids::Left => arrow,
        Ids::Kept => arrow
            .with_metadata([(PARQUET_FIELD_ID_META_KEY.to_owned(), field.id.to_string())].into()),
    })
}

fn kind(iceberg: &Type, ids: Ids) -> Option<DataType> {
    Some(match iceberg {
        Type::Primitive(primitive) => primitive_kind(primitive)?,
        Type::List(list) => {
            let element = to_arrow(&list.element_field, ids)?.with_name("element");
            DataType::List(Arc::new(element))
        }
        Type::Struct(fields) => DataType::Struct(
            fields
                .fields()
                .iter()
                .map(|f| to_arrow(f, ids))
                .collect::<Option<Fields>>()?,
        ),
        Type::Map(entries) => map(
            Arc::new(to_arrow(&entries.key_field, ids)?.with_nullable(false)),
            Arc::new(to_arrow(&entries.value_field, ids)?),
        ),
    })
}

fn primitive_kind(primitive: &PrimitiveType) -> Option<DataType> {
    Some(match primitive {
        PrimitiveType::Boolean => DataType::Boolean,
        PrimitiveType::Int => DataType::Int32,
        PrimitiveType::Long => DataType::Int64,
        PrimitiveType::Float => DataType::Float32,
        PrimitiveType::Double => DataType::Float64,
        PrimitiveType::Decimal { precision, scale } => {
            DataType::Decimal128(u8::try_from(*precision).ok()?, i8::try_from(*scale).ok()?)
        }
        PrimitiveType::String => DataType::Utf8,
        PrimitiveType::Binary => DataType::Binary,
        PrimitiveType::Date => DataType::Date32,
        PrimitiveType::Time => DataType::Time64(TimeUnit::Microsecond),
        PrimitiveType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        PrimitiveType::Timestamptz => utc(),
        PrimitiveType::Uuid
        | PrimitiveType::Fixed(_)
        | PrimitiveType::TimestampNs
        | PrimitiveType::TimestamptzNs => return None,
    })
}

/// A canonical type in SQL words, for messages.
pub(crate) fn word(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int32 => "INTEGER".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "REAL".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::Utf8 => "VARCHAR".into(),
        DataType::Binary => "BLOB".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Time64(_) => "TIME".into(),
        DataType::Timestamp(_, None) => "TIMESTAMP".into(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMPTZ".into(),
        nested => nested.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_canonical_type_survives_iceberg() {
        let element = |kind| Arc::new(Field::new("item", kind, true));
        let entries = Fields::from(vec![
            Field::new("keys", DataType::Utf8View, false),
            Field::new("values", DataType::UInt32, true),
        ]);
        for given in [
            DataType::Int8,
            DataType::UInt64,
            DataType::Null,
            DataType::Timestamp(TimeUnit::Nanosecond, Some("+02:00".into())),
            DataType::Time32(TimeUnit::Second),
            DataType::Decimal128(10, -2),
            DataType::LargeList(element(DataType::Struct(Fields::from(vec![Field::new(
                "a",
                DataType::Float16,
                false,
            )])))),
            DataType::Map(
                Arc::new(Field::new("entries", DataType::Struct(entries), false)),
                false,
            ),
        ] {
            let stored = canonical(&given).expect("supported");
            assert_eq!(
                canonical(&stored).as_ref(),
                Some(&stored),
                "{given} is settled at once"
            );
            let mut last = 0;
            let iceberg = to_iceberg(&stored, &mut || {
                last += 1;
                last
            });
            let read = kind(&iceberg.expect("canonical"), Ids::Left);
            assert_eq!(read, Some(stored));
        }
    }

    #[test]
    fn what_no_table_holds_has_no_canonical_type() {
        for given in [
            DataType::Decimal256(50, 2),
            DataType::Struct(Fields::empty()),
        ] {
            assert_eq!(canonical(&given), None, "{given}");
        }
    }
}
