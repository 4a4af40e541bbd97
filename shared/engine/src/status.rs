//! Where everything stands: the payload of `GET /api/live/status` and of `headwater live status`.

use std::collections::BTreeMap;

use domain::TableName;
use ports::Result;
use serde::Serialize;

use crate::World;

/// The whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// RFC 3339.
    pub now: String,
    /// The runner of this process.
    pub runner: RunnerStatus,
    /// The `live:` settings, durations in seconds.
    pub settings: BTreeMap<&'static str, serde_json::Value>,
    /// Live incremental models, in DAG order.
    pub models: Vec<ModelStatus>,
    /// Landing tables.
    pub sources: Vec<SourceStatus>,
    /// Highest lag of any model.
    pub max_lag_seconds: f64,
}

/// The runner.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunnerStatus {
    /// Whether it runs in this process.
    pub running: bool,
    /// Cycles since it started.
    pub cycles: u64,
    /// When the last one ended, RFC 3339.
    pub last_cycle_at: Option<String>,
    /// What stopped the last cycle short, if anything.
    pub last_error: Option<String>,
}

/// One live model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelStatus {
    /// The model.
    pub model: TableName,
    /// `live`, `behind`, `waiting`, `failing` or `paused`.
    pub status: &'static str,
    /// Whether it is paused.
    pub paused: bool,
    /// The model it waits for.
    pub waiting_on: Option<TableName>,
    /// Age of the oldest landing data not yet applied; 0 when caught up.
    pub lag_seconds: f64,
    /// Whether the lag is at or below `max_lag`.
    pub fresh: bool,
    /// Lag that the last refresh removed.
    pub last_lag_ms: Option<u64>,
    /// Time the last refresh took.
    pub last_duration_ms: Option<u64>,
    /// When it ended, RFC 3339.
    pub last_refresh: Option<String>,
    /// Refreshes that succeeded.
    pub refreshes: u64,
    /// Rows they wrote.
    pub rows_written: u64,
    /// Rows in the table.
    pub rows: u64,
    /// Published watermark.
    pub watermark: u64,
    /// Consumed watermark per input.
    pub consumed: BTreeMap<TableName, u64>,
    /// Failures since the last success.
    pub consecutive_failures: u32,
    /// The last error; none after a success.
    pub last_error: Option<String>,
    /// Seconds until the next retry; none when not failing.
    pub retry_in_seconds: Option<f64>,
    /// Warn-severity assertions that failed in the last refresh.
    pub warnings: Vec<String>,
}

/// One landing table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceStatus {
    /// The table.
    pub source: TableName,
    /// Last sequence.
    pub watermark: u64,
    /// Commits.
    pub commits: u64,
    /// Rows.
    pub rows: u64,
    /// When it last advanced, RFC 3339.
    pub advanced_at: Option<String>,
}

/// Reads it all.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the state store.
pub async fn status(world: &World, runner: RunnerStatus) -> Result<Status> {
    let _ = (world, runner);
    unimplemented!()
}
