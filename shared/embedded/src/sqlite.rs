//! State in one SQLite file.
//!
//! Writes of one process go through one thread, which commits all transactions that wait in a
//! single SQLite transaction: one `fsync` for all of them. Each keeps its own conditions and its
//! own answer. Processes take turns by SQLite's own lock. Reads go to a few connections of their
//! own and never wait for the writer. Nothing is written to a file that is no longer at its path.

mod failure;
mod file;
mod mirror;
mod reader;
#[cfg(test)]
mod tests;
mod witness;
mod writer;

use std::{fmt, path::Path, sync::Arc};

use async_trait::async_trait;
use ports::{
    Result, State,
    state::{Item, Key, Outcome, Span, Write, validate},
};

use self::{
    reader::Readers,
    witness::Witness,
    writer::{Entry, Writer},
};

/// The state store in a SQLite file, safe for several processes at once.
///
/// Pointers of the catalog are mirrored into the tables that PyIceberg's SQL catalog reads, in the
/// same transaction.
#[derive(Clone)]
pub struct SqliteState {
    path: Arc<Path>,
    writer: Writer,
    readers: Arc<Readers>,
}

impl fmt::Debug for SqliteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteState")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl SqliteState {
    /// Opens a state file, creating it and its folder when there is none.
    ///
    /// # Errors
    /// `Corrupt` when the file is something else, which is then left as it is; `Invalid` when it is
    /// a folder or was written by a newer version; `Unavailable` when it cannot be read or written,
    /// or the disk is full.
    pub fn open(path: &Path) -> Result<Self> {
        Self::start(path, None)
    }

    /// Whether the file at `path` has lost what it knew: it is one of ours, knows no table, and its log is not there. A
    /// process that was killed before its first commit leaves a log.
    #[must_use]
    pub fn has_lost_its_log(path: &Path) -> bool {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        !Path::new(&log).exists() && file::is_blank(path)
    }

    /// Opens, with a bound on the size of the file in pages: a disk that is full, for tests.
    fn start(path: &Path, pages_max: Option<u32>) -> Result<Self> {
        let connection = file::open(path)?;
        if let Some(pages) = pages_max {
            let bounded = connection.pragma_update(None, "max_page_count", pages);
            bounded.map_err(|error| failure::failure("open state", path, &error))?;
        }
        let path: Arc<Path> = Arc::from(path);
        let watch = file::connect(&path)?;
        let witness = Witness::of(&connection, &path)?;
        Ok(Self {
            writer: Writer::start(connection, path.clone(), witness.clone())?,
            readers: Arc::new(Readers::new(path.clone(), watch, witness)),
            path,
        })
    }
}

#[async_trait]
impl State for SqliteState {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        self.readers.get_many(keys.to_vec()).await
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        self.readers.query(span.clone()).await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        validate(&writes)?;
        let entries = writes
            .into_iter()
            .map(Entry::new)
            .collect::<Result<Vec<_>>>()?;
        self.writer.transact(entries).await
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        self.readers.change_counter().await.map(Some)
    }
}
