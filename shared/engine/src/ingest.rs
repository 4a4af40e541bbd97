//! Ingest: a request body becomes landing rows, or a refusal that says why (**Q-1**).

use bytes::Bytes;
use ports::Result;
use serde::Serialize;

use crate::World;

/// How a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON value is one event.
    Json,
    /// One JSON value per line; blank lines are skipped.
    Ndjson,
}

/// A webhook request, headers already picked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The source named in the path.
    pub source: String,
    /// The decoded body.
    pub body: Bytes,
    /// How to read it.
    pub format: Format,
    /// `Idempotency-Key` or `webhook-id`.
    pub key: Option<String>,
    /// Columns from headers: column name and value, `None` when the header was absent.
    pub headers: Vec<(String, Option<String>)>,
}

/// What was stored; the body of a 202.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// Always `committed`.
    pub status: &'static str,
    /// The source.
    pub source: String,
    /// First sequence; 0 when every event was quarantined.
    pub sequence_from: u64,
    /// Last sequence.
    pub sequence_to: u64,
    /// Events stored.
    pub rows: u64,
    /// Events that went to `quarantine.<source>` instead.
    pub quarantined: u64,
    /// The idempotency key had been seen.
    pub duplicate: bool,
}

/// Commits the events of a webhook body to `landing.<source>` and announces them.
///
/// Landing columns: `id VARCHAR, received_at TIMESTAMP, payload VARCHAR` (the event's JSON text, exactly as sent), then the
/// source's header columns and typed columns, then `_seq`.
///
/// # Errors
/// `Invalid` names the line and column of bad JSON, the depth limit, or the source; `TooLarge` the limit.
pub async fn webhook(world: &World, source: &settings::Source, request: Request) -> Result<Accepted> {
    let _ = (world, source, request);
    unimplemented!()
}
