//! Writing the live rows of data files anew: small files become one, and deleted rows are gone for good.

use arrow::{
    array::{BooleanArray, RecordBatch, new_null_array},
    datatypes::FieldRef,
};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use ports::{Objects, Result};
use roaring::RoaringTreemap;

use super::{
    columns::{Columns, batch_of},
    intake::keep,
    read::{Footers, Readable, failed},
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
    let readable = Readable::open(objects, footers, file.part.clone()).await?;
    let schema = readable.footer().schema().clone();
    // By id, not by name: a column that was dropped and came back is another column.
    let id = |field: &FieldRef| field.metadata().get(PARQUET_FIELD_ID_META_KEY).cloned();
    let place = |field: &FieldRef| schema.fields().iter().position(|f| id(f) == id(field));
    let places: Vec<Option<usize>> = to.file.fields().iter().map(place).collect();
    let mut roots: Vec<usize> = places.iter().copied().flatten().collect();
    roots.sort_unstable();
    let groups = (0..readable.footer().metadata().num_row_groups()).collect();
    let mut stream = readable.stream(&roots, groups, BATCH_ROWS)?;
    let mut first = 0;
    while let Some(batches) = stream
        .next_row_group()
        .await
        .map_err(|e| failed(&file.part, e))?
    {
        for batch in batches {
            let batch = batch.map_err(|e| failed(&file.part, e.into()))?;
            let rows = batch.num_rows();
            let columns = places
                .iter()
                .zip(to.file.fields())
                .map(|(place, field)| match place {
                    Some(place) => batch
                        .column(roots.partition_point(|root| root < place))
                        .clone(),
                    None => new_null_array(field.data_type(), rows),
                });
            let batch = batch_of(&to.file, columns.collect(), rows)?;
            let batch = live(batch, first, file.part.deleted.as_deref())?;
            first += rows as u64;
            if !writer.write(batch).await {
                return Ok(false);
            }
        }
    }
    Ok(true)
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
