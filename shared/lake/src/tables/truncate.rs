//! Truncates: every row that is not newer goes. No row says so, so what is left of one is its sequence, which the caller
//! remembers: an older event that arrives late is dropped as if its row had been deleted. Soft deletes keep nothing of it
//! either: a truncate names no rows that could be flagged, and any split of a history into batches ends alike.

use std::borrow::Cow;

use arrow::{array::Array as _, datatypes::DataType};
use ports::Result;
use roaring::RoaringTreemap;

use super::{
    columns,
    probe::Hit,
    rank::{Order, Rank},
    read::{Readable, failed},
    stage::Stage,
    table::{Data, Table},
    verdict::{Finds, Positions},
    winners::Reduced,
};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 128 << 10;

/// Rows of the base that are not newer than `floor`. The cost is the sequence column of the files that may hold newer ones.
pub(super) async fn older(
    stage: &Stage<'_>,
    order: &Order,
    sequence: usize,
    floor: &Rank,
) -> Result<Positions> {
    let mut emptied = Positions::new();
    let Some(base) = stage.base.as_ref().filter(|_| stage.rows() > 0) else {
        return Ok(emptied);
    };
    for (at, file) in base.files.iter().enumerate() {
        let mut rows = of_file(stage, base, file, (order, sequence), floor).await?;
        if let Some(deleted) = &file.part.deleted {
            rows -= deleted.as_ref();
        }
        if !rows.is_empty() {
            emptied.insert(at, rows);
        }
    }
    Ok(emptied)
}

/// What was found less the rows that were gone before the events of their keys came.
pub(super) fn standing<'a>(
    finds: &'a Finds,
    emptied: &Positions,
    events: &Reduced,
) -> Cow<'a, Finds> {
    if emptied.is_empty() {
        return Cow::Borrowed(finds);
    }
    let mut standing = finds.clone();
    for (at, found) in &mut standing {
        let Some(rows) = emptied.get(at) else {
            continue;
        };
        let is_gone = |hit: &Hit| {
            let since = events.winners[&hit.event].since;
            let floor = events.truncated_by(Some(since), hit.rank.as_ref());
            floor.is_some()
        };
        found
            .hits
            .retain(|hit| !rows.contains(hit.row) || !is_gone(hit));
    }
    Cow::Owned(standing)
}

async fn of_file(
    stage: &Stage<'_>,
    base: &Table,
    file: &Data,
    (order, sequence): (&Order, usize),
    floor: &Rank,
) -> Result<RoaringTreemap> {
    let mut older = RoaringTreemap::new();
    let all = || (0..file.part.rows).collect();
    let (name, kind) = stage.of_base(base, sequence);
    let Some(name) = name else { return Ok(all()) };
    // Text orders as what it spells, and bounds order it as text.
    let bounds = file
        .part
        .bounds
        .get(&name)
        .filter(|_| kind != DataType::Utf8);
    if let Some(bounds) = bounds.filter(|bounds| bounds.nulls == Some(0)) {
        let end = |end: &Option<arrow::array::ArrayRef>| match end {
            Some(end) if end.len() == 1 => order.read(end, 0),
            _ => None,
        };
        if end(&bounds.max).is_some_and(|max| max <= *floor) {
            return Ok(all());
        }
        if end(&bounds.min).is_some_and(|min| min > *floor) {
            return Ok(older);
        }
    }
    let (objects, footers) = (&stage.lake.objects, &stage.lake.footers);
    let open = Readable::open(objects, footers, file.part.clone()).await?;
    let Some(place) = columns::position(open.footer().schema(), &name) else {
        return Ok(all());
    };
    let starts = open.starts();
    let mut stream = open.stream(&[place], (0..starts.len()).collect(), BATCH_ROWS)?;
    for start in starts {
        let group = stream.next_row_group().await;
        let Some(batches) = group.map_err(|e| failed(&file.part, e))? else {
            break;
        };
        let mut first = start;
        for batch in batches {
            let batch = batch.map_err(|e| failed(&file.part, e.into()))?;
            for row in 0..batch.num_rows() {
                let rank = order.read(batch.column(0), row);
                if let Some(rank) = &rank {
                    order.alike(floor, rank)?;
                }
                if rank.is_none_or(|rank| rank <= *floor) {
                    older.insert(first + row as u64);
                }
            }
            first += batch.num_rows() as u64;
        }
    }
    Ok(older)
}
