//! Search over entries: indexes beside their data, and what makes vectors of text.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use domain::entry::Metric;
use roaring::RoaringBitmap;

use crate::{Error, Kind, Result, entries::DataSet, tables::Rows};

/// Most rows of an entry that has an index: rows are counted in 32 bits.
pub const ROWS_MAX: u64 = u32::MAX as u64;

/// A file of an index, and what is known of it without asking the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexFile {
    /// The data it is of, in whose folder it is.
    pub set: DataSet,
    /// Its name in that folder.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes at its end that opening reads, in one request.
    pub tail: u64,
}

/// What an index is built of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Every column of the rows is text.
    Text,
    /// The one column of the rows holds vectors: lists of floating-point numbers, all of one length.
    Vectors {
        /// How near two are.
        metric: Metric,
        /// Up to so many rows are searched one by one.
        exact_max: u64,
    },
}

/// Rows that are done, for whoever looks.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Some more are done.
    pub fn add(&self, rows: u64) {
        self.0.fetch_add(rows, Ordering::Relaxed);
    }

    /// How many are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A search for words.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// The query: words, `"phrases"`, `+must`, `-not`, `column:word`, `AND`, `OR`, `(..)`.
    pub query: String,
    /// Columns that words without a column are looked for in.
    pub columns: Vec<String>,
    /// Rows that count; none for all.
    pub among: Option<RoaringBitmap>,
    /// Best hits that are left out.
    pub offset: usize,
    /// Most hits.
    pub limit: usize,
}

/// A search for the nearest vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Near {
    /// The vector.
    pub vector: Vec<f32>,
    /// Rows that count; none for all.
    pub among: Option<RoaringBitmap>,
    /// Most hits.
    pub limit: usize,
}

/// A row that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its number in the entry, from 0.
    pub row: u32,
    /// How good it is: more is better.
    pub score: f32,
}

/// Indexes.
///
/// Contract: an index is there whole or not at all. Building takes bounded memory whatever the rows; searching opens a file
/// with one request and then reads only what a query needs. Rows that do not count (`among`) never take the place of rows
/// that do. Hits come best first, of equal ones the earlier row. A file that is gone is `NotFound`, one that is not what was
/// written `Corrupt`.
#[async_trait]
pub trait Search: Send + Sync + fmt::Debug {
    /// Builds an index of rows. `Invalid` for columns that the plan does not take, vectors of several lengths, or values that
    /// are no numbers.
    async fn build(
        &self,
        set: &DataSet,
        name: &str,
        plan: &Plan,
        rows: Rows,
        progress: &Progress,
    ) -> Result<IndexFile>;

    /// Searches words. `Invalid` for a query that is none, with the position.
    async fn words(&self, index: &IndexFile, words: &Words) -> Result<Vec<Hit>>;

    /// Searches the nearest. `Invalid` for a vector of another length, or that has no direction where that counts.
    async fn near(&self, index: &IndexFile, near: &Near) -> Result<Vec<Hit>>;
}

/// Makes vectors of text.
///
/// Contract: one vector per text in their order, all of one length; equal texts give equal vectors. Waits and retries are
/// bounded.
#[async_trait]
pub trait Embedder: Send + Sync + fmt::Debug {
    /// The vectors of some texts. `Invalid` when the texts or the settings are at fault, `Unavailable` when the service is.
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>>;

    /// Texts that are well sent at once.
    fn batch(&self) -> usize {
        64
    }
}

/// What a process searches with.
#[derive(Clone, Debug)]
pub struct Searching {
    /// Indexes.
    pub indexes: Arc<dyn Search>,
    /// Vectors of text.
    pub embedder: Arc<dyn Embedder>,
}

impl Default for Searching {
    /// Nothing: whatever is asked of it is refused.
    fn default() -> Self {
        Self {
            indexes: Arc::new(Without),
            embedder: Arc::new(Without),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Without;

fn none<T>(subject: impl fmt::Display) -> Result<T> {
    let why =
        "this process has no search; ask one that has: `headwater`, or the function `control`";
    Err(Error::new(Kind::Unavailable, "search", subject).because(why))
}

#[async_trait]
impl Search for Without {
    async fn build(
        &self,
        set: &DataSet,
        _: &str,
        _: &Plan,
        _: Rows,
        _: &Progress,
    ) -> Result<IndexFile> {
        none(set)
    }

    async fn words(&self, index: &IndexFile, _: &Words) -> Result<Vec<Hit>> {
        none(&index.set)
    }

    async fn near(&self, index: &IndexFile, _: &Near) -> Result<Vec<Hit>> {
        none(&index.set)
    }
}

#[async_trait]
impl Embedder for Without {
    async fn embed(&self, _: &[String]) -> Result<Vec<Vec<f32>>> {
        let why = "no embedder is set: name one in `embedder.url`, or search with a vector";
        Err(Error::new(Kind::Invalid, "embed", "text").because(why))
    }
}
