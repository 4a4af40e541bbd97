//! Column bounds: from the statistics of a parquet file, as Iceberg stores them, and as readers use them.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
        Float32Array, Float64Array, Int32Array, Int64Array, StringArray, Time64MicrosecondArray,
        TimestampMicrosecondArray, UInt64Array,
    },
    compute::{SortOptions, sort_to_indices, take},
    datatypes::{DataType, Field, Schema},
};
use iceberg::spec::{DataFile, Datum, NestedField, PrimitiveLiteral, PrimitiveType, Type};
use parquet::{
    arrow::arrow_reader::statistics::StatisticsConverter, file::metadata::ParquetMetaData,
};
use ports::tables::Bounds;

use super::{columns::Columns, types};

/// Bounds of every top-level column that is not nested, by name, from a file's footer.
pub(crate) fn from_footer(columns: &Columns, footer: &ParquetMetaData) -> BTreeMap<String, Bounds> {
    let fields = columns
        .file
        .fields()
        .iter()
        .filter(|f| !f.data_type().is_nested());
    fields
        .filter_map(|f| Some((f.name().clone(), of_column(&columns.file, f, footer)?)))
        .collect()
}

fn of_column(schema: &Schema, field: &Field, footer: &ParquetMetaData) -> Option<Bounds> {
    let groups = footer.row_groups();
    let parquet = footer.file_metadata().schema_descr();
    let converter = StatisticsConverter::try_new(field.name(), schema, parquet).ok()?;
    let nulls = converter.row_group_null_counts(groups).ok()?;
    let full: Vec<bool> = groups
        .iter()
        .enumerate()
        .map(|(at, group)| nulls.is_valid(at) && nulls.value(at) == group.num_rows() as u64)
        .collect();
    let end = |each: ArrayRef, descending| {
        // A row group without statistics bounds nothing, unless it holds nothing but NULL.
        let known = (0..each.len()).all(|at| each.is_valid(at) || full[at]);
        known.then(|| extreme(&each, descending)).flatten()
    };
    Some(Bounds {
        min: converter
            .row_group_mins(groups)
            .ok()
            .and_then(|mins| end(mins, false)),
        max: converter
            .row_group_maxes(groups)
            .ok()
            .and_then(|maxes| end(maxes, true)),
        nulls: sum(&nulls),
    })
}

fn sum(counts: &UInt64Array) -> Option<u64> {
    (counts.null_count() == 0).then(|| counts.values().iter().sum())
}

fn extreme(each: &ArrayRef, descending: bool) -> Option<ArrayRef> {
    let options = SortOptions {
        descending,
        nulls_first: false,
    };
    let first = sort_to_indices(each, Some(options), Some(1)).ok()?;
    take(each, &first, None)
        .ok()
        .filter(|one| one.len() == 1 && one.is_valid(0))
}

/// Iceberg's bounds of a file by field id.
pub(crate) struct Metrics {
    pub lower: std::collections::HashMap<i32, Datum>,
    pub upper: std::collections::HashMap<i32, Datum>,
    pub nulls: std::collections::HashMap<i32, u64>,
    pub values: std::collections::HashMap<i32, u64>,
    pub sizes: std::collections::HashMap<i32, u64>,
}

impl Metrics {
    /// Of a file with these bounds.
    pub(crate) fn new(
        columns: &Columns,
        bounds: &BTreeMap<String, Bounds>,
        footer: &ParquetMetaData,
    ) -> Self {
        let mut sizes = std::collections::HashMap::new();
        for group in footer.row_groups() {
            for column in group.columns() {
                let info = column.column_descr().self_type().get_basic_info();
                let size = u64::try_from(column.compressed_size()).unwrap_or(0);
                if info.has_id() {
                    *sizes.entry(info.id()).or_insert(0) += size;
                }
            }
        }
        let known = || {
            let fields = columns.iceberg.as_struct().fields().iter();
            fields.filter_map(|f| Some((f, bounds.get(&f.name)?)))
        };
        let ends = |end: fn(&Bounds) -> &Option<ArrayRef>| {
            known()
                .filter_map(|(f, b)| Some((f.id, datum(f, end(b).as_ref()?)?)))
                .collect()
        };
        let rows = u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
        Self {
            lower: ends(|b| &b.min),
            upper: ends(|b| &b.max),
            nulls: known()
                .filter_map(|(f, b)| Some((f.id, b.nulls?)))
                .collect(),
            values: known().map(|(f, _)| (f.id, rows)).collect(),
            sizes,
        }
    }
}

/// One value as Iceberg's.
fn datum(field: &NestedField, one: &ArrayRef) -> Option<Datum> {
    let Type::Primitive(kind) = field.field_type.as_ref() else {
        return None;
    };
    let bytes = match one.data_type() {
        DataType::Boolean => vec![u8::from(one.as_boolean().value(0))],
        DataType::Utf8 => one.as_string::<i32>().value(0).as_bytes().to_vec(),
        DataType::Binary => one.as_binary::<i32>().value(0).to_vec(),
        DataType::Decimal128(..) => one
            .as_any()
            .downcast_ref::<Decimal128Array>()?
            .value(0)
            .to_be_bytes()
            .to_vec(),
        fixed => {
            let width = fixed.primitive_width()?;
            one.to_data()
                .buffers()
                .first()?
                .as_slice()
                .get(..width)?
                .to_vec()
        }
    };
    Datum::try_from_bytes(&bytes, kind.clone()).ok()
}

/// Bounds of a file read back from a manifest, under the names its columns have now.
pub(crate) fn from_manifest(columns: &Columns, file: &DataFile) -> BTreeMap<String, Bounds> {
    let fields = columns.iceberg.as_struct().fields().iter();
    fields
        .filter(|f| f.field_type.is_primitive())
        .filter_map(|f| {
            let nulls = file.null_value_counts().get(&f.id).copied();
            let one = |datum: &Datum| array(f, datum.literal());
            let min = file.lower_bounds().get(&f.id).and_then(one);
            let max = file.upper_bounds().get(&f.id).and_then(one);
            let known = min.is_some() || max.is_some() || nulls.is_some();
            known.then(|| (f.name.clone(), Bounds { min, max, nulls }))
        })
        .collect()
}

fn array(field: &NestedField, literal: &PrimitiveLiteral) -> Option<ArrayRef> {
    let Type::Primitive(kind) = field.field_type.as_ref() else {
        return None;
    };
    Some(match (kind, literal) {
        (PrimitiveType::Boolean, PrimitiveLiteral::Boolean(v)) => {
            Arc::new(BooleanArray::from(vec![*v]))
        }
        (PrimitiveType::Int, PrimitiveLiteral::Int(v)) => Arc::new(Int32Array::from(vec![*v])),
        (PrimitiveType::Date, PrimitiveLiteral::Int(v)) => Arc::new(Date32Array::from(vec![*v])),
        (PrimitiveType::Long, PrimitiveLiteral::Long(v)) => Arc::new(Int64Array::from(vec![*v])),
        (PrimitiveType::Time, PrimitiveLiteral::Long(v)) => {
            Arc::new(Time64MicrosecondArray::from(vec![*v]))
        }
        (PrimitiveType::Timestamp, PrimitiveLiteral::Long(v)) => {
            Arc::new(TimestampMicrosecondArray::from(vec![*v]))
        }
        (PrimitiveType::Timestamptz, PrimitiveLiteral::Long(v)) => {
            Arc::new(TimestampMicrosecondArray::from(vec![*v]).with_timezone("UTC"))
        }
        (PrimitiveType::Float, PrimitiveLiteral::Float(v)) => {
            Arc::new(Float32Array::from(vec![v.0]))
        }
        (PrimitiveType::Double, PrimitiveLiteral::Double(v)) => {
            Arc::new(Float64Array::from(vec![v.0]))
        }
        (PrimitiveType::String, PrimitiveLiteral::String(v)) => {
            Arc::new(StringArray::from(vec![v.as_str()]))
        }
        (PrimitiveType::Binary, PrimitiveLiteral::Binary(v)) => {
            Arc::new(BinaryArray::from(vec![v.as_slice()]))
        }
        (PrimitiveType::Decimal { .. }, PrimitiveLiteral::Int128(v)) => {
            let field = types::to_arrow(field, types::Ids::Left)?;
            Arc::new(Decimal128Array::from(vec![*v]).with_data_type(field.data_type().clone()))
        }
        _ => return None,
    })
}
