//! The one statement of a profile, and its one row.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Field, Int64Type, UInt64Type},
    util::display::array_value_to_string,
};
use domain::{TableName, items::ColumnProfile};
use futures::TryStreamExt;
use ports::{Error, Kind, Result, tables::Rows};

use super::cut;

/// Reads every column once.
pub(super) fn statement(table: &TableName, fields: &[Arc<Field>]) -> String {
    let mut wanted = vec!["COUNT(*) AS n".to_owned()];
    for (index, field) in fields.iter().enumerate() {
        let column = quoted(field.name());
        wanted.push(format!("COUNT({column}) AS c{index}"));
        if has_order(field.data_type()) {
            for (function, word) in [("MIN", "lo"), ("MAX", "hi")] {
                wanted.push(format!(
                    "CAST({function}({column}) AS VARCHAR) AS {word}{index}"
                ));
            }
        }
        if has_digest(field.data_type()) {
            wanted.push(format!("approx_distinct({column}) AS d{index}"));
        } else if has_order(field.data_type()) {
            wanted.push(format!(
                "approx_distinct(CAST({column} AS VARCHAR)) AS d{index}"
            ));
        }
    }
    let from = format!("{}.{}", quoted(table.schema()), quoted(table.name()));
    format!("SELECT {} FROM {from}", wanted.join(", "))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Types whose least and greatest value say something, and that have a text.
fn has_order(kind: &DataType) -> bool {
    use DataType::{Boolean, LargeUtf8, Utf8, Utf8View};
    kind.is_numeric() || kind.is_temporal() || matches!(kind, Boolean | Utf8 | LargeUtf8 | Utf8View)
}

/// Types that are counted as they are; others as text.
fn has_digest(kind: &DataType) -> bool {
    use DataType::{LargeUtf8, Utf8, Utf8View};
    kind.is_integer() || matches!(kind, Utf8 | LargeUtf8 | Utf8View)
}

/// Rows of the table, and its columns.
pub(super) async fn columns(
    fields: &[Arc<Field>],
    rows: Rows,
) -> Result<(u64, Vec<ColumnProfile>)> {
    let batches: Vec<RecordBatch> = rows.stream.try_collect().await?;
    let batch = batches.iter().find(|batch| batch.num_rows() > 0);
    let batch = batch.ok_or_else(|| corrupt("the statement returned no row"))?;
    let all = number(batch, "n")?.unwrap_or(0);
    let column = |(index, field): (usize, &Arc<Field>)| {
        let there = number(batch, &format!("c{index}"))?;
        Ok(ColumnProfile {
            name: field.name().clone(),
            kind: ports::columns::word(field.data_type()),
            nulls: there.map(|there| all.saturating_sub(there)),
            min: text(batch, &format!("lo{index}"))?,
            max: text(batch, &format!("hi{index}"))?,
            distinct: number(batch, &format!("d{index}"))?,
        })
    };
    let columns = fields.iter().enumerate().map(column);
    Ok((all, columns.collect::<Result<_>>()?))
}

/// A count of the row; none when it was not asked for.
fn number(batch: &RecordBatch, name: &str) -> Result<Option<u64>> {
    let Some(column) = batch.column_by_name(name) else {
        return Ok(None);
    };
    match column.data_type() {
        DataType::Int64 => Ok(u64::try_from(column.as_primitive::<Int64Type>().value(0)).ok()),
        DataType::UInt64 => Ok(Some(column.as_primitive::<UInt64Type>().value(0))),
        other => Err(corrupt(&format!("`{name}` is no count but {other}"))),
    }
}

/// A value of the row; none when it is NULL or was not asked for.
fn text(batch: &RecordBatch, name: &str) -> Result<Option<String>> {
    let column = batch.column_by_name(name);
    let Some(column) = column.filter(|column| column.is_valid(0)) else {
        return Ok(None);
    };
    let text = array_value_to_string(column, 0).map_err(|error| corrupt(&error.to_string()))?;
    Ok(Some(cut(&text)))
}

fn corrupt(why: &str) -> Error {
    Error::new(Kind::Corrupt, "read the answer of", "profile").because(why)
}
