//! Rows of an entry by their numbers: only the pages that hold them are read, all row groups at once.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use arrow::{
    array::{RecordBatch, RecordBatchOptions, UInt32Array},
    compute::{concat_batches, take_record_batch},
    datatypes::SchemaRef,
};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use parquet::arrow::{
    ParquetRecordBatchStreamBuilder, ProjectionMask,
    arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection},
};
use parquet::file::metadata::PageIndexPolicy;
use ports::{Error, Kind, Objects, Result, entries::DataSet};

use super::{failed, path};
use crate::tables::FileReader;

/// Footers that are kept.
const FOOTERS_MAX: usize = 32;
/// Row groups that are read at once.
const GROUPS_AT_ONCE: usize = 16;
/// Most rows picked at once.
const ROWS_MAX: usize = 20_000;

/// Footers of files that were read last. A data set never changes, so they stay true.
#[derive(Debug, Default)]
pub(super) struct Footers(Mutex<VecDeque<(Path, ArrowReaderMetadata)>>);

impl Footers {
    /// The footer of a file, page index included.
    async fn of(
        &self,
        objects: &Objects,
        set: &DataSet,
        bytes: u64,
    ) -> Result<ArrowReaderMetadata> {
        let path = path(set);
        let held = |held: &VecDeque<(Path, ArrowReaderMetadata)>| {
            let found = held.iter().find(|(known, _)| *known == path);
            found.map(|(_, footer)| footer.clone())
        };
        let known = held(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(footer) = known {
            return Ok(footer);
        }
        let mut reader = FileReader::new(objects, path.clone(), bytes);
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let footer = ArrowReaderMetadata::load_async(&mut reader, options)
            .await
            .map_err(|error| failed("read entry", set, error))?;
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.truncate(FOOTERS_MAX - 1);
        held.push_front((path, footer.clone()));
        Ok(footer)
    }
}

/// Columns by name, in the order named.
pub(super) fn projected(
    set: &DataSet,
    schema: &SchemaRef,
    columns: &[String],
) -> Result<(Vec<usize>, SchemaRef)> {
    let mut indexes = Vec::with_capacity(columns.len());
    for column in columns {
        let index = schema.index_of(column).map_err(|_| {
            Error::new(Kind::Invalid, "read entry", set)
                .because(format!("it has no column `{column}`"))
        })?;
        indexes.push(index);
    }
    let schema = schema.project(&indexes);
    let schema =
        schema.map_err(|error| Error::new(Kind::Invalid, "read entry", set).because(error));
    Ok((indexes, std::sync::Arc::new(schema?)))
}

/// Columns of a batch by name, in the order of a schema.
pub(super) fn ordered(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let corrupt = |error| Error::new(Kind::Corrupt, "read", "entry").because(error);
    let columns = schema.fields().iter().map(|field| {
        let index = batch.schema_ref().index_of(field.name());
        index.map(|index| batch.column(index).clone())
    });
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(corrupt)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(corrupt)
}

/// The rows, in the order given.
pub(super) async fn pick(
    objects: &Objects,
    footers: &Footers,
    (set, bytes): (&DataSet, u64),
    rows: &[u32],
    columns: &[String],
) -> Result<RecordBatch> {
    const ACTION: &str = "read entry";
    let invalid = |why: String| Error::new(Kind::Invalid, ACTION, set).because(why);
    if rows.len() > ROWS_MAX {
        return Err(invalid(format!(
            "more than {ROWS_MAX} rows are picked at once"
        )));
    }
    let footer = footers.of(objects, set, bytes).await?;
    let (roots, schema) = projected(set, footer.schema(), columns)?;
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let groups = by_group(&footer, &sorted);
    let found: usize = groups.iter().map(|(_, ranges, _)| ranges.len()).sum();
    if found < sorted.len() {
        return Err(invalid(String::from("it has fewer rows than that")));
    }
    let reads = groups.into_iter().map(|(group, ranges, total)| {
        let reader = FileReader::new(objects, path(set), bytes);
        let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, footer.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots.iter().copied());
        let selected = ranges.len();
        let selection =
            RowSelection::from_consecutive_ranges(ranges.into_iter().map(|at| at..at + 1), total);
        let set = set.clone();
        let read = async move {
            let failed = |error| failed(ACTION, &set, error);
            let stream = builder
                .with_projection(mask)
                .with_row_groups(vec![group])
                .with_row_selection(selection)
                .with_batch_size(selected)
                .build()
                .map_err(failed)?;
            stream.try_collect::<Vec<_>>().await.map_err(failed)
        };
        // Decompressing is work: of several groups it is done at once.
        async move {
            let ended = tokio::spawn(read).await;
            ended.unwrap_or_else(|error| {
                Err(Error::new(Kind::Corrupt, ACTION, "row group").because(error))
            })
        }
    });
    let batches: Vec<Vec<RecordBatch>> = stream::iter(reads)
        .buffered(GROUPS_AT_ONCE)
        .try_collect()
        .await?;
    let corrupt = |error| Error::new(Kind::Corrupt, ACTION, set).because(error);
    let batches = batches
        .iter()
        .flatten()
        .map(|batch| ordered(batch, &schema));
    let batches = batches.collect::<Result<Vec<_>>>()?;
    let all = concat_batches(&schema, &batches).map_err(corrupt)?;
    let place = |row: &u32| u32::try_from(sorted.partition_point(|known| known < row));
    let places: UInt32Array = rows.iter().map(|row| place(row).ok()).collect();
    take_record_batch(&all, &places).map_err(corrupt)
}

/// A row group, the rows wanted of it, counted from its first, and how many it has.
type Wanted = (usize, Vec<usize>, usize);

fn by_group(footer: &ArrowReaderMetadata, sorted: &[u32]) -> Vec<Wanted> {
    let mut first = 0_u64;
    let mut wanted = Vec::new();
    for (at, group) in footer.metadata().row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        let within = |limit: u64| sorted.partition_point(|row| u64::from(*row) < limit);
        let those = &sorted[within(first)..within(first + rows)];
        if !those.is_empty() {
            let local = |row: &u32| usize::try_from(u64::from(*row) - first).unwrap_or(usize::MAX);
            let total = usize::try_from(rows).unwrap_or(usize::MAX);
            wanted.push((at, those.iter().map(local).collect(), total));
        }
        first += rows;
    }
    wanted
}
