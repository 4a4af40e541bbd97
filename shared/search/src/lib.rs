//! Search over entries: BM25 by tantivy, and nearest vectors.
//!
//! An index is one object beside the entry's data: its parts, and at its end a tail that says where they are and holds what
//! every search needs. Opening reads the tail in one request; a search then reads only the ranges it needs, through a cache
//! that all indexes of a process share. Building spools to a folder on disk, so that its memory does not grow with the rows
//! (vectors take twelve bytes a row).
//!
//! Never here: SQL, who builds, which generation counts. Those are `query`'s and `engine`'s.

mod bundle;
mod cache;
mod feed;
pub mod model;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod vectors;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use object_store::path::Path;
use ports::{
    Error, Kind, Objects, Result, Search,
    entries::DataSet,
    search::{Hit, IndexFile, Near, Plan, Progress, Words},
    tables::Rows,
};

use cache::Cache;
use source::Source;

/// Indexes that stay open, as long as their tails are not larger together than the cache.
const OPEN_MAX: usize = 32;

/// What a process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of indexes that are kept in memory.
    pub cache: usize,
    /// Where indexes are spooled while they are built; made when it is not there.
    pub scratch: PathBuf,
}

/// Indexes on an object store.
#[derive(Debug)]
pub struct Indexes {
    objects: Objects,
    scratch: PathBuf,
    cache: Arc<Cache>,
    /// Bytes of the tails of open indexes: those of many vectors hold all centroids.
    tails_max: u64,
    open: Mutex<VecDeque<(IndexFile, Opened)>>,
}

#[derive(Clone, Debug)]
enum Opened {
    Text(Arc<text::TextIndex>),
    Vectors(Arc<vectors::VectorIndex>),
}

/// The path of an index.
fn path(set: &DataSet, name: &str) -> Path {
    Path::from("entries")
        .join(set.id.to_string())
        .join(set.generation.as_str())
        .join(name)
}

impl Indexes {
    /// Indexes of a warehouse.
    #[must_use]
    pub fn new(objects: Objects, settings: Settings) -> Self {
        Self {
            objects,
            scratch: settings.scratch,
            tails_max: settings.cache as u64,
            cache: Arc::new(Cache::new(settings.cache)),
            open: Mutex::default(),
        }
    }

    /// Forgets what is in memory: the next search opens as if the process had just begun.
    pub fn forget(&self) {
        self.held().clear();
        self.cache.clear();
    }

    fn held(&self) -> std::sync::MutexGuard<'_, VecDeque<(IndexFile, Opened)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn opened(&self, index: &IndexFile) -> Result<Opened> {
        let known = {
            let mut held = self.held();
            let at = held.iter().position(|(known, _)| known == index);
            let found = at.and_then(|at| held.remove(at));
            if let Some(found) = &found {
                held.push_front(found.clone());
            }
            found.map(|(_, opened)| opened)
        };
        if let Some(opened) = known {
            return Ok(opened);
        }
        let path = path(&index.set, &index.name);
        let (source, footer) = Source::open(&self.objects, path, index, &self.cache).await?;
        let opened = match &footer.content {
            bundle::Content::Text { .. } => {
                Opened::Text(Arc::new(text::TextIndex::open(source, footer).await?))
            }
            bundle::Content::Vectors(_) => {
                Opened::Vectors(Arc::new(vectors::VectorIndex::open(source, &footer)?))
            }
        };
        let mut held = self.held();
        held.push_front((index.clone(), opened.clone()));
        let mut tails = 0;
        let fits = |(index, _): &&(IndexFile, Opened)| {
            tails += index.tail;
            tails <= self.tails_max
        };
        let stay = held.iter().take(OPEN_MAX).take_while(fits).count();
        // The one that is asked for stays, however large.
        held.truncate(stay.max(1));
        Ok(opened)
    }

    fn corrupt(index: &IndexFile, why: &str) -> Error {
        Error::new(Kind::Corrupt, "read index", &index.name).because(why.to_owned())
    }
}

#[async_trait]
impl Search for Indexes {
    async fn build(
        &self,
        set: &DataSet,
        name: &str,
        plan: &Plan,
        rows: Rows,
        progress: &Progress,
    ) -> Result<IndexFile> {
        let failed = |error: std::io::Error| {
            Error::new(Kind::Unavailable, "build index", name).because(error)
        };
        std::fs::create_dir_all(&self.scratch).map_err(failed)?;
        let scratch = tempfile::Builder::new()
            .prefix("index-")
            .tempdir_in(&self.scratch)
            .map_err(failed)?;
        let path = path(set, name);
        let place = bundle::Place {
            objects: &self.objects,
            path: &path,
            name,
        };
        let (bytes, tail) = match plan {
            Plan::Text => text::build(place, scratch, rows, progress).await?,
            Plan::Vectors { metric, exact_max } => {
                let shape = vectors::Wanted {
                    metric: *metric,
                    exact_max: *exact_max,
                };
                vectors::build(place, scratch, shape, rows, progress).await?
            }
        };
        Ok(IndexFile {
            set: set.clone(),
            name: name.to_owned(),
            bytes,
            tail,
        })
    }

    async fn words(&self, index: &IndexFile, words: &Words) -> Result<Vec<Hit>> {
        match self.opened(index).await? {
            Opened::Text(text) => text::search(text, words.clone()).await,
            Opened::Vectors(_) => Err(Self::corrupt(index, "it is of vectors, not of text")),
        }
    }

    async fn near(&self, index: &IndexFile, near: &Near) -> Result<Vec<Hit>> {
        match self.opened(index).await? {
            Opened::Vectors(vectors) => vectors::search(&vectors, near).await,
            Opened::Text(_) => Err(Self::corrupt(index, "it is of text, not of vectors")),
        }
    }
}
