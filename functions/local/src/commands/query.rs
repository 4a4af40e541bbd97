//! `headwater query`: a statement over the lake.

use std::io::{self, Read, Write};

use engine::read;
use futures::TryStreamExt;
use ports::query::{Limits, RowOrder, Statement};
use web::rows::{self, Format};

use super::Context;
use crate::{
    failure::Failure,
    screen::{counted, is_terminal, say},
    tables, world,
};

/// Longest statement read from stdin, in bytes.
const SQL_BYTES_MAX: u64 = 1 << 20;

/// Runs a statement and shows its rows.
pub(super) async fn query(context: &Context, sql: String, csv: bool) -> Result<(), Failure> {
    let settings = context.settings()?;
    let sql = if sql == "-" { from_stdin()? } else { sql };
    let world = world::open_any(&settings)?;
    let limits = Limits {
        time: settings.query.timeout,
        rows: Some(settings.query.rows_max),
    };
    let rows = read::query(
        &world,
        &Statement {
            order: RowOrder::Any,
            watermarks: None,
            sql,
            parameters: Vec::new(),
            limits,
        },
    )
    .await?;
    if context.json || csv {
        let mut encoded = rows::encode(rows, if csv { Format::Csv } else { Format::Json });
        let mut began = false;
        loop {
            let chunk = match encoded.try_next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) if began => {
                    let cut = "; the rows before that were written, and are not all";
                    return Err(Failure::from(error).and(cut));
                }
                Err(error) => return Err(error.into()),
            };
            io::stdout().write_all(&chunk)?;
            began |= !chunk.is_empty();
        }
        return Ok(io::stdout().flush()?);
    }
    let schema = rows.schema.clone();
    let batches: Vec<_> = rows.stream.try_collect().await?;
    say(&tables::rows(&schema, &batches)?.to_string())?;
    if is_terminal() {
        let total: usize = batches
            .iter()
            .map(arrow::array::RecordBatch::num_rows)
            .sum();
        say(&counted(total as u64, "row"))?;
    }
    Ok(())
}

fn from_stdin() -> Result<String, Failure> {
    let mut sql = String::new();
    let read = io::stdin()
        .lock()
        .take(SQL_BYTES_MAX + 1)
        .read_to_string(&mut sql);
    read.map_err(|error| Failure::usage(format!("read the statement from stdin: {error}")))?;
    if sql.len() as u64 > SQL_BYTES_MAX {
        return Err(Failure::project(format!(
            "the statement is larger than {SQL_BYTES_MAX} bytes"
        )));
    }
    Ok(sql)
}
