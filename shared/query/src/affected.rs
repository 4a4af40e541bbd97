//! `_affected(a, b)`: whether a row's values are among rows that came with the catalog.
//!
//! A function rather than a join, because the planner moves a condition on key columns through projections, groups,
//! windows and unions down to the scans, however many keys there are.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, RecordBatch},
        compute::cast,
        datatypes::{DataType, Float32Type, Float64Type, Int64Type},
        row::{OwnedRow, RowConverter, SortField},
    },
    common::{HashSet, Result, exec_err},
    logical_expr::{
        ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};
use ports::query::AFFECTED;

/// The function over these rows; none when there are none.
pub(crate) fn function(rows: &[RecordBatch]) -> Result<Option<Arc<ScalarUDF>>> {
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let fields = first.schema_ref().fields();
    let kinds: Vec<DataType> = fields
        .iter()
        .map(|field| field.data_type().clone())
        .collect();
    let affected = Affected {
        signature: Signature::exact(kinds.clone(), Volatility::Immutable),
        values: Arc::new(Values::new(&kinds, rows)?),
    };
    Ok(Some(Arc::new(ScalarUDF::from(affected))))
}

#[derive(Debug)]
struct Affected {
    signature: Signature,
    values: Arc<Values>,
}

impl PartialEq for Affected {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.values, &other.values)
    }
}

impl Eq for Affected {}

impl Hash for Affected {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.values).hash(state);
    }
}

/// What is looked for.
#[derive(Debug)]
enum Values {
    /// One column of whole numbers or moments.
    Numbers { set: HashSet<i64>, null: bool },
    /// One column of text.
    Text { set: HashSet<String>, null: bool },
    /// Anything else.
    Rows {
        set: HashSet<OwnedRow>,
        fields: Vec<SortField>,
    },
}

/// Whether values of a type are told apart by 64 bits.
fn is_number(kind: &DataType) -> bool {
    kind.is_integer() && *kind != DataType::UInt64
        || matches!(
            kind,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
        )
}

fn numbers(column: &ArrayRef) -> Result<ArrayRef> {
    let column = match column.data_type() {
        DataType::Date32 => cast(column, &DataType::Int32)?,
        _ => Arc::clone(column),
    };
    Ok(cast(&column, &DataType::Int64)?)
}

fn is_text(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

impl Values {
    fn new(kinds: &[DataType], rows: &[RecordBatch]) -> Result<Self> {
        match kinds {
            [kind] if is_number(kind) => {
                let (mut set, mut null) = (HashSet::new(), false);
                for batch in rows {
                    let column = numbers(batch.column(0))?;
                    null |= column.null_count() > 0;
                    set.extend(column.as_primitive::<Int64Type>().iter().flatten());
                }
                Ok(Self::Numbers { set, null })
            }
            [kind] if is_text(kind) => {
                let (mut set, mut null) = (HashSet::new(), false);
                for batch in rows {
                    let column = cast(batch.column(0), &DataType::Utf8)?;
                    null |= column.null_count() > 0;
                    let texts = column.as_string::<i32>().iter().flatten();
                    set.extend(texts.map(str::to_owned));
                }
                Ok(Self::Text { set, null })
            }
            kinds => {
                let fields: Vec<SortField> = kinds.iter().cloned().map(SortField::new).collect();
                let converter = RowConverter::new(fields.clone())?;
                let mut set = HashSet::new();
                for batch in rows {
                    let rows = converter.convert_columns(&one_spelling(batch.columns()))?;
                    set.extend(rows.iter().map(|row| row.owned()));
                }
                Ok(Self::Rows { set, fields })
            }
        }
    }

    fn among(&self, columns: &[ArrayRef]) -> Result<BooleanArray> {
        match self {
            Self::Numbers { set, null } => {
                let column = numbers(&columns[0])?;
                let values = column.as_primitive::<Int64Type>();
                Ok(match values.null_count() {
                    0 => values
                        .values()
                        .iter()
                        .map(|v| Some(set.contains(v)))
                        .collect(),
                    _ => values
                        .iter()
                        .map(|v| Some(v.map_or(*null, |v| set.contains(&v))))
                        .collect(),
                })
            }
            Self::Text { set, null } => {
                let column = cast(&columns[0], &DataType::Utf8)?;
                let values = column.as_string::<i32>().iter();
                Ok(values
                    .map(|v| Some(v.map_or(*null, |v| set.contains(v))))
                    .collect())
            }
            Self::Rows { set, fields } => {
                let converter = RowConverter::new(fields.clone())?;
                let rows = converter.convert_columns(&one_spelling(columns))?;
                Ok(rows
                    .iter()
                    .map(|row| Some(set.contains(&row.owned())))
                    .collect())
            }
        }
    }
}

/// Columns in which equal numbers look equal: one zero, one NaN.
fn one_spelling(columns: &[ArrayRef]) -> Vec<ArrayRef> {
    let one = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Float64 => Arc::new(
                column
                    .as_primitive::<Float64Type>()
                    .iter()
                    .map(|v| v.map(|v| if v.is_nan() { f64::NAN } else { v + 0.0 }))
                    .collect::<Float64Array>(),
            ),
            DataType::Float32 => Arc::new(
                column
                    .as_primitive::<Float32Type>()
                    .iter()
                    .map(|v| v.map(|v| if v.is_nan() { f32::NAN } else { v + 0.0 }))
                    .collect::<Float32Array>(),
            ),
            _ => Arc::clone(column),
        }
    };
    columns.iter().map(one).collect()
}

impl ScalarUDFImpl for Affected {
    fn name(&self) -> &'static str {
        AFFECTED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = call.number_rows;
        let columns = call.args.iter().map(|arg| arg.to_array(rows));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        if columns.is_empty() {
            return exec_err!("{AFFECTED} needs a column");
        }
        Ok(ColumnarValue::Array(Arc::new(self.values.among(&columns)?)))
    }
}
