//! Announcements that a table advanced.
//!
//! They may be lost, doubled or reordered: state is what counts, and a poll finds what nobody announced.

use async_trait::async_trait;
use domain::{Position, TableName};
use serde::{Deserialize, Serialize};

use crate::Result;

/// "This table has come this far."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The table.
    pub table: TableName,
    /// Its head after the commit.
    pub position: Position,
}

/// The queue of announcements.
#[async_trait]
pub trait Queue: Send + Sync + std::fmt::Debug {
    /// Sends announcements.
    async fn send(&self, announcements: &[Announcement]) -> Result<()>;

    /// Waits for at least one announcement and takes all that are there. Cancel-safe.
    async fn receive(&self) -> Result<Vec<Announcement>>;
}
