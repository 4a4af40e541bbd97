//! Parquet objects of the warehouse, read by ranges.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, TryFutureExt, future::BoxFuture};
use object_store::{ObjectStoreExt, path::Path};
use parquet::{
    arrow::{
        ParquetRecordBatchStreamBuilder, arrow_reader::ArrowReaderOptions,
        async_reader::AsyncFileReader,
    },
    errors::{ParquetError, Result},
    file::metadata::{ParquetMetaData, ParquetMetaDataReader},
};
use ports::Objects;

/// One object of known size.
pub(super) struct RangeReader {
    objects: Objects,
    path: Path,
    size: u64,
}

/// Opens an object: its footer is read, its rows are not.
pub(super) async fn open(
    objects: &Objects,
    path: &Path,
    size: u64,
) -> Result<ParquetRecordBatchStreamBuilder<RangeReader>> {
    let reader = RangeReader {
        objects: Arc::clone(objects),
        path: path.clone(),
        size,
    };
    ParquetRecordBatchStreamBuilder::new(reader).await
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for RangeReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.objects
            .get_range(&self.path, range)
            .map_err(external)
            .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move {
            self.objects
                .get_ranges(&self.path, &ranges)
                .await
                .map_err(external)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        let size = self.size;
        async move {
            let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
            Ok(Arc::new(reader.load_and_finish(self, size).await?))
        }
        .boxed()
    }
}
