//! Reading data files: footers remembered, few columns, whole row groups.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use object_store::{ObjectStoreExt, path::Path};
use parquet::{
    arrow::{
        ParquetRecordBatchStreamBuilder, ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
        async_reader::{AsyncFileReader, ParquetRecordBatchStream},
    },
    errors::ParquetError,
    file::metadata::{ParquetMetaData, ParquetMetaDataReader},
};
use ports::{Error, Kind, Objects, Result, tables::FilePart};

use super::cache::Cache;

/// Bytes at the end of a file read at once: the footer, mostly.
const FOOTER_BYTES: usize = 64 << 10;

/// Footers by path.
pub(crate) type Footers = Cache<String, Arc<ParquetMetaData>>;

/// A data file that can be read.
#[derive(Clone, Debug)]
pub(crate) struct Readable {
    objects: Objects,
    part: Arc<FilePart>,
    footer: ArrowReaderMetadata,
}

impl Readable {
    /// Opens a file: reads its footer unless it is remembered.
    pub(crate) async fn open(
        objects: &Objects,
        footers: &Footers,
        part: Arc<FilePart>,
    ) -> Result<Self> {
        let footer = match footers.get(&part.path) {
            Some(footer) => footer,
            None => {
                let mut reader = reader(objects, &part);
                let footer = reader
                    .get_metadata(None)
                    .await
                    .map_err(|e| failed(&part, e))?;
                footers.put(part.path.clone(), footer.clone());
                footer
            }
        };
        let footer = ArrowReaderMetadata::try_new(footer, ArrowReaderOptions::new());
        let footer = footer.map_err(|e| failed(&part, e))?;
        Ok(Self {
            objects: objects.clone(),
            part,
            footer,
        })
    }

    /// The file.
    pub(crate) fn part(&self) -> &FilePart {
        &self.part
    }

    /// Its footer.
    pub(crate) fn footer(&self) -> &ArrowReaderMetadata {
        &self.footer
    }

    /// Number of the first row of each row group.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let groups = self.footer.metadata().row_groups().iter();
        let starts = groups.scan(0, |next, group| {
            let first = *next;
            *next += u64::try_from(group.num_rows()).unwrap_or(0);
            Some(first)
        });
        starts.collect()
    }

    /// Reads columns (top-level, by position in the file) of row groups.
    pub(crate) fn stream(
        &self,
        columns: &[usize],
        groups: Vec<usize>,
        batch_rows: usize,
    ) -> Result<ParquetRecordBatchStream<FileReader>> {
        let mask = ProjectionMask::roots(self.footer.parquet_schema(), columns.iter().copied());
        let reader = reader(&self.objects, &self.part);
        ParquetRecordBatchStreamBuilder::new_with_metadata(reader, self.footer.clone())
            .with_projection(mask)
            .with_row_groups(groups)
            .with_batch_size(batch_rows)
            .build()
            .map_err(|e| failed(&self.part, e))
    }
}

/// Ranges of one object.
#[derive(Debug)]
pub(crate) struct FileReader {
    objects: Objects,
    path: Path,
    size: u64,
}

fn reader(objects: &Objects, part: &FilePart) -> FileReader {
    FileReader {
        objects: objects.clone(),
        path: Path::from(part.path.as_str()),
        size: part.size,
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        Box::pin(async {
            self.objects
                .get_range(&self.path, range)
                .await
                .map_err(external)
        })
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        Box::pin(async move {
            self.objects
                .get_ranges(&self.path, &ranges)
                .await
                .map_err(external)
        })
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        Box::pin(async move {
            let size = self.size;
            let reader = ParquetMetaDataReader::new()
                .with_arrow_reader_options(options)
                .with_prefetch_hint(Some(FOOTER_BYTES));
            Ok(Arc::new(reader.load_and_finish(self, size).await?))
        })
    }
}

/// A file that could not be read: gone or malformed is `Corrupt`, else the store did not answer.
pub(crate) fn failed(part: &FilePart, error: ParquetError) -> Error {
    let kind = match &error {
        ParquetError::External(source) => match source.downcast_ref::<object_store::Error>() {
            Some(object_store::Error::NotFound { .. }) => Kind::Corrupt,
            _ => Kind::Unavailable,
        },
        _ => Kind::Corrupt,
    };
    Error::new(kind, "read data file", &part.path).because(error)
}
