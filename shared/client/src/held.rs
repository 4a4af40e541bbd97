//! Rows in this process: in memory while they are few, in a temporary parquet file when they are many.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parquet::{
    arrow::{
        ArrowWriter, AsyncArrowWriter, ParquetRecordBatchStreamBuilder,
        arrow_reader::ParquetRecordBatchReaderBuilder,
    },
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};
use tempfile::TempPath;
use tokio_util::io::ReaderStream;

use crate::{
    batches::{BatchStream, Batches, Data, Failed},
    error::{BoxError, Error, Result},
    transport::{Body, full},
};

/// Most rows, and bytes, of a row group: what one writer holds.
const GROUP_ROWS: usize = 128 << 10;
const GROUP_BYTES: usize = 16 << 20;
/// Rows of a batch that is read.
const BATCH_ROWS: usize = 8 << 10;
/// Bytes of rows that are encoded where they are: waiting for another thread's turn takes longer.
const FEW_BYTES: usize = 64 << 10;
/// Bytes of a piece that is sent.
const PIECE_BYTES: usize = 256 << 10;

/// Rows that are here.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Memory(Arc<Batches>),
    File(Arc<Spool>),
}

/// A temporary parquet file; it goes with its last frame.
#[derive(Debug)]
pub(crate) struct Spool {
    pub(crate) path: TempPath,
    pub(crate) schema: SchemaRef,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .build()
}

/// A place for rows that do not fit in memory.
pub(crate) fn temporary() -> Result<(tokio::fs::File, TempPath), std::io::Error> {
    let (file, path) = tempfile::NamedTempFile::new()?.into_parts();
    Ok((tokio::fs::File::from_std(file), path))
}

impl Held {
    /// Takes what a function returned; more than `memory` bytes of a stream go into a file as they come.
    pub(crate) async fn take(data: Data, memory: usize) -> Result<Self, Failed> {
        let BatchStream {
            schema,
            mut batches,
        } = match data {
            Data::Batches(batches) => return Ok(Self::Memory(Arc::new(batches))),
            Data::Stream(stream) => stream,
        };
        let mut held = Batches::new(schema, Vec::new());
        let mut size = 0;
        while let Some(batch) = batches.try_next().await.map_err(Failed::Function)? {
            size += batch.get_array_memory_size();
            held.batches.push(batch);
            if size > memory {
                let spooled = spool(held, batches).await?;
                return Ok(Self::File(Arc::new(spooled)));
            }
        }
        Ok(Self::Memory(Arc::new(held)))
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        match self {
            Self::Memory(batches) => batches.schema.clone(),
            Self::File(spool) => spool.schema.clone(),
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        match self {
            Self::Memory(batches) => batches.num_rows() as u64,
            Self::File(spool) => spool.rows,
        }
    }

    /// All rows in memory.
    pub(crate) async fn batches(&self) -> Result<Arc<Batches>> {
        match self {
            Self::Memory(batches) => Ok(batches.clone()),
            Self::File(_) => {
                let mut stream = self.stream().await?;
                let mut batches = Vec::new();
                while let Some(batch) =
                    stream.batches.try_next().await.map_err(Error::unreadable)?
                {
                    batches.push(batch);
                }
                Ok(Arc::new(Batches::new(stream.schema, batches)))
            }
        }
    }

    /// All rows as they come.
    pub(crate) async fn stream(&self) -> Result<BatchStream> {
        let spool = match self {
            Self::Memory(batches) => {
                let all: Vec<Result<RecordBatch>> =
                    batches.batches.iter().cloned().map(Ok).collect();
                return Ok(BatchStream::new(
                    batches.schema.clone(),
                    futures::stream::iter(all),
                ));
            }
            Self::File(spool) => spool.clone(),
        };
        let file = tokio::fs::File::open(&spool.path)
            .await
            .map_err(Error::unreadable)?;
        let stream = ParquetRecordBatchStreamBuilder::new(file)
            .await
            .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
            .map_err(Error::unreadable)?;
        // The file stays for as long as it is read.
        let stream = stream.map(move |batch| {
            let _ = &spool;
            batch
        });
        Ok(BatchStream::new(self.schema(), stream))
    }

    /// The rows as a parquet file.
    pub(crate) async fn encoded(&self) -> Result<Encoded, BoxError> {
        match self {
            Self::Memory(batches) => {
                let sizes = batches
                    .batches
                    .iter()
                    .map(RecordBatch::get_array_memory_size);
                if sizes.sum::<usize>() <= FEW_BYTES {
                    return Ok(Encoded::Memory(encode(batches)?));
                }
                let batches = batches.clone();
                let file = tokio::task::spawn_blocking(move || encode(&batches)).await??;
                Ok(Encoded::Memory(file))
            }
            Self::File(spool) => Ok(Encoded::File(spool.clone())),
        }
    }

    /// The rows of a parquet file that is here whole.
    pub(crate) async fn of_file(file: Bytes) -> Result<Self> {
        let read = move || {
            let reader =
                ParquetRecordBatchReaderBuilder::try_new(file).map_err(Error::unreadable)?;
            let schema = reader.schema().clone();
            let reader = reader
                .with_batch_size(BATCH_ROWS)
                .build()
                .map_err(Error::unreadable)?;
            let batches = reader
                .collect::<Result<Vec<_>, _>>()
                .map_err(Error::unreadable)?;
            Ok(Self::Memory(Arc::new(Batches::new(schema, batches))))
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(Error::unreadable)?
    }

    /// The rows of a temporary parquet file.
    pub(crate) async fn of_spool(path: TempPath) -> Result<Self> {
        let file = tokio::fs::File::open(&path)
            .await
            .map_err(Error::unreadable)?;
        let bytes = file.metadata().await.map_err(Error::unreadable)?.len();
        let builder = ParquetRecordBatchStreamBuilder::new(file)
            .await
            .map_err(Error::unreadable)?;
        let rows = builder.metadata().file_metadata().num_rows();
        Ok(Self::File(Arc::new(Spool {
            schema: builder.schema().clone(),
            rows: u64::try_from(rows).unwrap_or(0),
            bytes,
            path,
        })))
    }
}

/// A parquet file that can be sent, more than once if it has to be.
#[derive(Clone, Debug)]
pub(crate) enum Encoded {
    Memory(Bytes),
    File(Arc<Spool>),
}

impl Encoded {
    /// Its bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(file) => file.len() as u64,
            Self::File(spool) => spool.bytes,
        }
    }

    /// The file on its way, in pieces when it is not in memory.
    pub(crate) async fn body(&self) -> Result<Body> {
        let spool = match self {
            Self::Memory(file) => return Ok(full(file.clone())),
            Self::File(spool) => spool.clone(),
        };
        let file = tokio::fs::File::open(&spool.path)
            .await
            .map_err(Error::unreadable)?;
        let pieces = ReaderStream::with_capacity(file, PIECE_BYTES).map(move |piece| {
            let _ = &spool;
            piece.map(Frame::data).map_err(BoxError::from)
        });
        Ok(StreamBody::new(pieces).boxed_unsync())
    }
}

fn encode(batches: &Batches) -> Result<Bytes, BoxError> {
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batches.schema.clone(), Some(properties()))?;
    for batch in &batches.batches {
        writer.write(batch)?;
    }
    writer.close()?;
    Ok(file.into())
}

/// Writes what has come and what still comes into a file.
async fn spool(
    first: Batches,
    mut rest: futures::stream::BoxStream<'static, Result<RecordBatch, BoxError>>,
) -> Result<Spool, Failed> {
    let unfit = |error: &dyn std::fmt::Display| Failed::Unfit(error.to_string());
    let (file, path) = temporary().map_err(|error| unfit(&error))?;
    let schema = first.schema.clone();
    let mut writer = AsyncArrowWriter::try_new(file, schema.clone(), Some(properties()))
        .map_err(|error| unfit(&error))?;
    for batch in first.batches {
        writer.write(&batch).await.map_err(|error| unfit(&error))?;
    }
    while let Some(batch) = rest.try_next().await.map_err(Failed::Function)? {
        writer.write(&batch).await.map_err(|error| unfit(&error))?;
    }
    let footer = writer.finish().await.map_err(|error| unfit(&error))?;
    let bytes = writer.bytes_written() as u64;
    Ok(Spool {
        path,
        schema,
        rows: u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0),
        bytes,
    })
}
