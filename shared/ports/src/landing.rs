//! Landing tables: append-only, sequences fixed at commit (**S-1**).

use arrow::array::RecordBatch;
use async_trait::async_trait;
use domain::{Position, TableName, Timestamp, items::Column};

use crate::{
    Result,
    upkeep::{Fold, Folded, Forgotten, Sweep, Swept},
};

/// Rows to append.
#[derive(Clone, Debug)]
pub struct Append {
    /// The landing table; created by its first commit.
    pub table: TableName,
    /// The rows, without the sequence column. A column new to the table is added to it; a column of another type than
    /// the table's is refused as `Invalid`.
    pub rows: RecordBatch,
    /// When the rows arrived.
    pub origin_at: Timestamp,
    /// Idempotency key: a second append with the same key stores nothing and answers with the first one's range.
    pub key: Option<String>,
}

/// The answer to an append: durable, and readable from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// First sequence, inclusive.
    pub first: u64,
    /// Last sequence, inclusive.
    pub last: u64,
    /// The table's head after the commit.
    pub position: Position,
    /// The key had been seen: nothing was stored this time.
    pub duplicate: bool,
}

/// What an advance of a source found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advanced {
    /// Rows committed; 0 when nothing was waiting.
    pub rows: u64,
    /// Sequence before, exclusive.
    pub from: u64,
    /// Sequence after, inclusive.
    pub to: u64,
    /// The table's head after the commit.
    pub position: Position,
}

/// Landing tables.
#[async_trait]
pub trait Landing: Send + Sync + std::fmt::Debug {
    /// Commits rows; concurrent calls for one table share a commit (group commit). Returns when durable.
    async fn append(&self, append: Append) -> Result<Appended>;

    /// When and why rows could not be committed, if the last attempt of this process failed as `Unavailable`.
    fn trouble(&self) -> Option<(Timestamp, String)> {
        None
    }

    /// Creates a landing table without rows, or adds columns to it; what exists already is left alone. No commit.
    async fn declare(&self, table: &TableName, columns: &[Column]) -> Result<()>;

    /// Commits the objects that other writers put under `landing/<table>/incoming/` (parquet, NDJSON, CSV), in key
    /// order, each once. `None` when there is neither a table nor an object of that name.
    async fn advance(&self, table: &TableName, now: Timestamp) -> Result<Option<Advanced>>;

    /// Folds one run of small commits into one object; sequences, rows and the oldest origin stay.
    async fn fold(&self, table: &TableName, fold: &Fold) -> Result<Folded> {
        let (_, _) = (table, fold);
        Ok(Folded::default())
    }

    /// Forgets idempotency keys that were stored before a moment, up to a transaction's worth.
    async fn forget(&self, table: &TableName, before: Timestamp) -> Result<Forgotten> {
        let (_, _) = (table, before);
        Ok(Forgotten::default())
    }

    /// Removes objects that no commit names. What lies under `incoming/` belongs to others and stays.
    async fn sweep(&self, table: &TableName, sweep: &Sweep) -> Result<Swept> {
        let (_, _) = (table, sweep);
        Ok(Swept::default())
    }
}
