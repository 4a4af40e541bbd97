//! The change feed of a table: which files differ between two snapshots, and what of their rows really changed.
//!
//! Files are compared by path, deleted rows by number, both in memory: only files that came, files that went and rows
//! that were deleted are looked at further. When there are both rows that went and rows that came, they are read once
//! and equal ones cancel out, so that a file written anew, or a row merged with itself, is no change.

mod cancel;
mod side;

use std::{collections::HashMap, sync::Arc};

use domain::{TableName, items::Snapshot};
use ports::{
    Result,
    feed::{Between, Changes, Feed, Lost, Picked, RowChange, Since},
    tables::{FilePart, Part, Pin, Scan},
};
use roaring::RoaringTreemap;

use self::side::{Share, Side};
use super::{Lake, keys::is_key, table::Table};

/// What changed between two moments.
pub(super) async fn changes(lake: &Lake, between: &Between) -> Result<Changes> {
    match (&between.to, &between.since) {
        (
            Pin::Landing {
                table,
                schema,
                through,
            },
            since,
        ) => {
            let after = match since {
                Since::Beginning => 0,
                Since::Sequence(after) => *after,
                Since::Snapshot(_) => return Ok(Changes::Lost(Lost::Expired)),
            };
            let scan = lake.landed(table, schema, after, *through).await?;
            Ok(Changes::Told(landed(scan, after)))
        }
        (Pin::Model { table, snapshot }, Since::Beginning) => {
            let to = lake.table(table, snapshot).await?;
            let shares = to.files.iter().map(|file| Share::all(file.part.clone()));
            let parts = taken(RowChange::Insert, shares.collect());
            Ok(Changes::Told(feed(&to, parts)))
        }
        (Pin::Model { .. }, Since::Sequence(_)) => Ok(Changes::Lost(Lost::Expired)),
        (Pin::Model { table, snapshot }, Since::Snapshot(since)) => {
            let to = lake.table(table, snapshot).await?;
            compare(lake, table, since, &to, &between.key).await
        }
    }
}

/// Rows of a landing table above a sequence: nothing there ever changes or goes.
fn landed(scan: Scan, after: u64) -> Feed {
    let parts = scan.parts.into_iter().filter_map(|part| {
        let Part::File(file) = part else {
            return Some(Picked { part, rows: None });
        };
        // A file may begin before the feed does.
        let first = file.first_sequence.unwrap_or(1);
        let before = (after + 1).saturating_sub(first);
        let rows = (before > 0).then(|| {
            let mut rows = RoaringTreemap::new();
            rows.insert_range(before..file.rows);
            Arc::new(rows)
        });
        let part = Part::File(file.clone());
        (before < file.rows).then_some(Picked { part, rows })
    });
    Feed {
        parts: parts.map(|part| (RowChange::Insert, part)).collect(),
        schema: scan.schema,
        in_sequence: true,
    }
}

async fn compare(
    lake: &Lake,
    table: &TableName,
    since: &Snapshot,
    to: &Table,
    key: &[String],
) -> Result<Changes> {
    if since.id == to.snapshot.id {
        return Ok(Changes::Told(feed(to, Vec::new())));
    }
    // Files of a snapshot are there for as long as the metadata lists it, whatever else still is.
    if to.metadata.snapshot_by_id(since.id).is_none() {
        return Ok(Changes::Lost(Lost::Expired));
    }
    let from = match lake.tables.get(since) {
        Some(kept) => kept,
        None => {
            // Its own metadata file may be gone; today's knows the snapshot too.
            let listed = Snapshot {
                metadata: to.snapshot.metadata.clone(),
                id: since.id,
            };
            lake.table(table, &listed).await?
        }
    };
    if !is_comparable(&from, to) {
        return Ok(Changes::Lost(Lost::Columns));
    }
    let (removed, added) = differences(&from, to);
    if removed.is_empty() || added.is_empty() {
        let mut parts = taken(RowChange::Delete, removed);
        parts.extend(taken(RowChange::Insert, added));
        return Ok(Changes::Told(feed(to, parts)));
    }
    let key = key_columns(to, key);
    let mut removed = Side::new(lake, table, &to.columns, removed);
    let mut added = Side::new(lake, table, &to.columns, added);
    let parts = cancel::net(&mut removed, &mut added, &key).await?;
    Ok(Changes::Told(feed(to, parts)))
}

fn feed(to: &Table, parts: Vec<(RowChange, Picked)>) -> Feed {
    Feed {
        schema: to.columns.shown.clone(),
        parts,
        in_sequence: false,
    }
}

/// Shares as they are: nothing cancels out.
fn taken(change: RowChange, shares: Vec<Share>) -> Vec<(RowChange, Picked)> {
    let shares = shares.into_iter().filter(|share| share.len() > 0);
    shares.map(|share| (change, share.into_picked())).collect()
}

/// Rows that went and rows that came, file by file.
fn differences(from: &Table, to: &Table) -> (Vec<Share>, Vec<Share>) {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let paths = from.files.iter().map(|file| file.part.path.as_str());
    let mut old: HashMap<&str, &Arc<FilePart>> = paths
        .zip(from.files.iter().map(|file| &file.part))
        .collect();
    for file in &to.files {
        let Some(before) = old.remove(file.part.path.as_str()) else {
            added.push(Share::all(file.part.clone()));
            continue;
        };
        let (gone, back) = deleted_since(before, &file.part);
        removed.push(Share::some(before.clone(), gone));
        // Rows are never undeleted in place; if they were, they would have come.
        added.push(Share::some(file.part.clone(), back));
    }
    // In the table's order, so that the same two snapshots give the same feed.
    let gone = from
        .files
        .iter()
        .filter(|file| old.contains_key(file.part.path.as_str()));
    removed.extend(gone.map(|file| Share::all(file.part.clone())));
    let some = |mut shares: Vec<Share>| {
        shares.retain(|share| share.len() > 0);
        shares
    };
    (some(removed), some(added))
}

/// Rows of a file deleted at the later moment only, and at the earlier one only.
fn deleted_since(from: &FilePart, to: &FilePart) -> (RoaringTreemap, RoaringTreemap) {
    let none = RoaringTreemap::new();
    let (before, after) = match (&from.deleted, &to.deleted) {
        (Some(before), Some(after)) if Arc::ptr_eq(before, after) => return (none.clone(), none),
        (before, after) => (
            before.as_deref().unwrap_or(&none),
            after.as_deref().unwrap_or(&none),
        ),
    };
    (after - before, before - after)
}

/// Whether every column of before is there still, and no new one has the name of one there was: files of then hold the
/// values of that one under this name.
fn is_comparable(from: &Table, to: &Table) -> bool {
    let (old, new) = (
        from.columns.iceberg.as_struct(),
        to.columns.iceberg.as_struct(),
    );
    let kept = old
        .fields()
        .iter()
        .all(|field| new.fields().contains(field));
    let mut added = new
        .fields()
        .iter()
        .filter(|field| !old.fields().contains(field));
    kept && added.all(|field| {
        to.metadata.schemas_iter().all(|schema| {
            let mut fields = schema.as_struct().fields().iter();
            fields.all(|f| f.id == field.id || !f.name.eq_ignore_ascii_case(&field.name))
        })
    })
}

/// Positions of the key columns; none when one of them is not there or has no order.
fn key_columns(to: &Table, key: &[String]) -> Vec<usize> {
    let position = |name: &String| {
        let at = to.columns.position(name)?;
        is_key(to.columns.read.field(at).data_type()).then_some(at)
    };
    let found: Option<Vec<usize>> = key.iter().map(position).collect();
    found.unwrap_or_default()
}
