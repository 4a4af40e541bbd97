//! Soft deletes of rows that are there: the row is written anew as it was, flagged, with the delete's sequence.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{BooleanArray, UInt64Array, new_null_array},
    compute::take,
};
use ports::{Error, Kind, Result};
use roaring::RoaringTreemap;

use super::{
    columns::{ORIGINS, batch_of},
    intake::keep,
    rewrite::Whole,
    stage::Stage,
    winners::Reduced,
    write::Writer,
};

/// Passes the rows to a writer: by file, their numbers and the events that delete them.
pub(super) async fn write(
    stage: &Stage<'_>,
    events: &Reduced,
    rows: &BTreeMap<usize, BTreeMap<u64, u64>>,
    writer: &Writer,
) -> Result<()> {
    let (Some(base), Some(aside), Some(flag)) = (&stage.base, &events.aside, events.places.flag)
    else {
        return Ok(());
    };
    let (objects, footers) = (&stage.lake.objects, &stage.lake.footers);
    let columns = &stage.draft.columns;
    for (at, of_file) in rows {
        let wanted: RoaringTreemap = of_file.keys().copied().collect();
        let file = &base.files[*at];
        let mut whole =
            Whole::open(objects, footers, file.part.clone(), columns, Some(&wanted)).await?;
        while let Some((first, batch)) = whole.next().await? {
            let numbers = first..first + batch.num_rows() as u64;
            let found = of_file.range(numbers.clone());
            let places: UInt64Array = found.map(|(_, event)| events.aside_rows[event]).collect();
            if places.is_empty() {
                continue;
            }
            let mask: Vec<bool> = numbers.map(|row| wanted.contains(row)).collect();
            let old = keep(&batch, mask.into())?;
            let mut new = old.columns().to_vec();
            for (column, at) in aside.columns().iter().zip(&events.places.aside) {
                new[*at] = take(column, &places, None)
                    .map_err(|e| Error::new(Kind::Corrupt, "pick", "deletes").because(e))?;
            }
            new[flag] = Arc::new(BooleanArray::from(vec![true; old.num_rows()]));
            // What it keeps is its own from then on.
            if let Some(own) = columns.position(ORIGINS) {
                new[own] = new_null_array(new[own].data_type(), old.num_rows());
            }
            let batch = batch_of(&columns.file, new, old.num_rows())?;
            if !writer.write(batch).await {
                // Why shows when the writer is finished.
                return Ok(());
            }
        }
    }
    Ok(())
}
