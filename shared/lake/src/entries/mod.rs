//! Data of entries: `entries/<id>/<generation>/data.parquet`, written as it comes; indexes, `*.index`, lie beside it.
//!
//! A data set is one parquet object that is there once its upload is completed, so a build that dies leaves nothing that
//! could be read. Which generation counts is the registry's to say; names of others are never touched.

mod accept;
mod batches;
mod pick;
mod seen;
mod spool;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use domain::{Duration, entry::EntryId};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    GetOptions, GetRange, ObjectStore, ObjectStoreExt, buffered::BufWriter, path::Path,
};
use parquet::{
    arrow::{AsyncArrowWriter, ParquetRecordBatchStreamBuilder, ProjectionMask},
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::WriterProperties,
};
use ports::{
    Entries, Error, Kind, Objects, Result,
    entries::{Address, DataSet, File, Part as Piece, Picked, Sign, Stored, Upload},
    tables::{FilePart, Part, Rows, Scan},
};

use self::spool::Spool;
use crate::tables::FileReader;

/// Folder of all entries.
const FOLDER: &str = "entries";
/// The one file of a data set.
const FILE: &str = "data.parquet";
/// What names of indexes end with.
const INDEX: &str = ".index";
/// Most rows of a page: what picking one row decodes.
const PAGE_ROWS: usize = 4 << 10;
/// Most rows of a row group.
const GROUP_ROWS: usize = 128 << 10;
/// Most bytes of a row group: what one open file may hold in memory.
const GROUP_BYTES: usize = 32 << 20;
/// Longest footer of a file that is taken.
const FOOTER_MAX: u64 = 64 << 20;
/// Bytes of a part that is sent, and how many are on their way at once.
const PART_BYTES: usize = 8 << 20;
const PARTS_MAX: usize = 4;

/// Data of entries on an object store.
#[derive(Clone, Debug)]
pub struct EntryLake {
    objects: Objects,
    footers: Arc<pick::Footers>,
    seen: Arc<seen::Seen>,
    signer: Option<Arc<dyn Sign>>,
    /// Where uploads are copied to while they arrive.
    scratch: PathBuf,
}

impl EntryLake {
    /// Entries of a warehouse.
    #[must_use]
    pub fn new(objects: Objects) -> Self {
        Self {
            objects,
            footers: Arc::default(),
            seen: Arc::default(),
            signer: None,
            scratch: std::env::temp_dir(),
        }
    }

    /// The same with a store that signs addresses of its objects.
    #[must_use]
    pub fn signed_by(self, signer: Arc<dyn Sign>) -> Self {
        Self {
            signer: Some(signer),
            ..self
        }
    }

    /// The same with a folder for copies of uploads, of which the system's own may be memory; made when it is not there.
    #[must_use]
    pub fn copying_to(self, scratch: PathBuf) -> Self {
        Self { scratch, ..self }
    }

    /// Rows with all columns or some, in the order named.
    async fn some(&self, set: &DataSet, bytes: u64, columns: Option<&[String]>) -> Result<Rows> {
        const ACTION: &str = "read entry";
        let reader = FileReader::new(&self.objects, path(set), bytes);
        let mut builder = ParquetRecordBatchStreamBuilder::new(reader)
            .await
            .map_err(|error| failed(ACTION, set, error))?;
        let mut schema = builder.schema().clone();
        if let Some(columns) = columns {
            let (roots, some) = pick::projected(set, &schema, columns)?;
            let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
            builder = builder.with_projection(mask);
            schema = some;
        }
        let rows = batches::rows(builder.metadata());
        let stream = builder
            .with_batch_size(rows)
            .build()
            .map_err(|error| failed(ACTION, set, error))?;
        let (set, shape) = (set.clone(), columns.is_some().then(|| schema.clone()));
        let stream = stream.map(move |batch| {
            let batch = batch.map_err(|error| failed(ACTION, &set, error))?;
            match &shape {
                Some(schema) => pick::ordered(&batch, schema),
                None => Ok(batch),
            }
        });
        Ok(Rows {
            schema,
            stream: stream.boxed(),
        })
    }

    fn sink(&self, path: &Path) -> BufWriter {
        BufWriter::with_capacity(self.objects.clone(), path.clone(), PART_BYTES)
            .with_max_concurrency(PARTS_MAX)
    }
}

fn path(set: &DataSet) -> Path {
    folder(set).join(FILE)
}

fn folder(set: &DataSet) -> Path {
    Path::from(FOLDER)
        .join(set.id.to_string())
        .join(set.generation.as_str())
}

/// The data set that an object belongs to; none when its name is not of ours.
fn set_of(path: &Path) -> Option<DataSet> {
    let mut parts = path.as_ref().split('/');
    let (folder, id, generation, file) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (folder == FOLDER && !file.is_empty() && parts.next().is_none()).then_some(())?;
    Some(DataSet {
        id: id.parse::<EntryId>().ok()?,
        generation: generation.to_owned(),
    })
}

fn failed(action: &'static str, set: &DataSet, error: ParquetError) -> Error {
    let kind = match &error {
        ParquetError::External(inner) => match inner.downcast_ref::<object_store::Error>() {
            Some(object_store::Error::NotFound { .. }) => Kind::NotFound,
            Some(_) => Kind::Unavailable,
            // A page that cannot be decompressed, say: asking again does not mend it.
            None => Kind::Corrupt,
        },
        _ => Kind::Corrupt,
    };
    Error::new(kind, action, set).because(error)
}

/// What could not be written: what parquet has no form for is the caller's to change.
fn unwritten(set: &DataSet, error: ParquetError) -> Error {
    let kind = match &error {
        ParquetError::External(_) => Kind::Unavailable,
        _ => Kind::Invalid,
    };
    Error::new(kind, "write entry", set).because(error)
}

fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .build()
}

/// Writes all rows to a file that is complete only when this returns.
async fn write(
    sink: BufWriter,
    set: &DataSet,
    schema: &SchemaRef,
    rows: &mut BoxStream<'static, Result<arrow::array::RecordBatch>>,
) -> Result<Stored> {
    let mut writer = AsyncArrowWriter::try_new(sink, schema.clone(), Some(properties()))
        .map_err(|error| unwritten(set, error))?;
    // Whatever became of the last request, an upload that was being ended cannot be given up any more.
    let mut ending = false;
    let outcome = async {
        while let Some(batch) = rows.try_next().await? {
            writer
                .write(&batch)
                .await
                .map_err(|error| unwritten(set, error))?;
        }
        ending = true;
        writer.finish().await.map_err(|error| unwritten(set, error))
    }
    .await;
    match outcome {
        Ok(footer) => Ok(Stored {
            schema: schema.clone(),
            rows: u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0),
            bytes: writer.bytes_written() as u64,
        }),
        Err(error) => {
            // Parts that were sent already go; what cannot be undone is what an unfinished upload is to any store.
            if !ending {
                let _ = writer.into_inner().abort().await;
            }
            Err(error)
        }
    }
}

impl EntryLake {
    /// What is stored of a data set. What was just uploaded is looked at for what readers would lose of it.
    async fn look(&self, set: &DataSet, uploaded: bool) -> Result<Option<Stored>> {
        let path = path(set);
        let meta = match self.objects.head(&path).await {
            Ok(meta) => meta,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(stored) = self.seen.of(&meta).filter(|_| !uploaded) {
            return Ok(Some(stored));
        }
        let bytes = meta.size;
        let reader = FileReader::new(&self.objects, path, bytes).at_most(FOOTER_MAX);
        let builder = ParquetRecordBatchStreamBuilder::new(reader)
            .await
            .map_err(|error| failed("read entry", set, error))?;
        accept::whole(set, builder.metadata(), bytes)?;
        if uploaded {
            accept::exact(set, builder.metadata())?;
            accept::compressed(set, builder.metadata())?;
        }
        let stored = Stored {
            schema: builder.schema().clone(),
            rows: u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0),
            bytes,
        };
        if !uploaded {
            self.seen.keep(meta, &stored);
        }
        Ok(Some(stored))
    }
}

#[async_trait]
impl Entries for EntryLake {
    async fn write(&self, set: &DataSet, rows: Rows) -> Result<Stored> {
        accept::schema("write entry", set, &rows.schema)?;
        let mut stream = rows.stream;
        write(self.sink(&path(set)), set, &rows.schema, &mut stream).await
    }

    async fn receive(&self, set: &DataSet, upload: Upload, limit: u64) -> Result<Stored> {
        let copy = Spool::new(self.scratch.clone());
        accept::receive(self.sink(&path(set)), copy, set, upload, limit).await
    }

    async fn check(&self, set: &DataSet) -> Result<Option<Stored>> {
        match self.look(set, true).await {
            Ok(Some(stored)) => {
                accept::schema("take upload", set, &stored.schema).map(|()| Some(stored))
            }
            Ok(None) => Ok(None),
            Err(error) if error.kind == Kind::Corrupt => {
                Err(Error::new(Kind::Invalid, "take upload", set)
                    .because(format!("it is no complete parquet file: {}", error.chain())))
            }
            Err(error) => Err(error),
        }
    }

    async fn find(&self, set: &DataSet) -> Result<Option<Stored>> {
        self.look(set, false).await
    }

    async fn scan(&self, set: &DataSet, stored: &Stored) -> Result<Scan> {
        let part = FilePart {
            path: path(set).to_string(),
            size: stored.bytes,
            rows: stored.rows,
            first_sequence: None,
            deleted: None,
            bounds: std::collections::BTreeMap::new(),
        };
        Ok(Scan {
            schema: stored.schema.clone(),
            parts: vec![Part::File(Arc::new(part))],
        })
    }

    async fn read(&self, set: &DataSet, bytes: u64) -> Result<Rows> {
        self.some(set, bytes, None).await
    }

    async fn columns(&self, set: &DataSet, bytes: u64, columns: &[String]) -> Result<Rows> {
        self.some(set, bytes, Some(columns)).await
    }

    async fn pick(
        &self,
        set: &DataSet,
        bytes: u64,
        rows: &[u32],
        columns: &[String],
    ) -> Result<Picked> {
        pick::pick(&self.objects, &self.footers, (set, bytes), rows, columns).await
    }

    async fn beside(&self, set: &DataSet) -> Result<Vec<String>> {
        let mut objects = self.objects.list(Some(&folder(set)));
        let mut names = Vec::new();
        while let Some(meta) = objects.try_next().await? {
            let name = meta.location.filename().unwrap_or_default();
            if name.ends_with(INDEX) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    async fn remove(&self, set: &DataSet, file: &str) -> Result<()> {
        match self.objects.delete(&folder(set).join(file)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete(&self, set: &DataSet) -> Result<()> {
        let objects = self.objects.list(Some(&folder(set)));
        let paths = objects.map_ok(|meta| meta.location).boxed();
        let mut gone = self.objects.delete_stream(paths);
        while let Some(one) = gone.next().await {
            match one {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn link(&self, set: &DataSet, life: Duration) -> Result<Option<String>> {
        match &self.signer {
            Some(signer) => signer.sign(path(set).as_ref(), life).await.map(Some),
            None => Ok(None),
        }
    }

    fn has_addresses(&self) -> bool {
        self.signer.is_some()
    }

    async fn address(&self, set: &DataSet, bytes: u64, life: Duration) -> Result<Option<Address>> {
        match &self.signer {
            Some(signer) => {
                let address = signer.sign_upload(path(set).as_ref(), bytes, life).await;
                address.map(Some)
            }
            None => Ok(None),
        }
    }

    async fn file(&self, set: &DataSet, part: Piece) -> Result<Option<File>> {
        let path = path(set);
        let size = match self.objects.head(&path).await {
            Ok(meta) => meta.size,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let range = part.of(size);
        let bytes = match range.clone().filter(|range| !range.is_empty()) {
            None => futures::stream::empty().boxed(),
            Some(range) => {
                let options = GetOptions {
                    range: Some(GetRange::Bounded(range)),
                    ..GetOptions::default()
                };
                let got = match self.objects.get_opts(&path, options).await {
                    Ok(got) => got,
                    Err(object_store::Error::NotFound { .. }) => return Ok(None),
                    Err(error) => return Err(error.into()),
                };
                got.into_stream().map_err(Error::from).boxed()
            }
        };
        Ok(Some(File { size, range, bytes }))
    }

    async fn list(&self) -> Result<Vec<DataSet>> {
        let folder = Path::from(FOLDER);
        let mut sets: Vec<DataSet> = self
            .objects
            .list(Some(&folder))
            .try_filter_map(|meta| async move { Ok(set_of(&meta.location)) })
            .try_collect()
            .await?;
        sets.sort_unstable();
        sets.dedup();
        Ok(sets)
    }
}
