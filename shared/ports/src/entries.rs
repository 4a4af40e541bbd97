//! Data of materialized entries: a folder per entry and generation.

use std::fmt;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use domain::entry::EntryId;
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

    /// Takes a parquet file of at most `limit` bytes, as it arrives. `Invalid` when it is none, `TooLarge` beyond the limit.
    async fn receive(&self, set: &DataSet, upload: Upload, limit: u64) -> Result<Stored>;

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
}
