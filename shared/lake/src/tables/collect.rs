//! Tombstones that have been kept long enough go, and the greatest sequence among them is remembered.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, AsArray},
    datatypes::{DataType, TimestampMicrosecondType},
};
use domain::{TableName, Timestamp};
use iceberg::spec::Operation;
use ports::{Error, Kind, Result, upkeep::Collected};
use roaring::RoaringTreemap;

use super::{
    Lake,
    commit::{Edit, Place, commit},
    draft::Draft,
    names::Names,
    rank::{Order, Rank},
    rewrite::Whole,
    table::{Data, Table},
    tombstones::BURIED,
    upkeep::current,
};

/// Stages the removal of tombstones from before a moment; none when there is none, or the table moved on.
pub(super) async fn collect(
    lake: &Lake,
    table: &TableName,
    sequence: &str,
    before: Timestamp,
    known: Option<&str>,
) -> Result<Option<Collected>> {
    let Some(current) = current(lake, table).await? else {
        return Ok(None);
    };
    let base = lake.table(table, &current.snapshot).await?;
    let columns = &base.columns;
    let (Some(buried), Some(at)) = (columns.position(BURIED), columns.position(sequence)) else {
        return Ok(None);
    };
    let moment = columns.read.field(buried).data_type();
    if !matches!(moment, DataType::Timestamp(..)) {
        return Ok(None);
    }
    let order = Order::new(table, sequence, columns.read.field(at).data_type())?;
    let mut greatest = known.and_then(Rank::from_text);
    let mut deleted = BTreeMap::new();
    for (place, file) in base.files.iter().enumerate() {
        if is_young(file, before) {
            continue;
        }
        let old = old(
            lake,
            &base,
            file,
            (buried, at),
            before,
            &order,
            &mut greatest,
        )
        .await?;
        if !old.is_empty() {
            deleted.insert(place, old);
        }
    }
    let rows: u64 = deleted.values().map(RoaringTreemap::len).sum();
    let Some(through) = greatest.filter(|_| rows > 0) else {
        return Ok(None);
    };
    let gone = |(place, old): (&usize, &RoaringTreemap)| {
        (base.files[*place].live_rows() == old.len()).then_some(*place)
    };
    let removed: std::collections::BTreeSet<usize> = deleted.iter().filter_map(gone).collect();
    deleted.retain(|place, _| !removed.contains(place));
    let names = Arc::new(Names::new(table, lake.chance.clone(), lake.clock.clone()));
    let place = Place {
        objects: &lake.objects,
        root: &lake.root,
        names: &names,
        table,
        now: lake.clock.now(),
        limits: &lake.limits,
    };
    let edit = Edit {
        draft: Draft::change(table, &lake.root, &base, None)?,
        added: Vec::new(),
        removed,
        deleted,
        operation: Operation::Delete,
        properties: BTreeMap::new(),
        previous: Some(base.snapshot.metadata.clone()),
        base: Some(base.clone()),
    };
    let next = Arc::new(commit(&place, edit).await?);
    let writes = current.writes(lake, table, &next.snapshot, next.rows());
    lake.tables.put(next.snapshot.clone(), next);
    Ok(Some(Collected {
        rows,
        through: through.to_text(),
        writes,
    }))
}

/// Whether a file is known to have no old row.
fn is_young(file: &Data, before: Timestamp) -> bool {
    let bounds = file.part.bounds.get(BURIED);
    let min = bounds.and_then(|bounds| bounds.min.as_ref());
    let min = min.and_then(|min| min.as_primitive_opt::<TimestampMicrosecondType>());
    min.is_some_and(|min| min.is_valid(0) && min.value(0) >= before.0)
}

/// The old rows of a file.
async fn old(
    lake: &Lake,
    base: &Table,
    file: &Data,
    (buried, sequence): (usize, usize),
    before: Timestamp,
    order: &Order,
    greatest: &mut Option<Rank>,
) -> Result<RoaringTreemap> {
    let mut old = RoaringTreemap::new();
    let (objects, footers) = (&lake.objects, &lake.footers);
    let mut whole = Whole::open(objects, footers, file.part.clone(), &base.columns, None).await?;
    while let Some((first, batch)) = whole.next().await? {
        let times = batch.column(buried);
        let times = times.as_primitive_opt::<TimestampMicrosecondType>();
        let times = times.ok_or_else(|| {
            Error::new(Kind::Corrupt, "read tombstones", &file.part.path)
                .because(format!("`{BURIED}` is no time"))
        })?;
        for row in 0..batch.num_rows() {
            let number = first + row as u64;
            let is_gone = file
                .part
                .deleted
                .as_ref()
                .is_some_and(|d| d.contains(number));
            if is_gone || times.is_null(row) || times.value(row) >= before.0 {
                continue;
            }
            old.insert(number);
            if let Some(rank) = order.read(batch.column(sequence), row) {
                if let Some(other) = greatest.as_ref() {
                    order.alike(other, &rank)?;
                }
                *greatest = greatest.take().max(Some(rank));
            }
        }
    }
    Ok(old)
}
