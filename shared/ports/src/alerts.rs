//! Alerts: told to people, off the write path.

use async_trait::async_trait;
use domain::{Duration, TableName, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Result;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// A live model failed for the first time since it last succeeded.
    LiveModelFailed,
    /// A failing live model refreshed again.
    LiveModelRecovered,
}

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// What happened.
    pub kind: AlertKind,
    /// To which model.
    pub model: TableName,
    /// When.
    pub at: Timestamp,
    /// The error, for failures.
    pub detail: Option<String>,
}

/// Where alerts go.
#[async_trait]
pub trait Alerts: Send + Sync + std::fmt::Debug {
    /// Hands an alert over. A failure to deliver never fails a refresh.
    async fn send(&self, alert: Alert) -> Result<()>;

    /// Waits until what was handed over is delivered or given up, and no longer than so: for a process that is about to end.
    async fn flush(&self, within: Duration) {
        let _ = within;
    }
}
