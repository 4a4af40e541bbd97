//! What another process does: a function that stands still once it has answered, or that is linked with no tables, asks one
//! that can.
//!
//! What is to be done stands in an item before anything is sent: the item of an index says that it is being built, a lease
//! that its entry is. A job may be lost: then the deadline in that item passes, and the next who wants it begins another. It
//! may be doubled or late: it names the item as it was when it was sent, which only one delivery of it can take. Upkeep has no
//! deadline: its item, the mark, stays as it was until a job has been carried out, and whoever finds it so asks again.
//! Nor has a replay: its item says that it waits, and whoever asks again begins another in its place.

use async_trait::async_trait;
use domain::{Duration, TableName, Timestamp, entry::EntryId};
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

/// "Put rows in quarantine of this model through it again, as its item says."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayJob {
    /// The model.
    pub model: TableName,
    /// The job, as the item of the replay names it.
    pub job: String,
}

/// "Maintain tables and sweep entries, if nobody has since."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpkeepJob {
    /// Version of the mark when the job was sent; none when there was no mark.
    pub mark: Option<u64>,
    /// When it was sent: what was due then is due whatever clock it is delivered under.
    pub at: Timestamp,
}

/// The queue of jobs: those of one index, of one entry, and of upkeep are carried out one after the other, replays of one model
/// one after the other and after its refreshes.
#[async_trait]
pub trait Jobs: Send + Sync + std::fmt::Debug {
    /// Has an index built; when it returns, the job will be delivered at least once.
    async fn index(&self, job: &IndexJob) -> Result<()>;

    /// Has an entry computed anew; when it returns, the job will be delivered at least once.
    async fn rebuild(&self, job: &RebuildJob) -> Result<()>;

    /// Has rows in quarantine put through their model again; when it returns, the job will be delivered at least once.
    async fn replay(&self, job: &ReplayJob) -> Result<()>;

    /// Has tables maintained and entries swept; when it returns, the job will be delivered at least once. One that was sent
    /// for the same mark a short while ago is not sent twice.
    async fn upkeep(&self, job: &UpkeepJob) -> Result<()>;
}
