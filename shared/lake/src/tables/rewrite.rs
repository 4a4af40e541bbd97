//! Reading the rows of data files to write them anew: small files become one, and deleted rows are gone for good.

use std::{collections::VecDeque, sync::Arc};

use arrow::{
    array::{BooleanArray, RecordBatch, new_null_array},
    datatypes::FieldRef,
};
use parquet::arrow::{
    PARQUET_FIELD_ID_META_KEY, arrow_reader::ParquetRecordBatchReader,
    async_reader::ParquetRecordBatchStream,
};
use ports::{Objects, Result, tables::FilePart};
use roaring::RoaringTreemap;

use super::{
    columns::{Columns, batch_of},
    intake::keep,
    read::{FileReader, Footers, Readable, failed},
    table::Data,
    write::Writer,
};

const BATCH_ROWS: usize = 16 << 10;

/// Passes the live rows of a file to a writer, in the columns `to`. `Ok(false)` when the writer takes no more.
pub(crate) async fn copy(
    objects: &Objects,
    footers: &Footers,
    file: &Data,
    to: &Columns,
    writer: &Writer,
) -> Result<bool> {
    let mut whole = Whole::open(objects, footers, file.part.clone(), to, None).await?;
    while let Some((first, batch)) = whole.next().await? {
        let batch = live(batch, first, file.part.deleted.as_deref())?;
        if !writer.write(batch).await {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Some rows of a file, by number, in the columns `to`.
pub(crate) async fn pick(
    objects: &Objects,
    footers: &Footers,
    part: Arc<FilePart>,
    to: &Columns,
    rows: &RoaringTreemap,
) -> Result<Vec<RecordBatch>> {
    let mut picked = Vec::new();
    if rows.is_empty() {
        return Ok(picked);
    }
    let mut whole = Whole::open(objects, footers, part, to, Some(rows)).await?;
    while let Some((first, batch)) = whole.next().await? {
        let numbers = first..first + batch.num_rows() as u64;
        if rows.range_cardinality(numbers.clone()) > 0 {
            let mask: Vec<bool> = numbers.map(|row| rows.contains(row)).collect();
            picked.push(keep(&batch, mask.into())?);
        }
    }
    Ok(picked)
}

/// Whole rows of a file, deleted ones among them, in the columns of a table.
pub(crate) struct Whole {
    file: Readable,
    to: Columns,
    places: Vec<Option<usize>>,
    roots: Vec<usize>,
    stream: ParquetRecordBatchStream<FileReader>,
    /// Numbers of the first rows of the row groups to come.
    starts: VecDeque<u64>,
    group: Option<ParquetRecordBatchReader>,
    first: u64,
}

impl Whole {
    /// Opens a file; given `rows`, only row groups with one of them are read.
    pub(crate) async fn open(
        objects: &Objects,
        footers: &Footers,
        part: Arc<FilePart>,
        to: &Columns,
        rows: Option<&RoaringTreemap>,
    ) -> Result<Self> {
        let file = Readable::open(objects, footers, part).await?;
        let schema = file.footer().schema().clone();
        // By id, not by name: a column that was dropped and came back is another column.
        let id = |field: &FieldRef| field.metadata().get(PARQUET_FIELD_ID_META_KEY).cloned();
        let place = |field: &FieldRef| schema.fields().iter().position(|f| id(f) == id(field));
        let places: Vec<Option<usize>> = to.file.fields().iter().map(place).collect();
        let mut roots: Vec<usize> = places.iter().copied().flatten().collect();
        roots.sort_unstable();
        let starts = file.starts();
        let has_one = |group: &usize| {
            let end = starts.get(group + 1).copied().unwrap_or(u64::MAX);
            rows.is_none_or(|rows| rows.range_cardinality(starts[*group]..end) > 0)
        };
        let groups: Vec<usize> = (0..starts.len()).filter(has_one).collect();
        let read = groups.iter().map(|group| starts[*group]).collect();
        let stream = file.stream(&roots, groups, BATCH_ROWS)?;
        Ok(Self {
            file,
            to: to.clone(),
            places,
            roots,
            stream,
            starts: read,
            group: None,
            first: 0,
        })
    }

    /// The next rows and the number of the first of them.
    pub(crate) async fn next(&mut self) -> Result<Option<(u64, RecordBatch)>> {
        loop {
            if let Some(batch) = self.group.as_mut().and_then(Iterator::next) {
                let batch = batch.map_err(|e| failed(self.file.part(), e.into()))?;
                let first = self.first;
                self.first += batch.num_rows() as u64;
                return Ok(Some((first, self.arrange(&batch)?)));
            }
            let next = self.stream.next_row_group().await;
            self.group = next.map_err(|e| failed(self.file.part(), e))?;
            let start = self.starts.pop_front();
            match start.filter(|_| self.group.is_some()) {
                Some(start) => self.first = start,
                None => return Ok(None),
            }
        }
    }

    fn arrange(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let fields = self.places.iter().zip(self.to.file.fields());
        let columns = fields.map(|(place, field)| match place {
            Some(place) => batch
                .column(self.roots.partition_point(|root| root < place))
                .clone(),
            None => new_null_array(field.data_type(), rows),
        });
        batch_of(&self.to.file, columns.collect(), rows)
    }
}

fn live(batch: RecordBatch, first: u64, deleted: Option<&RoaringTreemap>) -> Result<RecordBatch> {
    let Some(deleted) = deleted else {
        return Ok(batch);
    };
    let rows = first..first + batch.num_rows() as u64;
    let mask: BooleanArray = rows
        .map(|row| !deleted.contains(row))
        .collect::<Vec<bool>>()
        .into();
    keep(&batch, mask)
}
