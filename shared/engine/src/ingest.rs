//! Ingest: a request body or a file becomes landing rows, or a refusal that says why (**Q-1**).
//!
//! How a value becomes one of a column's type is the table on `ingest::value`; which type a file's column has is
//! decided in `ingest::guess`.

mod build;
mod cdc;
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
mod whole;

use bytes::Bytes;
use domain::{Position, TableName};
use ports::{Result, landing::Appended, queue::Announcement};
use serde::Serialize;

use crate::World;

pub(crate) use cdc::COLUMNS as CHANGE_COLUMNS;
pub use cdc::{Refused, Taken, cdc};
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

/// A request with a body of events or changes, headers already picked.
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
    /// First sequence; 0 when nothing is in the landing table.
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

impl Accepted {
    /// The answer before anything is stored.
    fn nothing(table: &TableName) -> Self {
        Self {
            status: "committed",
            source: table.name().to_owned(),
            sequence_from: 0,
            sequence_to: 0,
            rows: 0,
            quarantined: 0,
            duplicate: false,
        }
    }

    /// Rows are in the landing table.
    fn landed(&mut self, stored: &Appended) {
        self.sequence_from = stored.first;
        self.sequence_to = stored.last;
        self.rows = stored.last - stored.first + 1;
        self.duplicate = stored.duplicate;
    }
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
