//! Cells of JSON as record batches, record batches as cells of JSON, and a comparison that forgives number types.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arrow::{
    array::{
        Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
        TimestampMicrosecondArray,
    },
    datatypes::{DataType, Field, Schema},
    util::display::{ArrayFormatter, FormatOptions},
};
use engine::World;
use futures::TryStreamExt;
use ports::query::Statement;
use serde_json::{Number, Value};

use crate::case::{Cells, Columns};

/// Rows of a landing table as a batch of its declared types.
///
/// # Errors
/// When a cell is not of its column's type.
pub fn batch(columns: &Columns, rows: &Cells) -> Result<RecordBatch> {
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for (at, (name, kind)) in columns.iter().enumerate() {
        let cells: Vec<&Value> = rows
            .iter()
            .map(|row| row.get(at).unwrap_or(&Value::Null))
            .collect();
        let array = column(kind, &cells).with_context(|| format!("column `{name}`"))?;
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

fn column(kind: &str, cells: &[&Value]) -> Result<ArrayRef> {
    Ok(match kind {
        "BIGINT" => Arc::new(
            cells
                .iter()
                .map(|cell| cell.as_i64())
                .collect::<Int64Array>(),
        ),
        "DOUBLE" => Arc::new(
            cells
                .iter()
                .map(|cell| double(cell))
                .collect::<Float64Array>(),
        ),
        "VARCHAR" => Arc::new(
            cells
                .iter()
                .map(|cell| cell.as_str())
                .collect::<StringArray>(),
        ),
        "BOOLEAN" => Arc::new(
            cells
                .iter()
                .map(|cell| cell.as_bool())
                .collect::<BooleanArray>(),
        ),
        "TIMESTAMP" => Arc::new(
            cells
                .iter()
                .map(|cell| cell.as_i64())
                .collect::<TimestampMicrosecondArray>(),
        ),
        other => bail!("no cells of type `{other}`"),
    })
}

/// JSON has no NaN: the text `NaN` stands for it, `-0` for negative zero.
fn double(cell: &Value) -> Option<f64> {
    cell.as_f64()
        .or_else(|| cell.as_str().and_then(|text| text.parse().ok()))
}

/// Rows of a statement as cells.
///
/// # Errors
/// What the engine answers.
pub async fn query(world: &World, sql: &str) -> Result<Cells> {
    let rows = engine::read::query(world, &Statement::new(sql))
        .await
        .map_err(|error| chain(&error))?;
    let batches: Vec<RecordBatch> = rows
        .stream
        .try_collect()
        .await
        .map_err(|error| chain(&error))?;
    let mut all = Vec::new();
    for batch in &batches {
        all.extend(cells(batch)?);
    }
    Ok(all)
}

/// The only cell of the only row of a statement.
///
/// # Errors
/// When there is not exactly one row.
pub async fn value(world: &World, sql: &str) -> Result<Value> {
    let mut rows = query(world, sql).await?;
    match (rows.len(), rows.pop().and_then(|mut row| row.pop())) {
        (1, Some(value)) => Ok(value),
        (n, _) => bail!("{n} rows from `{sql}`"),
    }
}

/// An error of a port with all its causes.
#[must_use]
pub fn chain(error: &ports::Error) -> anyhow::Error {
    anyhow::anyhow!("{}", error.chain())
}

/// A batch as cells: booleans, integers and floats as such, all else as text.
///
/// # Errors
/// When arrow cannot print a value.
pub fn cells(batch: &RecordBatch) -> Result<Cells> {
    let mut rows = vec![Vec::with_capacity(batch.num_columns()); batch.num_rows()];
    let options = FormatOptions::default();
    for array in batch.columns() {
        let printer = ArrayFormatter::try_new(array, &options)?;
        for (at, row) in rows.iter_mut().enumerate() {
            if array.is_null(at) {
                row.push(Value::Null);
                continue;
            }
            let text = printer.value(at).try_to_string()?;
            row.push(match array.data_type() {
                DataType::Boolean => Value::Bool(text == "true"),
                kind if kind.is_integer() => text
                    .parse::<Number>()
                    .map_or(Value::String(text), Value::Number),
                kind if kind.is_floating() => text
                    .parse()
                    .ok()
                    .and_then(Number::from_f64)
                    .map_or(Value::String(text), Value::Number),
                _ => Value::String(text),
            });
        }
    }
    Ok(rows)
}

/// Whether two cells are the same: numbers by value, all else as they are.
#[must_use]
pub fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right
                || left
                    .as_f64()
                    .zip(right.as_f64())
                    .is_some_and(|(l, r)| (l - r).abs() <= 1e-6 * l.abs().max(1.0))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        _ => left == right,
    }
}

/// Compares rows after sorting both sides by some of their columns, then by all.
///
/// # Errors
/// Shows both sides when they differ.
pub fn compare(what: &str, got: Cells, want: &Cells, order: &[usize]) -> Result<()> {
    let sorted = |mut rows: Cells| {
        rows.sort_by_cached_key(|row| {
            let mut key: Vec<_> = order
                .iter()
                .filter_map(|at| row.get(*at))
                .map(sort_key)
                .collect();
            key.extend(row.iter().map(sort_key));
            key
        });
        rows
    };
    let (got, want) = (sorted(got), sorted(want.clone()));
    let alike = got.len() == want.len()
        && got.iter().zip(&want).all(|(got, want)| {
            got.len() == want.len() && got.iter().zip(want).all(|(got, want)| same(got, want))
        });
    if !alike {
        bail!("{what}\n   got {}\n  want {}", show(&got), show(&want));
    }
    Ok(())
}

fn sort_key(value: &Value) -> (u8, i64, String) {
    match value {
        Value::Null => (0, 0, String::new()),
        Value::Bool(value) => (1, i64::from(*value), String::new()),
        // Micro-units: enough to order the numbers that cases use.
        #[expect(clippy::cast_possible_truncation, reason = "only an order for sorting")]
        Value::Number(value) => (
            2,
            (value.as_f64().unwrap_or(0.0) * 1e6) as i64,
            String::new(),
        ),
        Value::String(value) => (3, 0, value.clone()),
        Value::Array(_) | Value::Object(_) => (4, 0, value.to_string()),
    }
}

fn show(rows: &Cells) -> String {
    serde_json::to_string(rows).unwrap_or_default()
}

/// Whether `part` is contained in `whole`: objects key by key, all else equal. Says where it is not.
///
/// # Errors
/// The path of the first difference.
pub fn subset(whole: &Value, part: &Value, path: &str) -> Result<()> {
    if let (Value::Object(whole), Value::Object(part)) = (whole, part) {
        for (key, part) in part {
            let path = format!("{path}.{key}");
            subset(whole.get(key).unwrap_or(&Value::Null), part, &path)?;
        }
        return Ok(());
    }
    if !same(whole, part) {
        bail!("{path} is {whole}, not {part}");
    }
    Ok(())
}
