//! Tantivy's directory over the files of one object; nothing is written here.

use std::{
    collections::HashMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use tantivy::{
    Directory, HasLen,
    directory::{
        DirectoryLock, FileHandle, Lock, OwnedBytes, WatchCallback, WatchHandle, WritePtr,
        error::{DeleteError, LockError, OpenReadError, OpenWriteError},
    },
};

use crate::{bundle::Extent, cache::Piece, source::Source};

/// Bytes by their place in the object.
pub(super) trait Ranges: std::fmt::Debug + Send + Sync + 'static {
    /// Reads a range: where in which bytes.
    fn range(&self, range: Range<u64>) -> io::Result<(Piece, Range<usize>)>;
}

impl Ranges for Source {
    fn range(&self, range: Range<u64>) -> io::Result<(Piece, Range<usize>)> {
        self.read(range)
    }
}

/// The files of an index.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    ranges: Arc<dyn Ranges>,
    files: Arc<HashMap<PathBuf, Extent>>,
}

impl Packed {
    pub(super) fn new(ranges: Arc<dyn Ranges>, files: Vec<(String, Extent)>) -> Self {
        let files = files
            .into_iter()
            .map(|(name, extent)| (PathBuf::from(name), extent));
        Self {
            ranges,
            files: Arc::new(files.collect()),
        }
    }

    fn file(&self, path: &Path) -> Result<File, OpenReadError> {
        let extent = self.files.get(path);
        let extent = extent.ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_owned()))?;
        Ok(File {
            ranges: self.ranges.clone(),
            extent: *extent,
        })
    }
}

/// One file of it.
#[derive(Debug)]
struct File {
    ranges: Arc<dyn Ranges>,
    extent: Extent,
}

impl HasLen for File {
    fn len(&self) -> usize {
        usize::try_from(self.extent.length).unwrap_or(usize::MAX)
    }
}

impl FileHandle for File {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        if range.is_empty() {
            return Ok(OwnedBytes::empty());
        }
        let start = self.extent.start;
        let (piece, at) = self
            .ranges
            .range(start + range.start as u64..start + range.end as u64)?;
        Ok(OwnedBytes::new(piece).slice(at))
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "an index is only read")
}

impl Directory for Packed {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        Ok(Arc::new(self.file(path)?))
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.files.contains_key(path))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        let file = self.file(path)?;
        let bytes = file.read_bytes(0..file.len());
        let failed = |error| OpenReadError::wrap_io_error(error, path.to_owned());
        Ok(bytes.map_err(failed)?.as_slice().to_vec())
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        Err(DeleteError::IoError {
            io_error: Arc::new(read_only()),
            filepath: path.to_owned(),
        })
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        Err(OpenWriteError::wrap_io_error(read_only(), path.to_owned()))
    }

    fn atomic_write(&self, _: &Path, _: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, _: &Lock) -> Result<DirectoryLock, LockError> {
        // Nobody writes.
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}
