//! Reading a landing table: its head, and the commits between two sequences.

use std::{io::Cursor, sync::Arc};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, new_null_array},
    compute::concat,
    datatypes::SchemaRef,
    ipc::reader::StreamReader,
};
use domain::{
    SEQUENCE, TableName, Timestamp,
    items::{self, BatchData, Head},
};
use futures::TryStreamExt;
use object_store::path::Path;
use parquet::errors::ParquetError;
use ports::{
    Error, Kind, Objects, Result, State, columns,
    state::{Key, Span},
    tables::{FilePart, Part, Pin, Scan},
};

use super::reader;

/// Commits asked of the state store at once.
const PAGE: usize = 256;
/// Rows at which gathered small commits become one part.
const PART_ROWS: usize = 8_192;

/// Pins a landing table through its head; none when it was never declared nor committed.
///
/// # Errors
/// What the state store answers; `Corrupt` when the head cannot be read.
pub async fn pin(state: &dyn State, table: &TableName) -> Result<Option<Pin>> {
    let Some(item) = state
        .get(&Key::new(items::table(table), items::HEAD))
        .await?
    else {
        return Ok(None);
    };
    let head: Head = item.decode()?;
    Ok(Some(Pin::Landing {
        table: table.clone(),
        schema: columns::schema(table, &head.columns)?,
        through: head.position.sequence,
    }))
}

/// What there is to read of a landing table in `(after, through]`.
///
/// `schema` is that of the pin: the columns, and the sequence column. Parts come in sequence order. Parts in memory hold
/// exactly what was asked for. A file may begin at or below `after`, for its reader to leave out; it never goes past
/// `through`: a commit that does, when `through` is no head, is read here and cut. A column that a commit does not
/// have is NULL in memory, and absent in a file. With it comes when the first of the commits arrived, if there is one.
///
/// # Errors
/// What the stores answer; `Corrupt` when a commit does not hold what its item says.
pub async fn scan(
    state: &dyn State,
    objects: &Objects,
    table: &TableName,
    schema: &SchemaRef,
    after: u64,
    through: u64,
) -> Result<(Scan, Option<Timestamp>)> {
    let mut arrived = None;
    let mut parts = Parts {
        table,
        schema,
        after,
        through,
        done: Vec::new(),
        small: Vec::new(),
        rows: 0,
    };
    let mut span = (after < through).then(|| Span {
        partition: items::table(table),
        from: items::advance(after + 1),
        until: Some(format!("{}~", items::advance(u64::MAX))),
        reverse: false,
        limit: PAGE,
    });
    // How far this scan has come.
    let mut reached = after;
    while let Some(here) = span.take() {
        let page = state.query(&here).await?;
        for item in &page {
            let (commit, bytes): (items::Advance, _) = item.unpack()?;
            if commit.from >= through {
                return Ok((parts.finish()?, arrived));
            }
            if commit.from > reached {
                let reason = format!("the commits after sequence {reached} are missing");
                return Err(corrupt(table, commit.to, reason));
            }
            // Commits may have been folded between two pages: then this one begins with rows that have been read.
            let again = commit.from < reached && reached > after;
            if commit.to <= reached {
                continue;
            }
            arrived = arrived.or(Some(commit.origin_at));
            parts.after = reached;
            reached = commit.to;
            match commit.data {
                Some(BatchData::Inline) => {
                    parts.memory(commit.from, commit.rows, &decode(table, bytes)?)?
                }
                Some(BatchData::Object { path, size }) if commit.to > through || again => {
                    parts.memory(
                        commit.from,
                        commit.rows,
                        &download(objects, &path, size).await?,
                    )?;
                }
                Some(BatchData::Object { path, size }) => {
                    parts.file(path, size, commit.from, commit.rows)?
                }
                None => return Err(corrupt(table, commit.to, "it names no rows")),
            }
        }
        span = here.after(&page);
    }
    Ok((parts.finish()?, arrived))
}

struct Parts<'a> {
    table: &'a TableName,
    schema: &'a SchemaRef,
    after: u64,
    through: u64,
    done: Vec<Part>,
    /// Small batches to be joined, with the sequence before their first row.
    small: Vec<(u64, RecordBatch)>,
    rows: usize,
}

impl Parts<'_> {
    /// Adds the rows of one commit, cut to what was asked for.
    fn memory(&mut self, from: u64, rows: u64, batches: &[RecordBatch]) -> Result<()> {
        let mut from = from;
        let to = from + rows;
        for batch in batches {
            let rows = batch.num_rows() as u64;
            let (first, last) = (
                self.after.clamp(from, from + rows),
                self.through.clamp(from, from + rows),
            );
            if first < last {
                let batch = batch.slice((first - from) as usize, (last - first) as usize);
                self.rows += batch.num_rows();
                self.small.push((first, batch));
            }
            from += rows;
        }
        if from != to {
            return Err(corrupt(
                self.table,
                to,
                "its rows are not as many as it says",
            ));
        }
        if self.rows >= PART_ROWS {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn file(&mut self, path: String, size: u64, from: u64, rows: u64) -> Result<()> {
        self.flush()?;
        self.done.push(Part::File(Arc::new(FilePart {
            path,
            size,
            rows,
            first_sequence: Some(from + 1),
            deleted: None,
            bounds: Default::default(),
        })));
        Ok(())
    }

    /// Joins the gathered batches into one part of the scan's schema.
    fn flush(&mut self) -> Result<()> {
        if self.small.is_empty() {
            return Ok(());
        }
        let small = std::mem::take(&mut self.small);
        let mut arrays = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            if field.name() == SEQUENCE {
                arrays.push(sequences(&small));
                continue;
            }
            let mut pieces: Vec<ArrayRef> = Vec::with_capacity(small.len());
            for (from, batch) in &small {
                let piece = match batch.column_by_name(field.name()) {
                    Some(column) if column.data_type() == field.data_type() => Arc::clone(column),
                    Some(_) => {
                        let reason = format!(
                            "its column `{}` has another type than the table's",
                            field.name()
                        );
                        return Err(corrupt(self.table, from + batch.num_rows() as u64, reason));
                    }
                    None => new_null_array(field.data_type(), batch.num_rows()),
                };
                pieces.push(piece);
            }
            let pieces: Vec<_> = pieces.iter().map(AsRef::as_ref).collect();
            arrays.push(concat(&pieces).map_err(|e| unreadable(self.table, e))?);
        }
        let options =
            RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        let batch = RecordBatch::try_new_with_options(Arc::clone(self.schema), arrays, &options)
            .map_err(|e| unreadable(self.table, e))?;
        self.done.push(Part::Memory(batch));
        Ok(())
    }

    fn finish(mut self) -> Result<Scan> {
        self.flush()?;
        Ok(Scan {
            schema: Arc::clone(self.schema),
            parts: self.done,
        })
    }
}

fn sequences(small: &[(u64, RecordBatch)]) -> ArrayRef {
    let numbers = small.iter().flat_map(|(from, batch)| {
        let first = *from as i64 + 1;
        first..first + batch.num_rows() as i64
    });
    Arc::new(Int64Array::from_iter_values(numbers))
}

pub(super) fn decode(table: &TableName, bytes: bytes::Bytes) -> Result<Vec<RecordBatch>> {
    StreamReader::try_new(Cursor::new(bytes), None)
        .and_then(Iterator::collect)
        .map_err(|e| unreadable(table, e))
}

pub(super) async fn download(objects: &Objects, path: &str, size: u64) -> Result<Vec<RecordBatch>> {
    let unreadable = |e| Error::new(Kind::Corrupt, "read landing object", path).because(e);
    let place = Path::parse(path).map_err(|e| unreadable(ParquetError::External(e.into())))?;
    let builder = reader::open(objects, &place, size)
        .await
        .map_err(unreadable)?;
    builder
        .build()
        .map_err(unreadable)?
        .try_collect()
        .await
        .map_err(unreadable)
}

fn unreadable(table: &TableName, error: arrow::error::ArrowError) -> Error {
    Error::new(Kind::Corrupt, "read rows of", table).because(error)
}

pub(super) fn corrupt(table: &TableName, to: u64, reason: impl Into<String>) -> Error {
    Error::new(
        Kind::Corrupt,
        "read commit",
        format!("{table}/{}", items::advance(to)),
    )
    .because(reason.into())
}
