//! Parquet footers, read once per file: objects of the lake never change, so the path alone is the key.
//!
//! Statistics of floating-point columns are taken out of every footer. Parquet leaves NaN out of them, while SQL here
//! sorts NaN above every number: a row group whose statistics end at 1.0 may hold a NaN that `x > 2.0` selects.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use datafusion::{
    common::DataFusionError,
    datasource::{listing::PartitionedFile, physical_plan::ParquetFileReaderFactory},
    parquet::{
        arrow::{arrow_reader::ArrowReaderOptions, async_reader::AsyncFileReader},
        basic::{LogicalType, Type},
        errors::{ParquetError, Result},
        file::{
            metadata::{
                ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
                RowGroupMetaData,
            },
            page_index::column_index::ColumnIndexMetaData,
        },
    },
    physical_plan::metrics::ExecutionPlanMetricsSet,
};
use futures::{FutureExt, future::BoxFuture};
use object_store::{ObjectStoreExt, path::Path};
use ports::{Error, Kind, Objects};

use crate::failure::FILE;

/// Bytes read from a file's end at first: footer and page index of an ordinary file.
const TAIL: usize = 64 * 1024;
/// Most bytes of footers kept.
const CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Opens files with cached footers.
pub(crate) struct Footers {
    objects: Objects,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    entries: HashMap<Path, Entry>,
    bytes: usize,
    clock: u64,
}

struct Entry {
    footer: Arc<ParquetMetaData>,
    bytes: usize,
    used: u64,
}

impl Footers {
    pub(crate) fn new(objects: Objects) -> Self {
        Self {
            objects,
            cache: Mutex::default(),
        }
    }

    /// A reader of one file.
    pub(crate) fn open(self: &Arc<Self>, path: Path, size: u64) -> FileReader {
        FileReader {
            footers: Arc::clone(self),
            path,
            size,
        }
    }

    fn cached(&self, path: &Path) -> Option<Arc<ParquetMetaData>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.clock += 1;
        let now = cache.clock;
        let entry = cache.entries.get_mut(path)?;
        entry.used = now;
        Some(Arc::clone(&entry.footer))
    }

    fn keep(&self, path: &Path, footer: &Arc<ParquetMetaData>) {
        let bytes = footer.memory_size();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.clock += 1;
        let entry = Entry {
            footer: Arc::clone(footer),
            bytes,
            used: cache.clock,
        };
        cache.bytes += bytes;
        if let Some(old) = cache.entries.insert(path.clone(), entry) {
            cache.bytes -= old.bytes;
        }
        if cache.bytes > CACHE_BYTES_MAX {
            cache.shrink();
        }
    }
}

impl Cache {
    /// Drops the longest unused entries until half of the room is free, so that this is rare.
    fn shrink(&mut self) {
        let mut ages: Vec<u64> = self.entries.values().map(|entry| entry.used).collect();
        ages.sort_unstable();
        let oldest_kept = ages[ages.len() / 2];
        self.entries.retain(|_, entry| entry.used >= oldest_kept);
        self.bytes = self.entries.values().map(|entry| entry.bytes).sum();
    }
}

impl fmt::Debug for Footers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Footers").finish_non_exhaustive()
    }
}

/// The factory that a parquet scan opens its files with.
#[derive(Clone, Debug)]
pub(crate) struct Opener(pub(crate) Arc<Footers>);

impl ParquetFileReaderFactory for Opener {
    fn create_reader(
        &self,
        _partition: usize,
        file: PartitionedFile,
        _size_hint: Option<usize>,
        _metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>, DataFusionError> {
        let meta = file.object_meta;
        Ok(Box::new(self.0.open(meta.location, meta.size)))
    }
}

/// Reads one file of the warehouse.
#[derive(Debug)]
pub(crate) struct FileReader {
    footers: Arc<Footers>,
    path: Path,
    size: u64,
}

impl FileReader {
    /// What the store answered; of a file that was cut, it says no more than that a range cannot be had.
    async fn refused(&self, error: object_store::Error) -> ParquetError {
        if matches!(error, object_store::Error::NotFound { .. }) {
            return external(error);
        }
        match self.footers.objects.head(&self.path).await {
            Ok(meta) if meta.size != self.size => {
                let told = format!("it has {} bytes, {} were written", meta.size, self.size);
                damaged(self.path.as_ref(), ParquetError::General(told))
            }
            Ok(_) | Err(_) => external(error),
        }
    }
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            match self.footers.objects.get_range(&self.path, range).await {
                Ok(bytes) => Ok(bytes),
                Err(error) => Err(self.refused(error).await),
            }
        }
        .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move {
            match self.footers.objects.get_ranges(&self.path, &ranges).await {
                Ok(bytes) => Ok(bytes),
                Err(error) => Err(self.refused(error).await),
            }
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            if let Some(footer) = self.footers.cached(&self.path) {
                return Ok(footer);
            }
            let size = self.size;
            let read = ParquetMetaDataReader::new()
                .with_page_index_policy(PageIndexPolicy::Optional)
                .with_prefetch_hint(Some(TAIL))
                .load_and_finish(&mut *self, size)
                .await;
            let read = read.map_err(|error| damaged(self.path.as_ref(), error))?;
            let footer = Arc::new(without_float_statistics(read)?);
            self.footers.keep(&self.path, &footer);
            Ok(footer)
        }
        .boxed()
    }
}

/// What parquet says of a file, with the file's name. What the object store says has it already.
pub(crate) fn damaged(path: &str, error: ParquetError) -> ParquetError {
    match error {
        ParquetError::External(source) => ParquetError::External(source),
        error => {
            let named = Error::new(Kind::Corrupt, FILE, path).because(error);
            ParquetError::External(Box::new(named))
        }
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

fn is_float(column: &ColumnChunkMetaData) -> bool {
    let descriptor = column.column_descr();
    matches!(descriptor.physical_type(), Type::FLOAT | Type::DOUBLE)
        || matches!(descriptor.logical_type_ref(), Some(LogicalType::Float16))
}

fn without_float_statistics(footer: ParquetMetaData) -> Result<ParquetMetaData> {
    let floats: Vec<bool> = match footer.row_groups().first() {
        Some(group) => group.columns().iter().map(is_float).collect(),
        None => return Ok(footer),
    };
    if !floats.contains(&true) {
        return Ok(footer);
    }
    let mut builder = footer.into_builder();
    let groups = builder
        .take_row_groups()
        .into_iter()
        .map(strip)
        .collect::<Result<_>>()?;
    let index = builder.take_column_index().map(|mut index| {
        for group in &mut index {
            for (column, _) in group.iter_mut().zip(&floats).filter(|(_, float)| **float) {
                *column = ColumnIndexMetaData::NONE;
            }
        }
        index
    });
    Ok(builder
        .set_row_groups(groups)
        .set_column_index(index)
        .build())
}

fn strip(group: RowGroupMetaData) -> Result<RowGroupMetaData> {
    let mut builder = group.into_builder();
    let columns = builder
        .take_columns()
        .into_iter()
        .map(|column| match is_float(&column) {
            true => column.into_builder().clear_statistics().build(),
            false => Ok(column),
        })
        .collect::<Result<_>>()?;
    builder.set_column_metadata(columns).build()
}
