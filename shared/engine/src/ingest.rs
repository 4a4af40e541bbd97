//! Ingest: a request body or a file becomes landing rows, or a refusal that says why (**Q-1**).
//!
//! How a value becomes one of a column's type is the table on `ingest::value`; which type a file's column has is
//! decided in `ingest::guess`.

mod build;
mod csv;
mod events;
mod file;
mod guess;
mod json;
mod load;
mod rows;
#[cfg(test)]
mod tests;
pub mod text;
mod value;
mod webhook;

use bytes::Bytes;
use domain::{Position, TableName};
use ports::{Result, queue::Announcement};
use serde::Serialize;

use crate::World;

pub use file::{FileFormat, FileLoaded, Progress, file};
pub use webhook::webhook;

/// Schema of the tables that keep what could not be stored: `quarantine.<source>`.
pub const QUARANTINE: &str = "quarantine";

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

/// Tells that a table advanced. The rows are committed whatever becomes of it: a poll finds what nobody announced.
async fn announce(world: &World, table: &TableName, position: Position) {
    let announcement = Announcement {
        table: table.clone(),
        position,
    };
    if let Err(error) = world.queue.send(&[announcement]).await {
        tracing::warn!(%table, error = error.chain(), "an advance could not be announced");
    }
}

/// The table that keeps what `table` could not.
fn quarantine(table: &TableName) -> Result<TableName> {
    TableName::new(QUARANTINE, table.name()).map_err(|error| {
        ports::Error::new(ports::Kind::Invalid, "name the quarantine of", table).because(error)
    })
}
