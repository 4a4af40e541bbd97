//! Data of materialized entries: a folder per entry and generation.

use std::{collections::BTreeMap, fmt, ops::Range};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use domain::{Duration, entry::EntryId};
use futures::stream::BoxStream;

use crate::{
    Result,
    tables::{Rows, Scan},
};

/// One generation of an entry's data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSet {
    /// The entry.
    pub id: EntryId,
    /// The generation: the token it was built under.
    pub generation: String,
}

impl fmt::Display for DataSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.id, self.generation)
    }
}

/// What is known of a data set that is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Columns.
    pub schema: SchemaRef,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Rows that were picked.
pub type Picked = RecordBatch;

/// Bytes as they arrive; an error ends an upload, and nothing of it is kept.
pub type Upload = BoxStream<'static, Result<Bytes>>;

/// Where the data of entries is.
///
/// Contract: a data set is there whole or not at all; writing one again replaces it. Memory is bounded whatever the size.
/// Rows are read in the order they were written.
#[async_trait]
pub trait Entries: Send + Sync + fmt::Debug {
    /// Writes rows. `Invalid` for a column that cannot be stored.
    async fn write(&self, set: &DataSet, rows: Rows) -> Result<Stored>;

    /// Takes a parquet file of at most `limit` bytes, as it arrives. `Invalid` when it is none, or not every page of it can be
    /// read; `TooLarge` beyond the limit.
    async fn receive(&self, set: &DataSet, upload: Upload, limit: u64) -> Result<Stored>;

    /// Looks at what a builder left in a data set, as carefully as at what is received, and reads little of it; none when it
    /// is not there. `Invalid` when it is no data; it stays.
    async fn check(&self, set: &DataSet) -> Result<Option<Stored>>;

    /// Looks at a data set; none when it is not there.
    async fn find(&self, set: &DataSet) -> Result<Option<Stored>>;

    /// What a query reads, without looking: `NotFound` comes when it is read.
    async fn scan(&self, set: &DataSet, stored: &Stored) -> Result<Scan>;

    /// Reads the rows of a data set of so many bytes. `NotFound` when it is not there.
    async fn read(&self, set: &DataSet, bytes: u64) -> Result<Rows>;

    /// Reads some columns of a data set of so many bytes, in the order named. `NotFound` when it is not there.
    async fn columns(&self, set: &DataSet, bytes: u64, columns: &[String]) -> Result<Rows>;

    /// Picks rows by their numbers (from 0), in the order given, with some columns in the order named: reads little more than
    /// them. `Invalid` for a column or a row that is not there, `NotFound` when the data set is not.
    async fn pick(
        &self,
        set: &DataSet,
        bytes: u64,
        rows: &[u32],
        columns: &[String],
    ) -> Result<Picked>;

    /// Files of a data set beside its data: indexes.
    async fn beside(&self, set: &DataSet) -> Result<Vec<String>>;

    /// Removes a file beside the data; one that is not there is no error.
    async fn remove(&self, set: &DataSet, file: &str) -> Result<()>;

    /// Removes a data set and what is beside it; one that is not there is no error.
    async fn delete(&self, set: &DataSet) -> Result<()>;

    /// All data sets. What has another name than they have is left alone.
    async fn list(&self) -> Result<Vec<DataSet>>;

    /// An address that reads the file of a data set for a while without any other right; none when the store has no such
    /// addresses.
    async fn link(&self, set: &DataSet, life: Duration) -> Result<Option<String>> {
        let _ = (set, life);
        Ok(None)
    }

    /// Whether files can be sent to where they stay by whoever has an [`Address`].
    fn has_addresses(&self) -> bool {
        false
    }

    /// An address that takes the file of a data set, of exactly so many bytes, for a while and while there is none; none when
    /// the store has no such addresses. What is sent there is not looked at before [`Entries::check`]. `TooLarge` for more
    /// than the store takes at once.
    async fn address(&self, set: &DataSet, bytes: u64, life: Duration) -> Result<Option<Address>> {
        let _ = (set, bytes, life);
        Ok(None)
    }

    /// The file of a data set, or a part of it; none when it is not there.
    async fn file(&self, set: &DataSet, part: Part) -> Result<Option<File>> {
        let _ = (set, part);
        Ok(None)
    }
}

/// Which part of a file is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Nothing but its size.
    Size,
    /// All of it.
    #[default]
    Whole,
    /// From this byte on, to before that one if there is an end.
    From(u64, Option<u64>),
    /// So many bytes at its end.
    Last(u64),
}

impl Part {
    /// The bytes of a file of `size` bytes; none when there are none of these.
    #[must_use]
    pub fn of(self, size: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::Size => 0..0,
            Self::Whole => 0..size,
            Self::From(from, to) => from..to.unwrap_or(size).min(size),
            Self::Last(bytes) => size.saturating_sub(bytes)..size,
        };
        match self {
            Self::Size | Self::Whole => Some(range),
            Self::From(..) | Self::Last(_) => (range.start < range.end).then_some(range),
        }
    }
}

/// A file, or a part of one, on its way.
pub struct File {
    /// Bytes of the whole file.
    pub size: u64,
    /// Which of them these are; none when the part that was wanted has none.
    pub range: Option<Range<u64>>,
    /// The bytes.
    pub bytes: Upload,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("size", &self.size)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// Where a file can be sent with nothing but this: one PUT with these headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where.
    pub href: String,
    /// Headers without which it is refused, by their names in small letters.
    pub headers: BTreeMap<String, String>,
}

/// Makes addresses of objects that anybody can use for a while.
#[async_trait]
pub trait Sign: Send + Sync + fmt::Debug {
    /// An address that reads the object at a path of the warehouse.
    async fn sign(&self, path: &str, life: Duration) -> Result<String>;

    /// An address that makes the object at a path of the warehouse, of exactly so many bytes; one that is there is never
    /// replaced. It begins to be used before its time is over, and may go on after. `TooLarge` for more than one request takes.
    async fn sign_upload(&self, path: &str, bytes: u64, life: Duration) -> Result<Address>;
}
