//! One refresh: pin, query, stage, check, commit.

use std::collections::BTreeMap;

use domain::{Position, TableName};
use ports::Result;
use serde::Serialize;

use crate::World;

/// How an attempt on a model ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Refreshed {
    /// Committed.
    Built {
        /// Rows added.
        added: u64,
        /// Rows removed.
        deleted: u64,
        /// Rows in the table now.
        rows: u64,
        /// Lag removed: age of the oldest data applied, milliseconds.
        lag_ms: u64,
        /// Time it took, milliseconds.
        duration_ms: u64,
        /// Warn-severity assertions that failed.
        warnings: Vec<String>,
    },
    /// Nothing to do.
    Idle,
    /// Somebody else committed this model meanwhile; looked at again next cycle. Not a failure of the model.
    Conflict,
    /// Nothing committed.
    Error {
        /// The chain.
        message: String,
    },
    /// Nothing committed: an error-severity assertion failed.
    AssertionFailed {
        /// Which, and what was found.
        message: String,
    },
    /// Not attempted: paused, backing off, waiting on another model, or inside its interval.
    Held {
        /// Why.
        reason: String,
    },
}

/// Brings one model up to `targets` (a landing table read no further than its target; models through their head) and
/// records how it went. Failures of the model are an outcome; only the world failing is an error.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports.
pub async fn refresh(world: &World, model: &TableName, targets: &BTreeMap<TableName, Position>) -> Result<Refreshed> {
    let _ = (world, model, targets);
    unimplemented!()
}
