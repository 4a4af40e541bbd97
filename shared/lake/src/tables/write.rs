//! Writing data files: parquet, in a task of its own, a new file when one is large enough.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{array::RecordBatch, datatypes::DataType};
use object_store::{buffered::BufWriter, path::Path};
use parquet::{
    arrow::AsyncArrowWriter,
    basic::{Compression, ZstdLevel},
    file::{metadata::ParquetMetaData, properties::WriterProperties},
    schema::types::ColumnPath,
};
use ports::{Error, Kind, Objects, Result, tables::Bounds};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{bounds, columns::Columns, names::Names};

/// Most rows of a row group.
const GROUP_ROWS: usize = 128 << 10;
/// Most bytes of a row group: what one open file may hold in memory.
const GROUP_BYTES: usize = 48 << 20;
/// Dictionaries larger than this save nothing worth their decoding.
const DICTIONARY_BYTES: usize = 128 << 10;
/// Batches that may wait for the writer.
const WAITING: usize = 2;

/// A data file that was written.
#[derive(Debug)]
pub(crate) struct NewFile {
    /// Path in the warehouse.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Rows.
    pub rows: u64,
    /// Its footer.
    pub footer: Arc<ParquetMetaData>,
    /// Its column bounds.
    pub bounds: BTreeMap<String, Bounds>,
}

/// Opens writers for one table.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub objects: Objects,
    pub names: Arc<Names>,
    pub columns: Columns,
    /// Positions of the key columns, which are written for fast reading alone.
    pub key: Vec<usize>,
    /// A file is closed once it has so many bytes.
    pub file_bytes: usize,
}

/// Writes batches of a table's columns to files. Dropped before [`finish`](Self::finish), it leaves garbage.
#[derive(Debug)]
pub(crate) struct Writer {
    batches: mpsc::Sender<RecordBatch>,
    task: JoinHandle<Result<Vec<NewFile>>>,
}

impl Writer {
    /// A writer of new files.
    pub(crate) fn new(target: Target) -> Self {
        let (batches, mut waiting) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            let properties = properties(&target.columns, &target.key);
            let mut files = Files {
                target,
                properties,
                open: None,
                done: Vec::new(),
            };
            while let Some(batch) = waiting.recv().await {
                files.write(&batch).await?;
            }
            files.close().await?;
            Ok(files.done)
        });
        Self { batches, task }
    }

    /// Hands a batch over; an error of the writing shows at the end.
    pub(crate) async fn write(&self, batch: RecordBatch) -> bool {
        batch.num_rows() == 0 || self.batches.send(batch).await.is_ok()
    }

    /// Ends the last file; the files in the order of their rows.
    pub(crate) async fn finish(self) -> Result<Vec<NewFile>> {
        drop(self.batches);
        let failed = |e| Error::new(Kind::Unavailable, "write", "data file").because(e);
        self.task.await.map_err(failed)?
    }
}

struct Files {
    target: Target,
    properties: WriterProperties,
    open: Option<(String, AsyncArrowWriter<BufWriter>)>,
    done: Vec<NewFile>,
}

impl Files {
    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let (path, writer) = match &mut self.open {
            Some(open) => open,
            None => {
                let path = self.target.names.data();
                let sink = BufWriter::new(self.target.objects.clone(), Path::from(path.as_str()));
                let properties = Some(self.properties.clone());
                let writer =
                    AsyncArrowWriter::try_new(sink, self.target.columns.file.clone(), properties)
                        .map_err(|e| failed(&path, e))?;
                self.open.insert((path, writer))
            }
        };
        writer.write(batch).await.map_err(|e| failed(path, e))?;
        if writer.bytes_written() + writer.in_progress_size() >= self.target.file_bytes {
            self.close().await?;
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        let Some((path, mut writer)) = self.open.take() else {
            return Ok(());
        };
        let footer = writer.finish().await.map_err(|e| failed(&path, e))?;
        let bounds = bounds::from_footer(&self.target.columns, &footer);
        self.done.push(NewFile {
            size: writer.bytes_written() as u64,
            rows: u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0),
            path,
            footer: Arc::new(footer),
            bounds,
        });
        Ok(())
    }
}

pub(crate) fn failed(path: &str, error: parquet::errors::ParquetError) -> Error {
    let kind = match error {
        parquet::errors::ParquetError::External(_) => Kind::Unavailable,
        _ => Kind::Corrupt,
    };
    Error::new(kind, "write object", path).because(error)
}

fn properties(columns: &Columns, key: &[usize]) -> WriterProperties {
    let level = ZstdLevel::try_new(1).unwrap_or_default();
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES);
    for at in key {
        let field = columns.file.field(*at);
        if field.data_type().primitive_width().is_some() && *field.data_type() != DataType::Boolean
        {
            let path = ColumnPath::from(field.name().as_str());
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    properties.build()
}
