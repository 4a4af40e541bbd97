//! Files become landing rows.

use std::{path::Path, sync::Arc};

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use domain::{
    Model, TableName,
    items::{self, Column, Head},
};
use ports::{Error, Kind, Result, landing::Append, state::Key};

use super::{
    announce, build,
    load::{self, Loaded, invalid},
    quarantine,
    text::Reject,
};
use crate::World;

/// The column of a webhook table that holds the event.
const PAYLOAD: &str = "payload";

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// `.ndjson`, `.jsonl`, `.json`: one JSON object per line.
    Ndjson,
    /// `.csv`, with a header.
    Csv,
    /// `.parquet`.
    Parquet,
}

impl FileFormat {
    /// The format that a file's name tells.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "ndjson" | "jsonl" | "json" => Some(Self::Ndjson),
            "csv" => Some(Self::Csv),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// How far a load has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file read.
    pub bytes_done: u64,
    /// Bytes of the file.
    pub bytes_total: u64,
    /// Rows committed.
    pub rows: u64,
}

/// What a load stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FileLoaded {
    /// Rows committed.
    pub rows: u64,
    /// Rows that went to `quarantine.<name>` instead.
    pub quarantined: u64,
    /// First sequence; 0 when there were no rows.
    pub sequence_from: u64,
    /// Last sequence. Other writers' rows may lie between.
    pub sequence_to: u64,
}

/// Loads a file as typed rows into a landing table, in commits of about 64,000 rows; memory does not depend on the
/// file's size. Without `format`, the file's name tells it.
///
/// Columns have the table's types where it has them, and else those of the first 10,000 rows of NDJSON and CSV. Names
/// are kept as written. Nested values become their JSON text; whole numbers beyond `BIGINT` are `DECIMAL(38,0)` or
/// text, never rounded. In CSV an empty field, or `NA`, without quotes is NULL. A row with a value that does not fit
/// goes to `quarantine.<name>` with file, line and reason.
///
/// # Errors
/// `NotFound` when there is no such file; `Invalid` when it cannot be read, names its line and reason, and leaves what
/// was committed before.
pub async fn file(
    world: &World,
    table: &TableName,
    path: &Path,
    format: Option<FileFormat>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<FileLoaded> {
    if !table.is_landing() {
        return Err(Error::new(Kind::Invalid, "load into", table)
            .because("files are loaded into landing tables: `landing.<name>`"));
    }
    let format = format.or_else(|| FileFormat::of(path)).ok_or_else(|| {
        invalid(
            path,
            "its name ends in none of .ndjson, .jsonl, .json, .csv and .parquet",
        )
    })?;
    let (_, bytes_total) = load::open(path)?;
    let known = columns(world, table).await?;
    let webhook = match known.is_empty() {
        false => is_webhook(&known).then(|| format!("{table} holds webhook events")),
        true => reader_of_payload(world, table)
            .map(|model| format!("{} reads {table} as webhook events", model.file)),
    };
    let mut chunks = load::start(path, format, known);
    let mut loaded = FileLoaded::default();
    let mut done = Progress {
        bytes_total,
        ..Progress::default()
    };
    progress(done);
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk?;
        if let (None, Some(first), 0) = (&chunk.rows, chunk.rejects.first(), loaded.rows) {
            // Not one row to go by: this is another kind of file, not a bad row.
            return Err(invalid(
                path,
                format!("line {}: {}", first.line, first.reason),
            ));
        }
        if let Some(rows) = &chunk.rows
            && let Some(webhook) = &webhook
            && rows.schema().column_with_name(PAYLOAD).is_none()
        {
            return Err(invalid(
                path,
                format!(
                    "{webhook}, whose fields are read from `{PAYLOAD}`, a column the file does not have; \
                     load it into another table with --table, or post it: \
                     curl -H 'content-type: application/x-ndjson' --data-binary @FILE URL/api/ingest/webhook/{}",
                    table.name()
                ),
            ));
        }
        done.bytes_done = chunk.bytes;
        store(world, table, path, chunk, &mut loaded).await?;
        done.rows = loaded.rows;
        progress(done);
    }
    Ok(loaded)
}

/// A model that reads the fields of a table's rows from `payload`, as those of a webhook source: a name of its own that it gives
/// is not meant. Files make a table's columns, and such a model would find nothing in them.
fn reader_of_payload<'a>(world: &'a World, table: &TableName) -> Option<&'a Model> {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    world.project.models.values().find(|model| {
        let sql = without_remarks(&model.sql);
        let words = sql.split(|c| !of_name(c)).filter(|word| !word.is_empty());
        let mut before = "";
        let mut reads = words.map(|word| (std::mem::replace(&mut before, word), word));
        let is = |word: &str, name: &str| word.eq_ignore_ascii_case(name);
        model.reads.contains(table)
            && reads.any(|(last, word)| is(word, PAYLOAD) && !is(last, "as"))
    })
}

/// The text of a query without its texts and comments.
fn without_remarks(sql: &str) -> String {
    let (mut left, mut rest) = (String::new(), sql);
    while let Some(at) = rest.find(['\'', '-', '/']) {
        left.push_str(&rest[..at]);
        rest = &rest[at..];
        let (open, end) = match rest {
            _ if rest.starts_with('\'') => (1, "'"),
            _ if rest.starts_with("--") => (2, "\n"),
            _ if rest.starts_with("/*") => (2, "*/"),
            _ => (1, ""),
        };
        let inside = rest[open..].find(end).map(|found| open + found + end.len());
        left.push(' ');
        rest = &rest[inside.unwrap_or(rest.len())..];
    }
    left + rest
}

/// Whether a table with these columns holds webhook events.
fn is_webhook(columns: &[Column]) -> bool {
    ["id", "received_at", PAYLOAD]
        .iter()
        .all(|name| columns.iter().any(|column| column.name == *name))
}

/// Columns the table has.
pub(super) async fn columns(world: &World, table: &TableName) -> Result<Vec<Column>> {
    let item = world
        .state
        .get(&Key::new(items::table(table), items::HEAD))
        .await?;
    Ok(match item {
        Some(item) => item.decode::<Head>()?.columns,
        None => Vec::new(),
    })
}

async fn store(
    world: &World,
    table: &TableName,
    path: &Path,
    chunk: Loaded,
    loaded: &mut FileLoaded,
) -> Result<()> {
    let origin_at = world.clock.now();
    if !chunk.rejects.is_empty() {
        let table = quarantine(table)?;
        let rows = rejected(world, path, &chunk.rejects)?;
        let append = Append {
            table: table.clone(),
            rows,
            origin_at,
            key: None,
        };
        let stored = world.landing.append(append).await?;
        loaded.quarantined += chunk.rejects.len() as u64;
        announce(world, &table, stored.position).await;
    }
    if let Some(rows) = chunk.rows {
        let count = rows.num_rows() as u64;
        let append = Append {
            table: table.clone(),
            rows,
            origin_at,
            key: None,
        };
        let stored = world.landing.append(append).await?;
        if loaded.rows == 0 {
            loaded.sequence_from = stored.first;
        }
        loaded.sequence_to = stored.last;
        loaded.rows += count;
        announce(world, table, stored.position).await;
    }
    Ok(())
}

/// Rows of the quarantine, in the columns that webhooks use.
fn rejected(world: &World, path: &Path, rejects: &[Reject]) -> Result<RecordBatch> {
    let now = world.clock.now();
    let base = world.chance.id(now);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ids = (0..rejects.len()).map(|index| format!("{base}-{index:08}"));
    let reasons = rejects
        .iter()
        .map(|row| format!("{name}:{}: {}", row.line, row.reason));
    let texts = rejects.iter().map(|row| &row.text);
    let columns: Vec<(String, ArrayRef)> = vec![
        ("id".into(), Arc::new(StringArray::from_iter_values(ids))),
        (
            "received_at".into(),
            Arc::new(TimestampMicrosecondArray::from_value(now.0, rejects.len())),
        ),
        (
            "payload".into(),
            Arc::new(StringArray::from_iter_values(texts)),
        ),
        (
            "reason".into(),
            Arc::new(StringArray::from_iter_values(reasons)),
        ),
    ];
    build::batch(columns, rejects.len()).map_err(|e| invalid(path, e.to_string()))
}
