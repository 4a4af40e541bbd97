//! Functions whose result can be far larger than their arguments: they are told how much they may make.
//!
//! The memory pool counts what operators hold, not what a function makes of one batch; `repeat('x', 2000000000)` would
//! take the process down before anybody counted. So the argument that says how much is wrapped in a function that
//! hands it through, or fails when the result of a batch would be too large.

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, Int64Array},
        compute::cast,
        datatypes::{DataType, Int64Type},
    },
    common::{
        DFSchema, Result, ScalarValue, config::ConfigOptions, exec_err, tree_node::Transformed,
    },
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
        expr::ScalarFunction, expr_rewriter::FunctionRewrite, lit,
    },
};

/// Most bytes one call may make of one batch.
const BYTES_MAX: u64 = 256 << 20;
/// Bytes of one element of a list or one character, about.
const UNIT: u64 = 8;

/// Wraps the argument that says how much.
#[derive(Debug)]
pub(crate) struct BoundGrowth;

impl FunctionRewrite for BoundGrowth {
    fn name(&self) -> &'static str {
        "bound_growth"
    }

    fn rewrite(&self, expr: Expr, _: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let Expr::ScalarFunction(ScalarFunction { func, mut args }) = expr else {
            return Ok(Transformed::no(expr));
        };
        // Which argument says how much, and what is multiplied.
        let (index, others) = match (func.name(), args.len()) {
            ("repeat" | "array_repeat", 2) => (1, vec![args[0].clone()]),
            ("lpad" | "rpad", 2..) | ("array_resize", 2..) => (1, Vec::new()),
            // Every byte of the text may become the replacement.
            ("replace", 3) => return Ok(Transformed::yes(replaced(func, args))),
            ("range" | "generate_series", 1) => (0, Vec::new()),
            ("range" | "generate_series", 2) => (1, vec![args[0].clone(), lit(1_i64)]),
            ("range" | "generate_series", 3) => (1, vec![args[0].clone(), args[2].clone()]),
            _ => {
                return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction {
                    func,
                    args,
                })));
            }
        };
        let bound = ScalarUDF::from(Bound {
            signature: signature(),
            series: others.len() == 2,
        });
        let bounded = std::iter::once(args[index].clone()).chain(others).collect();
        args[index] = bound.call(bounded);
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction {
            func,
            args,
        })))
    }
}

/// A replacement whose text is cut off from it when the result could be too large: as many replacements as the text has
/// bytes, of the replacement's length.
fn replaced(func: std::sync::Arc<ScalarUDF>, mut args: Vec<Expr>) -> Expr {
    let bound = ScalarUDF::from(BoundReplace {
        signature: signature(),
    });
    args[0] = bound.call(args.clone());
    Expr::ScalarFunction(ScalarFunction { func, args })
}

/// Hands its first argument, the text, through; fails when replacing its second by its third could make too much.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundReplace {
    signature: Signature,
}

impl ScalarUDFImpl for BoundReplace {
    fn name(&self) -> &'static str {
        "bound_replace"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        Ok(kinds.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, mut call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = call
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { call.number_rows };
        let lengths = call
            .args
            .iter()
            .map(|arg| Ok(lengths(&arg.to_array(rows)?)))
            .collect::<Result<Vec<_>>>()?;
        if let [text, from, to] = lengths.as_slice() {
            let bytes = (0..rows).fold(0_u64, |total, row| {
                let times = text[row] / from[row].max(1);
                total.saturating_add(times.saturating_mul(to[row]).max(text[row]))
            });
            if bytes > BYTES_MAX {
                return exec_err!("a function would make {bytes} bytes; the limit is {BYTES_MAX}");
            }
        }
        Ok(call.args.swap_remove(0))
    }
}

/// Bytes of each text; 0 where there is none.
fn lengths(values: &ArrayRef) -> Vec<u64> {
    let rows = 0..values.len();
    let length = |row: usize| match values.data_type() {
        _ if values.is_null(row) => 0,
        DataType::Utf8 => values.as_string::<i32>().value(row).len() as u64,
        DataType::LargeUtf8 => values.as_string::<i64>().value(row).len() as u64,
        DataType::Utf8View => values.as_string_view().value(row).len() as u64,
        _ => 0,
    };
    rows.map(length).collect()
}

fn signature() -> Signature {
    Signature::variadic_any(Volatility::Immutable)
}

/// Hands its first argument through. The others: nothing, the value that is repeated, or start and step of a series.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bound {
    signature: Signature,
    series: bool,
}

impl ScalarUDFImpl for Bound {
    fn name(&self) -> &str {
        if self.series {
            "bound_series"
        } else {
            "bound_count"
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        Ok(kinds.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, mut call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = call
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { call.number_rows };
        let arrays = call
            .args
            .iter()
            .map(|arg| arg.to_array(rows))
            .collect::<Result<Vec<_>>>()?;
        let bytes = match arrays.as_slice() {
            [stop, start, step] if self.series => series(stop, start, step),
            [count, value] => repeated(count, Some(value)),
            [count, ..] => repeated(count, None),
            [] => 0,
        };
        if bytes > BYTES_MAX {
            return exec_err!("a function would make {bytes} bytes; the limit is {BYTES_MAX}");
        }
        Ok(match call.args.is_empty() {
            true => ColumnarValue::Scalar(ScalarValue::Null),
            false => call.args.swap_remove(0),
        })
    }
}

/// Counts as numbers; none where they are not.
fn numbers(values: &ArrayRef) -> Option<Int64Array> {
    let values = cast(values, &DataType::Int64).ok()?;
    Some(values.as_primitive::<Int64Type>().clone())
}

fn repeated(counts: &ArrayRef, value: Option<&ArrayRef>) -> u64 {
    let Some(counts) = numbers(counts) else {
        return 0;
    };
    let size = |row: usize| match value {
        Some(value) if value.is_null(row) => 0,
        Some(value) => match value.data_type() {
            DataType::Utf8 => value.as_string::<i32>().value(row).len() as u64,
            DataType::LargeUtf8 => value.as_string::<i64>().value(row).len() as u64,
            DataType::Utf8View => value.as_string_view().value(row).len() as u64,
            _ => UNIT.max((value.get_array_memory_size() / value.len().max(1)) as u64),
        },
        None => UNIT,
    };
    let rows = counts.iter().enumerate();
    rows.fold(0, |total: u64, (row, count)| {
        let count = u64::try_from(count.unwrap_or(0)).unwrap_or(0);
        total.saturating_add(count.saturating_mul(size(row)))
    })
}

/// A series of moments is measured in microseconds, by steps of at least one.
fn series(stops: &ArrayRef, starts: &ArrayRef, steps: &ArrayRef) -> u64 {
    let (Some(stops), Some(starts)) = (numbers(stops), numbers(starts)) else {
        return 0;
    };
    let steps = if steps.data_type().is_integer() {
        numbers(steps)
    } else {
        None
    };
    let rows = 0..stops.len();
    rows.fold(0, |total: u64, row| {
        if stops.is_null(row) || starts.is_null(row) {
            return total;
        }
        let step = steps.as_ref().map_or(i64::MAX, |steps| steps.value(row));
        let length = stops.value(row).abs_diff(starts.value(row)) / step.unsigned_abs().max(1);
        total.saturating_add(length.saturating_mul(UNIT))
    })
}
