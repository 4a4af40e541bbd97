//! Rows made ready for a commit: inline bytes, or an object put before the transaction.

use arrow::{array::RecordBatch, datatypes::Schema, ipc::writer::StreamWriter};
use bytes::Bytes;
use domain::{
    TableName, Timestamp,
    items::{BatchData, Column},
};
use object_store::{ObjectStoreExt, path::Path};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::types::ColumnPath,
};
use ports::{Error, Kind, Result, state::Key};

use super::{World, commit, schema};

/// Encoded rows up to this many bytes ride in the advance item: a DynamoDB item holds 400 KB.
const INLINE_BYTES_MAX: usize = 128 << 10;
/// Rows up to this many bytes in memory are compressed where they are: another thread would take longer to begin.
const SMALL_BYTES: usize = 64 << 10;
/// Rows of one row group.
pub(super) const GROUP_ROWS_MAX: usize = 128 << 10;

/// What a commit will store. Its rows are written already; dropped, an object of it is garbage for the sweep.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) rows: u64,
    pub(super) columns: Vec<Column>,
    pub(super) origin_at: Timestamp,
    pub(super) data: BatchData,
    /// The rows, when they are inline.
    pub(super) bytes: Bytes,
    pub(super) marks: Vec<Mark>,
}

/// What a commit leaves so that the same thing is not stored twice.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) key: Key,
    /// Rows of the commit before those the mark stands for.
    pub(super) offset: u64,
    pub(super) rows: u64,
    /// The incoming file it stands for.
    pub(super) file: Option<commit::FileSeen>,
}

/// Bytes the rows take in memory, near enough.
pub(super) fn size(rows: &RecordBatch) -> usize {
    let columns = rows.columns().iter();
    columns
        .map(|column| column.to_data().get_slice_memory_size().unwrap_or(0))
        .sum()
}

/// Writes the rows, and returns where they are: small ones in memory, others in an object of their own.
pub(super) async fn write(
    world: &World,
    table: &TableName,
    rows: RecordBatch,
) -> Result<(BatchData, Bytes)> {
    if size(&rows) <= INLINE_BYTES_MAX {
        let bytes = inline(&rows).map_err(|e| unwritable(table).because(e))?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok((BatchData::Inline, bytes));
        }
    }
    let bytes = parquet(table, rows).await?;
    let path = object_path(world, table);
    let size = bytes.len() as u64;
    commit::retry(world, || async {
        world
            .objects
            .put(&path, bytes.clone().into())
            .await
            .map_err(Error::from)
    })
    .await?;
    Ok((
        BatchData::Object {
            path: path.to_string(),
            size,
        },
        Bytes::new(),
    ))
}

/// The rows as a parquet file.
pub(super) async fn parquet(table: &TableName, rows: RecordBatch) -> Result<Bytes> {
    if size(&rows) <= SMALL_BYTES {
        return encode(&rows).map_err(|e| unwritable(table).because(e));
    }
    // Compressing a large batch takes tens of milliseconds, which other tasks of this thread should not wait for.
    tokio::task::spawn_blocking(move || encode(&rows))
        .await
        .map_err(|e| unwritable(table).because(e))?
        .map_err(|e| unwritable(table).because(e))
}

/// Folder of the objects that commits and folds write.
pub(super) fn folder(table: &TableName) -> String {
    format!("{}/{}/data", table.schema(), table.name())
}

/// A fresh place for a commit's rows.
pub(super) fn object_path(world: &World, table: &TableName) -> Path {
    let id = world.chance.id(world.clock.now());
    Path::from(format!("{}/{id}.parquet", folder(table)))
}

fn unwritable(table: &TableName) -> Error {
    Error::new(Kind::Invalid, "encode rows of", table)
}

fn inline(rows: &RecordBatch) -> std::result::Result<Bytes, arrow::error::ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), rows.schema_ref())?;
    writer.write(rows)?;
    writer.finish()?;
    Ok(Bytes::from(writer.into_inner()?))
}

fn encode(rows: &RecordBatch) -> std::result::Result<Bytes, ParquetError> {
    let mut writer = ArrowWriter::try_new(
        Vec::new(),
        rows.schema(),
        Some(properties(rows.schema_ref())?),
    )?;
    writer.write(rows)?;
    Ok(Bytes::from(writer.into_inner()?))
}

/// How landing rows are written: fast, and without a dictionary for what never repeats.
pub(super) fn properties(schema: &Schema) -> std::result::Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(GROUP_ROWS_MAX))
        .set_created_by(String::from("headwater"));
    for (name, statistics) in [
        ("id", EnabledStatistics::Chunk),
        ("payload", EnabledStatistics::None),
    ] {
        if schema.column_with_name(name).is_some() {
            let path = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_statistics_enabled(path, statistics);
        }
    }
    Ok(properties.build())
}

/// Joins appends into one draft.
pub(super) async fn of_batches(
    world: &World,
    table: &TableName,
    batches: &[&RecordBatch],
    origin_at: Timestamp,
    marks: Vec<Mark>,
) -> Result<Draft> {
    let rows = schema::join(table, batches)?;
    let columns = schema::columns_of(rows.schema_ref());
    let count = rows.num_rows() as u64;
    let (data, bytes) = write(world, table, rows).await?;
    Ok(Draft {
        rows: count,
        columns,
        origin_at,
        data,
        bytes,
        marks,
    })
}
