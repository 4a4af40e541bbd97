//! A file's rows, read on a thread of their own and handed over chunk by chunk.

use std::{fs::File, io::Read, path::Path};

use arrow::array::RecordBatch;
use domain::items::Column;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ports::{Error, Kind, Result};
use tokio::sync::mpsc;

use super::{
    FileFormat,
    text::{Decoder, Reject, TextFormat},
    whole::Whole,
};

/// Bytes read at once.
const PIECE: usize = 256 << 10;
/// Rows of one batch of a parquet file.
const BATCH_ROWS: usize = 64 * 1024;

/// A stretch of the file.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) rows: Option<RecordBatch>,
    pub(super) rejects: Vec<Reject>,
    /// Bytes of the file read so far.
    pub(super) bytes: u64,
}

type Sender = mpsc::Sender<Result<Loaded>>;

/// Starts reading. At most one chunk waits while another is read and a third is committed.
pub(super) fn start(
    path: &Path,
    format: FileFormat,
    known: Vec<Column>,
) -> mpsc::Receiver<Result<Loaded>> {
    let (sender, receiver) = mpsc::channel(1);
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || {
        let read = match format {
            FileFormat::Ndjson => text(&path, TextFormat::Ndjson, &known, &sender),
            FileFormat::Csv => text(&path, TextFormat::Csv, &known, &sender),
            FileFormat::Parquet => parquet(&path, &sender),
        };
        if let Err(error) = read {
            // The other side may have gone away, and then nobody wants to know.
            let _ = sender.blocking_send(Err(error));
        }
    });
    receiver
}

/// Opens a file; `NotFound` and `Invalid` say what is wrong with it.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let failed = |error: std::io::Error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let kind = if missing {
            Kind::NotFound
        } else {
            Kind::Invalid
        };
        Error::new(kind, "read file", path.display()).because(error)
    };
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.is_dir() {
        return Err(invalid(path, "it is a folder"));
    }
    Ok((file, about.len()))
}

pub(super) fn invalid(path: &Path, why: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, "read file", path.display()).because(why.into())
}

fn text(path: &Path, format: TextFormat, known: &[Column], sender: &Sender) -> Result<()> {
    let (mut file, _) = open(path)?;
    let mut decoder = Decoder::new(format, known);
    let mut piece = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        let read = file
            .read(&mut piece)
            .map_err(|e| invalid(path, e.to_string()))?;
        bytes += read as u64;
        let chunks = if read == 0 {
            decoder.finish()
        } else {
            decoder.push(&piece[..read])
        };
        for chunk in chunks.map_err(|bad| invalid(path, bad.to_string()))? {
            let loaded = Loaded {
                rows: chunk.rows,
                rejects: chunk.rejects,
                bytes,
            };
            if sender.blocking_send(Ok(loaded)).is_err() {
                return Ok(());
            }
        }
        if read == 0 {
            return Ok(());
        }
    }
}

fn parquet(path: &Path, sender: &Sender) -> Result<()> {
    let unreadable = |error: ::parquet::errors::ParquetError| invalid(path, error.to_string());
    let (file, size) = open(path)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(unreadable)?;
    let total = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
    let (again, _) = open(path)?;
    let refused = |why: String| invalid(path, why);
    let mut whole = Whole::new(&builder, again, BATCH_ROWS).map_err(refused)?;
    let reader = builder
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(unreadable)?;
    let mut rows = 0;
    for batch in reader {
        let batch = batch.map_err(|e| invalid(path, e.to_string()))?;
        let batch = whole.next(batch).map_err(refused)?;
        rows += batch.num_rows() as u64;
        // Near enough for a progress bar: rows are of much the same size.
        let bytes = u64::try_from(u128::from(size) * u128::from(rows) / u128::from(total.max(1)));
        let loaded = Loaded {
            rows: Some(batch),
            rejects: Vec::new(),
            bytes: bytes.unwrap_or(size),
        };
        if sender.blocking_send(Ok(loaded)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}
