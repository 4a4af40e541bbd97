//! A copy of an upload while it arrives, to be read once before the upload is completed.
//!
//! A parquet file says only at its end where its pages are, so nothing of it can be judged on the way. What was judged by its
//! footer alone would be found to be broken by its first reader, when the entry has long been committed. The copy is on this
//! machine: the object store is not asked for what has just been sent to it, and what is refused was never an object there.

use std::{
    fs::File,
    io::{self, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use bytes::Bytes;
use parquet::{
    arrow::arrow_reader::{
        ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
    },
    errors::ParquetError,
    file::reader::ChunkReader,
};
use ports::{
    Error, Kind, Result,
    entries::{DataSet, Stored},
};

use super::{FOOTER_MAX, accept, batches};

/// Bytes that are held in memory before they go to the folder of temporary files.
const HELD_BYTES: usize = 4 << 20;
/// Bytes that are read where they are: waiting for another thread's turn takes longer.
const FEW_BYTES: usize = 64 << 10;
/// Bytes behind the footer: its length, and the mark of the format.
const TAIL: u64 = 8;
const ACTION: &str = "take upload";

/// What has arrived: little of it in memory, much in a file without a name, which goes with this process.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    held: Vec<u8>,
    file: Option<File>,
    bytes: u64,
}

impl Spool {
    /// Nothing yet; a file would be in this folder.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            held: Vec::new(),
            file: None,
            bytes: 0,
        }
    }

    /// Keeps a piece.
    pub(super) async fn put(&mut self, set: &DataSet, piece: &[u8]) -> Result<()> {
        self.bytes += piece.len() as u64;
        self.held.extend_from_slice(piece);
        match self.held.len() < HELD_BYTES {
            true => Ok(()),
            false => self.spill(set).await,
        }
    }

    async fn spill(&mut self, set: &DataSet) -> Result<()> {
        let (held, file) = (std::mem::take(&mut self.held), self.file.take());
        let folder = self.folder.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut file = match file {
                Some(file) => file,
                None => {
                    std::fs::create_dir_all(&folder)?;
                    tempfile::tempfile_in(&folder)?
                }
            };
            file.write_all(&held)?;
            Ok::<_, io::Error>(file)
        });
        let written = written.await.unwrap_or_else(|error| Err(error.into()));
        let failed = |error| Error::new(Kind::Unavailable, "copy upload of", set).because(error);
        self.file = Some(written.map_err(failed)?);
        Ok(())
    }

    /// Reads everything once, with the memory of a page and a batch: what a reader would trip over is found here.
    pub(super) async fn judge(mut self, set: &DataSet) -> Result<Stored> {
        if self.file.is_some() {
            self.spill(set).await?;
        }
        let (of, few) = (
            set.clone(),
            self.file.is_none() && self.held.len() <= FEW_BYTES,
        );
        // What is no parquet file may end its decoder by a panic.
        let read = move || {
            catch_unwind(AssertUnwindSafe(|| match self.file {
                Some(file) => sound(&of, file, self.bytes),
                None => sound(&of, Bytes::from(self.held), self.bytes),
            }))
        };
        let read = match few {
            true => read(),
            false => tokio::task::spawn_blocking(read)
                .await
                .map_err(|error| Error::new(Kind::Unavailable, ACTION, set).because(error))?,
        };
        read.unwrap_or_else(|_| Err(unfit(set, "its pages cannot be read: the decoder gave up")))
    }
}

fn unfit(set: &DataSet, why: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, ACTION, set).because(why.into())
}

/// What is in a file of which every page can be read.
fn sound(set: &DataSet, file: impl ChunkReader + 'static, bytes: u64) -> Result<Stored> {
    let incomplete =
        |error: ParquetError| unfit(set, format!("it is no complete parquet file: {error}"));
    // Whoever finds the entry later reads no longer footer.
    if let Some(tail) = bytes.checked_sub(TAIL) {
        let tail = file.get_bytes(tail, TAIL as usize).map_err(incomplete)?;
        let length = tail
            .first_chunk()
            .map_or(0, |says| u32::from_le_bytes(*says));
        if u64::from(length) > FOOTER_MAX {
            let why = format!("its footer has {length} bytes; at most {FOOTER_MAX} are read");
            return Err(unfit(set, why));
        }
    }
    let plain = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(incomplete)?;
    let (footer, schema) = (plain.metadata().clone(), plain.schema().clone());
    accept::whole(set, &footer, bytes).map_err(|error| {
        unfit(
            set,
            format!("it is no complete parquet file: {}", error.chain()),
        )
    })?;
    accept::exact(set, &footer)?;
    accept::compressed(set, &footer)?;
    accept::schema(ACTION, set, &schema)?;
    let unread = |rows: u64, error: &dyn std::fmt::Display| {
        unfit(
            set,
            format!("its pages cannot be read, after {rows} rows: {error}"),
        )
    };
    let views = ArrowReaderOptions::new().with_schema(batches::views(&schema));
    // What has no views is read as it is.
    let lean = ArrowReaderMetadata::try_new(footer.clone(), views).unwrap_or(plain);
    let most = batches::rows(&footer);
    let read = ParquetRecordBatchReaderBuilder::new_with_metadata(file, lean)
        .with_batch_size(most)
        .build();
    let mut rows = 0;
    for batch in read.map_err(|error| unread(0, &error))? {
        let batch = batch.map_err(|error| unread(rows, &error))?;
        let bytes = batches::bytes(&batch);
        if bytes > batches::BYTES_MAX {
            let (count, limit) = (batch.num_rows(), batches::BYTES_MAX >> 20);
            let why = format!(
                "{count} rows after the first {rows} are {} MiB when they are decoded, more than {limit}, of which its footer \
                 says nothing: write row groups of fewer rows, or with a writer that tells the size of texts",
                bytes >> 20
            );
            return Err(unfit(set, why));
        }
        rows += batch.num_rows() as u64;
    }
    let said = footer.file_metadata().num_rows();
    if u64::try_from(said) != Ok(rows) {
        let why = format!("it has {rows} rows, and says that it has {said}");
        return Err(unfit(set, why));
    }
    Ok(Stored {
        schema,
        rows,
        bytes,
    })
}
