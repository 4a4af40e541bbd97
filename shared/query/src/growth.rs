//! Functions whose result can be far larger than their arguments: what they may make is bounded.
//!
//! The memory pool counts what operators hold, not what a function makes of one batch; `repeat('x', 2000000000)` would
//! take the process down before anybody counted. So such a function is called through one that first works out, from the
//! values it is called with, how large the result can become, and fails when that is too large.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray},
        compute::cast,
        datatypes::{DataType, FieldRef, Int64Type},
    },
    common::{
        DFSchema, Result, ScalarValue, config::ConfigOptions, exec_err, tree_node::Transformed,
    },
    logical_expr::{
        ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
        Signature, expr::ScalarFunction, expr_rewriter::FunctionRewrite,
    },
};

/// Most bytes one call may make of one batch.
const BYTES_MAX: u64 = 256 << 20;
/// Bytes of one element of a list or one character, about.
const UNIT: u64 = 8;

/// Puts [`Guarded`] in the place of the functions that can make much.
#[derive(Debug)]
pub(crate) struct BoundGrowth;

impl FunctionRewrite for BoundGrowth {
    fn name(&self) -> &'static str {
        "bound_growth"
    }

    fn rewrite(&self, expr: Expr, _: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::ScalarFunction(ScalarFunction { func, args })
                if grows(func.name(), args.len()) && !func.inner().is::<Guarded>() =>
            {
                let guarded = ScalarUDF::from(Guarded { inner: func });
                Transformed::yes(guarded.call(args))
            }
            other => Transformed::no(other),
        })
    }
}

fn grows(name: &str, args: usize) -> bool {
    match name {
        "repeat" | "array_repeat" => args == 2,
        "lpad" | "rpad" | "array_resize" | "array_to_string" => args >= 2,
        "replace" => args == 3,
        "range" | "generate_series" => (1..=3).contains(&args),
        "concat" | "concat_ws" | "array_concat" => args >= 1,
        _ => false,
    }
}

/// Refuses to make too much.
///
/// # Errors
/// `bytes` are more than one call may make.
pub(crate) fn allow(bytes: u64) -> Result<()> {
    if bytes > BYTES_MAX {
        return exec_err!("a function would make {bytes} bytes; the limit is {BYTES_MAX}");
    }
    Ok(())
}

/// A function that is not called when it would make too much. Its arguments are looked at where they are: an expression
/// that named them twice would double with each level of a nest.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Guarded {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Guarded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        self.inner.return_type(kinds)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, kinds: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(kinds)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        allow(bytes(self.inner.name(), &call.args, call.number_rows)?)?;
        self.inner.invoke_with_args(call)
    }
}

/// About the most bytes that a call can make.
fn bytes(name: &str, args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let constant = args
        .iter()
        .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { rows };
    Ok(match (name, args) {
        ("repeat" | "array_repeat", [value, count]) => {
            let sizes = sizes(value, rows);
            sum(rows, &numbers(count)?, |row, count| {
                count.saturating_mul(sizes(row))
            })
        }
        ("lpad" | "rpad" | "array_resize", [_, count, ..]) => {
            sum(rows, &numbers(count)?, |_, count| {
                count.saturating_mul(UNIT)
            })
        }
        ("replace", [text, from, to]) => {
            let (text, from, to) = (sizes(text, rows), sizes(from, rows), sizes(to, rows));
            (0..rows).fold(0_u64, |total, row| {
                // As many replacements as the text has bytes, at most.
                let times = text(row) / from(row).max(1);
                total.saturating_add(times.saturating_mul(to(row)).max(text(row)))
            })
        }
        ("range" | "generate_series", [stop]) => {
            sum(rows, &numbers(stop)?, |_, stop| stop.saturating_mul(UNIT))
        }
        ("range" | "generate_series", [start, stop, step @ ..]) => {
            series(start, stop, step.first(), rows)?
        }
        ("concat_ws", [between, parts @ ..]) => {
            let between = total(between, rows).saturating_mul(parts.len() as u64);
            parts
                .iter()
                .fold(between, |sum, part| sum.saturating_add(total(part, rows)))
        }
        ("array_to_string", [list, between, ..]) => {
            let elements = match list {
                ColumnarValue::Array(list) => elements(list),
                ColumnarValue::Scalar(list) => {
                    elements(&list.to_array()?).saturating_mul(rows as u64)
                }
            };
            let longest = (0..rows).map(sizes(between, rows)).max().unwrap_or(0);
            total(list, rows).saturating_add(elements.saturating_mul(longest))
        }
        (_, parts) => parts
            .iter()
            .fold(0, |sum, part| sum.saturating_add(total(part, rows))),
    })
}

/// Bytes of all rows.
pub(crate) fn total(arg: &ColumnarValue, rows: usize) -> u64 {
    match arg {
        // Arrow counts the views of texts and not the texts.
        ColumnarValue::Array(values) if *values.data_type() == DataType::Utf8View => {
            values.as_string_view().lengths().map(u64::from).sum()
        }
        ColumnarValue::Array(values) => {
            let data = values.to_data();
            let bytes = data.get_slice_memory_size();
            bytes.unwrap_or_else(|_| values.get_array_memory_size()) as u64
        }
        ColumnarValue::Scalar(value) => scalar(value).saturating_mul(rows as u64),
    }
}

/// Bytes of the value in each row; 0 where there is none.
fn sizes(arg: &ColumnarValue, rows: usize) -> impl Fn(usize) -> u64 {
    let sizes: Vec<u64> = match arg {
        ColumnarValue::Scalar(value) => vec![scalar(value)],
        ColumnarValue::Array(values) => {
            let other = UNIT.max(total(arg, rows) / (values.len().max(1) as u64));
            let size = |row| match values.data_type() {
                _ if values.is_null(row) => 0,
                DataType::Utf8 => values.as_string::<i32>().value(row).len() as u64,
                DataType::LargeUtf8 => values.as_string::<i64>().value(row).len() as u64,
                DataType::Utf8View => values.as_string_view().value(row).len() as u64,
                _ => other,
            };
            (0..values.len()).map(size).collect()
        }
    };
    move |row| of_row(&sizes, row).copied().unwrap_or(0)
}

fn scalar(value: &ScalarValue) -> u64 {
    match value.try_as_str() {
        Some(text) => text.map_or(0, str::len) as u64,
        None if value.is_null() => 0,
        None => value.size() as u64,
    }
}

/// The value of a row; a constant has one for all.
fn of_row<T>(values: &[T], row: usize) -> Option<&T> {
    match values {
        [only] => Some(only),
        many => many.get(row),
    }
}

/// Numbers, none where they are not; one for all rows when they are constant.
fn numbers(arg: &ColumnarValue) -> Result<Vec<Option<i64>>> {
    let values: ArrayRef = match arg {
        ColumnarValue::Array(values) => Arc::clone(values),
        ColumnarValue::Scalar(value) => value.to_array()?,
    };
    // What is no number makes nothing.
    let Ok(numbers) = cast(&values, &DataType::Int64) else {
        return Ok(vec![None]);
    };
    Ok(numbers.as_primitive::<Int64Type>().iter().collect())
}

/// What each row's count makes, together.
fn sum(rows: usize, counts: &[Option<i64>], make: impl Fn(usize, u64) -> u64) -> u64 {
    (0..rows).fold(0, |total: u64, row| {
        let count = of_row(counts, row).copied().flatten();
        let count = u64::try_from(count.unwrap_or(0)).unwrap_or(0);
        total.saturating_add(make(row, count))
    })
}

/// A series of moments is measured in microseconds, by steps of at least one.
fn series(
    start: &ColumnarValue,
    stop: &ColumnarValue,
    step: Option<&ColumnarValue>,
    rows: usize,
) -> Result<u64> {
    let (starts, stops) = (numbers(start)?, numbers(stop)?);
    let steps = match step {
        Some(step) if step.data_type().is_integer() => numbers(step)?,
        Some(_) => vec![Some(i64::MAX)],
        None => vec![Some(1)],
    };
    Ok((0..rows).fold(0, |total: u64, row| {
        let of = |values: &[Option<i64>]| of_row(values, row).copied().flatten();
        let (Some(start), Some(stop)) = (of(&starts), of(&stops)) else {
            return total;
        };
        let step = of(&steps).unwrap_or(1);
        let length = stop.abs_diff(start) / step.unsigned_abs().max(1);
        total.saturating_add(length.saturating_mul(UNIT))
    }))
}

/// Elements of all lists.
fn elements(lists: &ArrayRef) -> u64 {
    let ends = |first: Option<i64>, last: Option<i64>| match (first, last) {
        (Some(first), Some(last)) => last.abs_diff(first),
        _ => 0,
    };
    if let Some(lists) = lists.as_list_opt::<i32>() {
        let offsets = lists.value_offsets();
        return ends(
            offsets.first().map(|end| i64::from(*end)),
            offsets.last().map(|end| i64::from(*end)),
        );
    }
    match lists.as_list_opt::<i64>() {
        Some(lists) => {
            let offsets = lists.value_offsets();
            ends(offsets.first().copied(), offsets.last().copied())
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{StringArray, StringViewArray};

    use super::*;

    #[test]
    fn texts_are_counted_however_they_are_held() {
        let text = "x".repeat(1_000);
        let held: [ArrayRef; 2] = [
            Arc::new(StringArray::from(vec![text.as_str(); 100])),
            Arc::new(StringViewArray::from(vec![text.as_str(); 100])),
        ];
        for values in held {
            let bytes = total(&ColumnarValue::Array(values), 100);
            assert!((100_000..110_000).contains(&bytes), "{bytes}");
        }
    }
}
