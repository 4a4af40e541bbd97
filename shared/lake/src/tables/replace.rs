//! Replacing all rows of given keys: what the table has of them goes, what the change has of them stays (**M-3**).

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use futures::StreamExt;
use ports::{
    Error, Kind, Result,
    tables::{Change, Rows, Staged},
};

use super::{
    Lake,
    columns::{self, Alignment},
    intake::{Keyed, keep},
    keys::Keys,
    probe::Sought,
    stage::{Plan, Sealing, Stage, open},
    verdict::Finds,
};

/// Stages a change that replaces the rows of some keys.
pub(super) async fn stage(
    lake: &Lake,
    key: &[String],
    keys: &[RecordBatch],
    change: Change,
) -> Result<Staged> {
    let table = change.table.clone();
    if key.is_empty() {
        return Err(Error::new(Kind::Invalid, "find the key of", &table)
            .because("rows are replaced by a key"));
    }
    let opened = open(lake, &table, change.base.as_ref(), &change.pointers, false).await?;
    let plan = Plan {
        key,
        whole: false,
        policy: change.on_schema_change,
    };
    let incoming = columns::incoming(&table, &change.rows.schema)?;
    let stage = Stage::new(lake, &table, opened, &plan, &incoming)?;
    let sought = stage.sought(keys)?;
    let rows = match &sought {
        Some(sought) => stage.of_keys(change.rows, sought.clone()),
        None => Rows {
            schema: change.rows.schema,
            stream: Box::pin(futures::stream::empty()),
        },
    };
    let taken = stage.take_in(rows, change.restamp_from, None, None).await?;
    let deleted = match &sought {
        Some(sought) => stage.probe(sought, None).await?,
        None => Finds::new(),
    };
    if let Some(unchanged) = stage
        .unchanged()
        .filter(|_| taken.rows == 0 && deleted.is_empty())
    {
        return Ok(unchanged);
    }
    let (writer, unstored) = taken.rest.write(taken.superseded, stage.target()).await?;
    let sealing = Sealing {
        writer,
        unstored,
        deleted: deleted
            .into_iter()
            .map(|(at, found)| (at, found.rows))
            .collect(),
        added: taken.rows,
        sequence_max: taken.sequence_max,
        written: Vec::new(),
        properties: change.properties,
    };
    stage.seal(sealing).await
}

impl Stage<'_> {
    /// Keys that are given as rows; none when there are none.
    fn sought(&self, keys: &[RecordBatch]) -> Result<Option<Sought>> {
        let mut keyed: Keyed = self.keyed(false, true);
        for batch in keys {
            let alignment = Alignment::new(&batch.schema(), &self.draft.columns);
            let columns = self.key_of(&alignment.align(self.table, batch)?);
            if let Some(ranges) = &mut keyed.ranges {
                ranges.add(&columns);
            }
            keyed.map.add(&Keys::new(&columns, batch.num_rows()));
        }
        Ok(keyed.sought())
    }

    fn key_of(&self, aligned: &RecordBatch) -> Vec<ArrayRef> {
        let columns = self.key.iter();
        columns.map(|at| aligned.column(*at).clone()).collect()
    }

    /// Only rows that have one of the keys.
    fn of_keys(&self, rows: Rows, sought: Sought) -> Rows {
        let columns = self.draft.columns.clone();
        let alignment = Alignment::new(&rows.schema, &columns);
        let (table, key) = (self.table.clone(), self.key.clone());
        let set = Arc::clone(&sought.set);
        let mut hashes = Vec::new();
        let stream = rows.stream.map(move |batch| {
            let batch = batch?;
            let aligned = alignment.align(&table, &batch)?;
            let columns: Vec<ArrayRef> = key.iter().map(|at| aligned.column(*at).clone()).collect();
            let mut mask = vec![false; batch.num_rows()];
            let keys = Keys::new(&columns, batch.num_rows());
            set.probe(&keys, &mut hashes, |row, _| mask[row] = true);
            match mask.iter().all(|kept| *kept) {
                true => Ok(batch),
                false => keep(&batch, BooleanArray::from(mask)),
            }
        });
        Rows {
            schema: rows.schema,
            stream: Box::pin(stream),
        }
    }
}
