//! Payloads: all rows as one Arrow IPC stream, small enough to ride in the row.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use bytes::Bytes;
use domain::entry::EntryId;
use futures::{StreamExt, TryStreamExt, stream};
use ports::{Error, Kind, Result, tables::Rows};

/// Most bytes of batches in memory that are worth encoding: what is larger does not become small.
const HELD_MAX: usize = 8 << 20;

/// Batches that passed by, as long as they are few.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    batches: Vec<RecordBatch>,
    bytes: usize,
    overflown: bool,
}

impl Kept {
    fn see(&self, batch: &RecordBatch) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.overflown {
            return;
        }
        held.bytes += batch.get_array_memory_size();
        if held.bytes > HELD_MAX {
            *held = Held {
                overflown: true,
                ..Held::default()
            };
        } else {
            held.batches.push(batch.clone());
        }
    }

    /// The payload of what passed by; none when that was too much.
    pub(super) fn payload(&self, schema: &SchemaRef) -> Option<Bytes> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match held.overflown {
            true => None,
            false => encode(schema, &held.batches),
        }
    }
}

/// The same rows, of which copies are kept while they are few.
pub(super) fn keep(rows: Rows) -> (Rows, Kept) {
    let kept = Kept::default();
    let seen = kept.clone();
    let stream = rows.stream.inspect_ok(move |batch| seen.see(batch));
    let schema = rows.schema;
    (
        Rows {
            schema,
            stream: stream.boxed(),
        },
        kept,
    )
}

/// The payload of rows, read no further than it can be small.
pub(super) async fn of(rows: Rows) -> Result<Option<Bytes>> {
    let schema = rows.schema.clone();
    let (mut rows, kept) = keep(rows);
    while rows.stream.try_next().await?.is_some() {
        if kept
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .overflown
        {
            return Ok(None);
        }
    }
    Ok(kept.payload(&schema))
}

/// None for columns that have no form in a stream.
fn encode(schema: &SchemaRef, batches: &[RecordBatch]) -> Option<Bytes> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema).ok()?;
    for batch in batches {
        writer.write(batch).ok()?;
    }
    writer.finish().ok()?;
    writer.into_inner().ok().map(Bytes::from)
}

/// The rows of a payload. A stream without batches has a schema all the same.
pub(super) fn decode(id: &EntryId, payload: &Bytes) -> Result<Rows> {
    let corrupt = |error| Error::new(Kind::Corrupt, "read payload of", id).because(error);
    let reader =
        StreamReader::try_new(std::io::Cursor::new(payload.clone()), None).map_err(corrupt)?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(corrupt)?;
    Ok(Rows {
        schema,
        stream: stream::iter(batches.into_iter().map(Ok)).boxed(),
    })
}
