//! Indexes that another process builds: what a function that stands still once it has answered asks of one that does not.
//!
//! The item of the index says that it is being built before anything is sent. A job may be lost: then its deadline passes
//! and the next who searches begins another. It may be doubled or late: it names the item as it was when it was sent, which
//! only one delivery of it can take.

use async_trait::async_trait;
use domain::entry::EntryId;
use serde::{Deserialize, Serialize};

use crate::Result;

/// "Build this index of this entry."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexJob {
    /// The entry.
    pub entry: EntryId,
    /// The name of the index.
    pub index: String,
    /// The job, as the item of the index names it.
    pub job: String,
    /// Version of that item when the job was sent.
    pub version: u64,
}

/// The queue of jobs: those of one index are carried out one after the other.
#[async_trait]
pub trait IndexJobs: Send + Sync + std::fmt::Debug {
    /// Sends a job; when it returns, the job will be delivered at least once.
    async fn send(&self, job: &IndexJob) -> Result<()>;
}
