//! The rows on one side of a comparison: read in one fixed order, and kept while they are few.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use domain::TableName;
use futures::{StreamExt, TryStreamExt, stream};
use ports::{
    Error, Kind, Objects, Result,
    feed::Picked,
    tables::{FilePart, Part},
};
use roaring::RoaringTreemap;

use crate::tables::{
    Lake,
    columns::{self, Alignment, Columns, batch_of},
    intake::keep,
    read::{Footers, Readable, failed},
};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 8 << 10;
/// Files opened at a time.
const PARALLEL: usize = 4;

/// The rows of one file that are on one side.
#[derive(Clone, Debug)]
pub(super) struct Share {
    part: Arc<FilePart>,
    /// By number; all that are not deleted when none.
    rows: Option<RoaringTreemap>,
}

impl Share {
    pub(super) fn all(part: Arc<FilePart>) -> Self {
        Self { part, rows: None }
    }

    pub(super) fn some(part: Arc<FilePart>, rows: RoaringTreemap) -> Self {
        let rows = Some(rows);
        Self { part, rows }
    }

    /// How many they are.
    pub(super) fn len(&self) -> u64 {
        match (&self.rows, &self.part.deleted) {
            (Some(rows), _) => rows.len(),
            (None, Some(deleted)) => self.part.rows.saturating_sub(deleted.len()),
            (None, None) => self.part.rows,
        }
    }

    fn numbers(&self) -> RoaringTreemap {
        self.rows.clone().unwrap_or_else(|| {
            let mut all = RoaringTreemap::new();
            all.insert_range(0..self.part.rows);
            if let Some(deleted) = &self.part.deleted {
                all -= deleted.as_ref();
            }
            all
        })
    }

    pub(super) fn into_picked(self) -> Picked {
        Picked {
            part: Part::File(self.part),
            rows: self.rows.map(Arc::new),
        }
    }
}

/// One side. Its rows are numbered from 0 in the order they are read, which is always the same.
pub(super) struct Side<'a> {
    lake: &'a Lake,
    table: &'a TableName,
    columns: &'a Columns,
    shares: Vec<Share>,
    held: Held,
}

enum Held {
    /// Nothing was read yet.
    Unread,
    /// All there is.
    All(Vec<RecordBatch>),
    /// More than may be kept: it is read whenever it is needed.
    TooMuch,
}

impl<'a> Side<'a> {
    pub(super) fn new(
        lake: &'a Lake,
        table: &'a TableName,
        columns: &'a Columns,
        shares: Vec<Share>,
    ) -> Self {
        Self {
            lake,
            table,
            columns,
            shares,
            held: Held::Unread,
        }
    }

    /// Its columns.
    pub(super) fn columns(&self) -> &'a Columns {
        self.columns
    }

    /// Rows looked at in one pass.
    pub(super) fn pass_rows(&self) -> u64 {
        self.lake.limits.feed_rows
    }

    /// Its rows.
    pub(super) fn len(&self) -> u64 {
        self.shares.iter().map(Share::len).sum()
    }

    /// Shows every batch, with the number of its first row.
    pub(super) async fn each(
        &mut self,
        mut visit: impl FnMut(u64, &RecordBatch) -> Result<()> + Send,
    ) -> Result<()> {
        let mut first = 0;
        if let Held::All(batches) = &self.held {
            for batch in batches {
                visit(first, batch)?;
                first += batch.num_rows() as u64;
            }
            return Ok(());
        }
        let mut holding = matches!(self.held, Held::Unread).then(Vec::new);
        let mut bytes = 0;
        let (objects, footers) = (&self.lake.objects, &self.lake.footers);
        let (table, columns) = (self.table, self.columns);
        let shares: Vec<_> = self
            .shares
            .iter()
            .map(|share| (share.part.clone(), share.numbers()))
            .collect();
        let opened = stream::iter(shares).map(|(part, rows)| async move {
            open(objects, footers, table, columns, part, rows).await
        });
        let mut opened = opened.buffered(PARALLEL);
        while let Some(mut batches) = opened.try_next().await? {
            while let Some(batch) = batches.try_next().await? {
                visit(first, &batch)?;
                first += batch.num_rows() as u64;
                bytes += batch.get_array_memory_size();
                match &mut holding {
                    Some(held) if bytes <= self.lake.limits.feed_bytes => held.push(batch),
                    _ => holding = None,
                }
            }
        }
        drop(opened);
        if first != self.len() {
            let told = format!("{} rows were to be read, there are {first}", self.len());
            return Err(Error::new(Kind::Corrupt, "read changes of", table).because(told));
        }
        self.held = holding.map_or(Held::TooMuch, Held::All);
        Ok(())
    }

    /// Some of its rows, by number: themselves when they are kept, else where they are.
    pub(super) fn pick(&self, rows: &RoaringTreemap) -> Result<Vec<Picked>> {
        let mut picked = Vec::new();
        let mut first = 0;
        if rows.is_empty() {
            return Ok(picked);
        }
        if let Held::All(batches) = &self.held {
            for batch in batches {
                let numbers = first..first + batch.num_rows() as u64;
                first = numbers.end;
                if rows.range_cardinality(numbers.clone()) > 0 {
                    let mask: Vec<bool> = numbers.map(|row| rows.contains(row)).collect();
                    let part = Part::Memory(keep(batch, BooleanArray::from(mask))?);
                    picked.push(Picked { part, rows: None });
                }
            }
            return Ok(picked);
        }
        for share in &self.shares {
            let end = first + share.len();
            if rows.range_cardinality(first..end) > 0 {
                let numbered = (first..end).zip(share.numbers());
                let chosen = numbered.filter(|(number, _)| rows.contains(*number));
                let chosen = chosen.map(|(_, row)| row).collect();
                picked.push(Share::some(share.part.clone(), chosen).into_picked());
            }
            first = end;
        }
        Ok(picked)
    }
}

type Batches = stream::BoxStream<'static, Result<RecordBatch>>;

/// Rows of one file in the columns of the table.
async fn open(
    objects: &Objects,
    footers: &Footers,
    table: &TableName,
    to: &Columns,
    part: Arc<FilePart>,
    rows: RoaringTreemap,
) -> Result<Batches> {
    let file = Readable::open_paged(objects, footers, part.clone()).await?;
    let schema = file.footer().schema();
    let place = |field: &arrow::datatypes::FieldRef| columns::position(schema, field.name());
    let mut roots: Vec<usize> = to.read.fields().iter().filter_map(place).collect();
    roots.sort_unstable();
    let stream = file.pick(&roots, &rows, BATCH_ROWS)?;
    let alignment = Alignment::new(stream.schema(), to);
    let (table, read) = (table.clone(), to.read.clone());
    let batches = stream.map(move |batch| {
        let batch = alignment.align(&table, &batch.map_err(|e| failed(&part, e))?)?;
        batch_of(&read, batch.columns().to_vec(), batch.num_rows())
    });
    Ok(batches.boxed())
}
