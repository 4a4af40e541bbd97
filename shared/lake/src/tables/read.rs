//! Reading data files: footers remembered, few columns, whole row groups.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use object_store::{ObjectStoreExt, path::Path};
use parquet::{
    arrow::{
        ParquetRecordBatchStreamBuilder, ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection},
        async_reader::{AsyncFileReader, ParquetRecordBatchStream},
    },
    errors::ParquetError,
    file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
};
use ports::{Error, Kind, Objects, Result, tables::FilePart};
use roaring::RoaringTreemap;

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

    /// As [`open`](Self::open), and knows where its pages are, so that few rows cost few pages.
    pub(crate) async fn open_paged(
        objects: &Objects,
        footers: &Footers,
        part: Arc<FilePart>,
    ) -> Result<Self> {
        let paged = |footer: &Arc<ParquetMetaData>| footer.offset_index().is_some();
        if !footers.get(&part.path).as_ref().is_some_and(paged) {
            let options =
                ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
            let mut reader = reader(objects, &part);
            let footer = reader.get_metadata(Some(&options)).await;
            footers.put(part.path.clone(), footer.map_err(|e| failed(&part, e))?);
        }
        Self::open(objects, footers, part).await
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

    /// Reads columns (as [`stream`](Self::stream)) of rows, by number.
    pub(crate) fn pick(
        &self,
        columns: &[usize],
        rows: &RoaringTreemap,
        batch_rows: usize,
    ) -> Result<ParquetRecordBatchStream<FileReader>> {
        let total = self.footer.metadata().file_metadata().num_rows();
        let beyond = rows
            .max()
            .is_some_and(|last| i64::try_from(last).is_ok_and(|l| l >= total));
        if beyond {
            let why = format!("it has {total} rows, and rows beyond them are named");
            return Err(Error::new(Kind::Corrupt, "read data file", &self.part.path).because(why));
        }
        let selection =
            RowSelection::from_consecutive_ranges(runs(rows), usize::try_from(total).unwrap_or(0));
        let mask = ProjectionMask::roots(self.footer.parquet_schema(), columns.iter().copied());
        let reader = reader(&self.objects, &self.part);
        ParquetRecordBatchStreamBuilder::new_with_metadata(reader, self.footer.clone())
            .with_projection(mask)
            .with_row_selection(selection)
            .with_batch_size(batch_rows)
            .build()
            .map_err(|e| failed(&self.part, e))
    }
}

/// Rows as ranges of neighbours.
fn runs(rows: &RoaringTreemap) -> impl Iterator<Item = Range<usize>> + '_ {
    let index = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
    let mut rows = rows.iter().peekable();
    std::iter::from_fn(move || {
        let first = rows.next()?;
        let mut end = first + 1;
        while rows.next_if_eq(&end).is_some() {
            end += 1;
        }
        Some(index(first)..index(end))
    })
}

/// Ranges of one object.
#[derive(Debug)]
pub(crate) struct FileReader {
    objects: Objects,
    path: Path,
    size: u64,
    range_max: u64,
}

impl FileReader {
    /// Ranges of an object of so many bytes.
    pub(crate) fn new(objects: &Objects, path: Path, size: u64) -> Self {
        Self {
            objects: objects.clone(),
            path,
            size,
            range_max: u64::MAX,
        }
    }

    /// The same, of which no range is read that is longer: a file may say anything of its own footer.
    pub(crate) fn at_most(self, range_max: u64) -> Self {
        Self { range_max, ..self }
    }

    /// What the store answered; of a file that was cut, it says no more than that a range cannot be had.
    async fn refused(&self, error: object_store::Error) -> ParquetError {
        if matches!(error, object_store::Error::NotFound { .. }) {
            return external(error);
        }
        match self.objects.head(&self.path).await {
            Ok(meta) if meta.size != self.size => ParquetError::General(format!(
                "it has {} bytes, {} were written",
                meta.size, self.size
            )),
            Ok(_) | Err(_) => external(error),
        }
    }
}

fn reader(objects: &Objects, part: &FilePart) -> FileReader {
    FileReader::new(objects, Path::from(part.path.as_str()), part.size)
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        Box::pin(async move {
            let (length, max) = (range.end.saturating_sub(range.start), self.range_max);
            if length > max {
                let why =
                    format!("it says that its footer has {length} bytes; at most {max} are read");
                return Err(ParquetError::General(why));
            }
            match self.objects.get_range(&self.path, range).await {
                Ok(bytes) => Ok(bytes),
                Err(error) => Err(self.refused(error).await),
            }
        })
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        Box::pin(async move {
            match self.objects.get_ranges(&self.path, &ranges).await {
                Ok(bytes) => Ok(bytes),
                Err(error) => Err(self.refused(error).await),
            }
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
            // Nor does asking again mend a page that cannot be decompressed.
            Some(object_store::Error::NotFound { .. }) | None => Kind::Corrupt,
            Some(_) => Kind::Unavailable,
        },
        _ => Kind::Corrupt,
    };
    Error::new(kind, "read data file", &part.path).because(error)
}
