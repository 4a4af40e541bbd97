//! Functions whose result can be far larger than their arguments: what they may make is bounded.
//!
//! The memory pool counts what operators hold, not what a function makes of one batch; `repeat('x', 2000000000)` would
//! take the process down before anybody counted. So such a function is called through one that first works out, from the
//! values it is called with, how large the result can become, and fails when that is too large.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait},
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
/// Bytes that an element which is repeated takes beside its value: an offset of four, and an index of eight that is copied once.
const REPEATED: u64 = 20;

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
            let (sizes, beside) = (sizes(value, rows), repeated(name));
            sum(rows, &numbers(count)?, |row, count| {
                count.saturating_mul(sizes(row).saturating_add(beside))
            })
        }
        ("array_resize", [_, count, fill]) => {
            let sizes = sizes(fill, rows);
            sum(rows, &numbers(count)?, |row, count| {
                count.saturating_mul(sizes(row).saturating_add(UNIT))
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
        ("array_to_string", [list, between @ ..]) => {
            let leaves = match list {
                ColumnarValue::Array(list) => leaves(list),
                ColumnarValue::Scalar(list) => {
                    leaves(&list.to_array()?).saturating_mul(rows as u64)
                }
            };
            // What is put between elements, and what stands for NULL.
            let longest = |text| (0..rows).map(sizes(text, rows)).max().unwrap_or(0);
            let longest = between.iter().map(longest).fold(0, u64::saturating_add);
            total(list, rows).saturating_add(leaves.saturating_mul(longest))
        }
        (_, parts) => parts
            .iter()
            .fold(0, |sum, part| sum.saturating_add(total(part, rows))),
    })
}

/// Bytes of all rows.
pub(crate) fn total(arg: &ColumnarValue, rows: usize) -> u64 {
    match arg {
        ColumnarValue::Array(values) => held(values),
        ColumnarValue::Scalar(value) => scalar(value).saturating_mul(rows as u64),
    }
}

/// Bytes of an array: of what lies behind it, the part that its rows are made of.
fn held(values: &ArrayRef) -> u64 {
    fn of_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> u64 {
        let offsets = size_of_val(lists.value_offsets()) as u64;
        held(&elements(lists)).saturating_add(offsets)
    }
    match values.data_type() {
        // Arrow counts the views of texts and not the texts.
        DataType::Utf8View => values.as_string_view().lengths().map(u64::from).sum(),
        DataType::List(_) => of_lists(values.as_list::<i32>()),
        DataType::LargeList(_) => of_lists(values.as_list::<i64>()),
        DataType::Struct(_) => {
            let columns = values.as_struct().columns().iter();
            columns.map(held).fold(0, u64::saturating_add)
        }
        _ => {
            let bytes = values.to_data().get_slice_memory_size();
            bytes.unwrap_or_else(|_| values.get_array_memory_size()) as u64
        }
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
                // One row may be as large as all others together.
                DataType::List(_)
                | DataType::LargeList(_)
                | DataType::FixedSizeList(_, _)
                | DataType::Struct(_)
                | DataType::Binary
                | DataType::LargeBinary => held(&values.slice(row, 1)).max(UNIT),
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

/// What each element of a list takes beside its value.
fn repeated(name: &str) -> u64 {
    match name {
        "array_repeat" => REPEATED,
        _ => 0,
    }
}

/// The elements of all lists, and none of lists that they were cut from.
fn elements<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> ArrayRef {
    let offsets = lists.value_offsets();
    let end = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize());
    let (first, last) = (end(offsets.first()), end(offsets.last()));
    lists.values().slice(first, last.saturating_sub(first))
}

/// Elements of all lists, and of the lists in them.
fn leaves(values: &ArrayRef) -> u64 {
    let inner = match values.data_type() {
        DataType::List(_) => leaves(&elements(values.as_list::<i32>())),
        DataType::LargeList(_) => leaves(&elements(values.as_list::<i64>())),
        DataType::FixedSizeList(_, _) => leaves(values.as_fixed_size_list().values()),
        _ => 0,
    };
    inner.saturating_add(values.len() as u64)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, ListArray, StringArray, StringViewArray};

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

    #[test]
    fn a_cut_list_counts_what_it_holds() {
        let rows = (0..100).map(|_| Some((0..1_000).map(Some)));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows));
        let size = |values: ArrayRef| total(&ColumnarValue::Array(values), 100);
        assert!((800_000..810_000).contains(&size(lists.clone())));
        let one = size(lists.slice(40, 1));
        assert!((8_000..8_100).contains(&one), "{one}");
        assert_eq!(leaves(&lists.slice(40, 1)), 1_001);
    }

    #[test]
    fn each_row_counts_as_large_as_it_is() {
        let rows = (0..100).map(|row| Some((0..if row == 7 { 1_000 } else { 0 }).map(Some)));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows));
        let lists = ColumnarValue::Array(lists);
        let sizes = sizes(&lists, 100);
        assert!(
            sizes(7) >= 8_000 && sizes(8) < 100,
            "{} {}",
            sizes(7),
            sizes(8)
        );
    }

    #[test]
    fn elements_count_with_their_offsets() {
        let text = |text: &str| ColumnarValue::Scalar(ScalarValue::from(text));
        let count = ColumnarValue::Scalar(ScalarValue::Int64(Some(1_000)));
        let made = bytes("array_repeat", &[text("x"), count.clone()], 1);
        assert!(made.is_ok_and(|made| made >= 5_000));
        assert!(bytes("repeat", &[text("x"), count], 1).is_ok_and(|made| made == 1_000));
    }

    #[test]
    fn what_stands_for_null_counts_for_each() {
        let none = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![None; 1_000])]);
        let lists = ColumnarValue::Array(Arc::new(none));
        let text = |text: &str| ColumnarValue::Array(Arc::new(StringArray::from(vec![text])));
        let joined = bytes(
            "array_to_string",
            &[lists, text(","), text(&"x".repeat(500))],
            1,
        );
        assert!(joined.is_ok_and(|made| made > 500_000));
        let list = ColumnarValue::Array(Arc::new(
            ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)])]),
        ));
        let count = ColumnarValue::Array(Arc::new(Int64Array::from(vec![1_000])));
        let filled = bytes("array_resize", &[list, count, text(&"x".repeat(500))], 1);
        assert!(filled.is_ok_and(|made| made > 500_000));
    }
}
