//! Refreshes that somebody else runs: what the coalesce function asks of the refresh functions.
//!
//! Orders may be lost, doubled or reordered: a refresh that has nothing to do changes nothing, and what was lost is sent
//! again when the cycle's patience is over.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::{Position, TableName};
use serde::{Deserialize, Serialize};

use crate::Result;

/// "Refresh this model, in this cycle."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The model.
    pub model: TableName,
    /// Number of the cycle, whose targets the refresh reads up to.
    pub cycle: u64,
    /// How often it has been sent in this cycle, from 1: two orders that differ in nothing are one.
    pub attempt: u32,
    /// The targets of the cycle that begins with it, which may not have been written down yet; none when it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens: Option<BTreeMap<TableName, Position>>,
}

/// The queue of refreshes: orders of one model are run one after the other.
#[async_trait]
pub trait Refreshes: Send + Sync + std::fmt::Debug {
    /// Sends orders; when it returns, all of them will be delivered at least once.
    async fn send(&self, orders: &[Order]) -> Result<()>;
}
