//! What another process does for entries: a function that stands still once it has answered asks one that does not.
//!
//! What is to be done stands in an item before anything is sent: the item of an index says that it is being built, a lease
//! that its entry is. A job may be lost: then the deadline in that item passes, and the next who wants it begins another. It
//! may be doubled or late: it names the item as it was when it was sent, which only one delivery of it can take.

use async_trait::async_trait;
use domain::{Duration, entry::EntryId};
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

/// "Compute this query entry anew, under this lease."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildJob {
    /// The entry.
    pub entry: EntryId,
    /// The token of the lease that was taken for it.
    pub token: String,
    /// How long its statement may run.
    pub time: Duration,
}

/// The queue of jobs: those of one index, and of one entry, are carried out one after the other.
#[async_trait]
pub trait Jobs: Send + Sync + std::fmt::Debug {
    /// Has an index built; when it returns, the job will be delivered at least once.
    async fn index(&self, job: &IndexJob) -> Result<()>;

    /// Has an entry computed anew; when it returns, the job will be delivered at least once.
    async fn rebuild(&self, job: &RebuildJob) -> Result<()>;
}
