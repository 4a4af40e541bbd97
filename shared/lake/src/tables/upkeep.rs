//! Maintenance of model tables: snapshots that may go, files that hold too many deleted rows, objects nothing names.
//!
//! What changes a table's metadata here moves the pointer and the head in one transaction, each expected as it was
//! read, and leaves the position alone: no reader is woken, and a refresh that was first wins. A file is garbage when no
//! snapshot of the metadata names it and it was begun before the head's own commit: whoever began it then has lost.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use domain::{
    TableName,
    items::{self, HEAD, Head, Snapshot},
};
use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::{Operation, TableMetadata};
use object_store::{ObjectStoreExt, path::Path};
use ports::{
    Error, Kind, Result,
    state::{Expect, Item, Key, Write},
    upkeep::{Compacted, Keep, Sweep, Swept},
};
use roaring::RoaringTreemap;

use super::{
    Lake,
    commit::{Edit, Place, commit},
    draft::{Draft, failed},
    load,
    names::{self, Names},
    pointer::Pointer,
    rewrite,
    table::Table,
    write::{NewFile, Target, Writer},
};
use crate::garbage::{self, References};

/// Objects read at a time.
const PARALLEL: usize = 8;
/// Fewer snapshots than this are not worth a commit.
const EXPIRED_MIN: usize = 10;
/// A file is written anew when more than three tenths of its rows are deleted.
const DELETED: (u64, u64) = (3, 10);

/// A table as its head and its pointer have it.
pub(super) struct Current {
    item: Item,
    head: Head,
    pub(super) snapshot: Snapshot,
    pointer: Pointer,
}

/// What a table's head and pointer agree on; none for a table that is no model's, or between two reads of a commit.
pub(super) async fn current(lake: &Lake, table: &TableName) -> Result<Option<Current>> {
    let Some(item) = lake.state.get(&head_key(table)).await? else {
        return Ok(None);
    };
    let head: Head = item.decode()?;
    let Some(snapshot) = head.snapshot.clone() else {
        return Ok(None);
    };
    let pointer = Pointer::read(&lake.state, &lake.root, table).await?;
    match pointer.expect(table, Some(&snapshot)) {
        Ok(()) => Ok(Some(Current {
            item,
            head,
            snapshot,
            pointer,
        })),
        Err(error) if error.kind == Kind::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}

fn head_key(table: &TableName) -> Key {
    Key::new(items::table(table), HEAD)
}

impl Current {
    /// The writes that make a snapshot with fewer rows the table's, each expecting what was read.
    pub(super) fn writes(
        &self,
        lake: &Lake,
        table: &TableName,
        next: &Snapshot,
        rows: u64,
    ) -> Vec<Write> {
        let commits = self.head.position.commits + 1;
        let head = Head {
            position: domain::Position {
                sequence: commits,
                commits,
            },
            rows,
            advanced_at: lake.clock.now(),
            snapshot: Some(next.clone()),
            ..self.head.clone()
        };
        vec![
            self.pointer.moved(&lake.root, table, &next.metadata),
            Write::put(head_key(table), &head, Expect::Version(self.item.version)),
        ]
    }

    /// Makes a snapshot with the same rows the table's; false when somebody else changed it first.
    async fn publish(&self, lake: &Lake, table: &TableName, next: &Snapshot) -> Result<bool> {
        let head = Head {
            snapshot: Some(next.clone()),
            ..self.head.clone()
        };
        let writes = vec![
            self.pointer.moved(&lake.root, table, &next.metadata),
            Write::put(head_key(table), &head, Expect::Version(self.item.version)),
        ];
        Ok(lake.state.transact(writes).await?.is_committed())
    }
}

/// Lets snapshots go; none when the table moved on.
pub(super) async fn expire(lake: &Lake, table: &TableName, keep: &Keep) -> Result<Option<u64>> {
    let Some(current) = current(lake, table).await? else {
        return Ok(Some(0));
    };
    let base = lake.table(table, &current.snapshot).await?;
    let expired = expired(&base.metadata, keep);
    if expired.len() < EXPIRED_MIN {
        return Ok(Some(0));
    }
    let names = Names::new(table, lake.chance.clone(), lake.clock.clone());
    let draft = Draft::change(table, &lake.root, &base, None)?;
    let built = draft
        .builder
        .remove_snapshots(&expired)
        .build()
        .map_err(|e| failed(table, e))?
        .metadata;
    let metadata = at(table, &built, &base.metadata, keep)?;
    let path = names.metadata(Some(&current.snapshot.metadata));
    let bytes = serde_json::to_vec(&metadata)
        .map_err(|e| Error::new(Kind::Corrupt, "write metadata of", table).because(e))?;
    let place = Path::from(path.as_str());
    lake.objects.put(&place, bytes.into()).await?;
    let next = Snapshot {
        metadata: path,
        id: current.snapshot.id,
    };
    if !current.publish(lake, table, &next).await? {
        // Nobody was ever told of it. One that cannot be removed is an orphan.
        let _ = lake.objects.delete(&place).await;
        return Ok(None);
    }
    let kept = Table {
        snapshot: next.clone(),
        metadata: Arc::new(metadata),
        columns: draft.columns,
        files: base.files.clone(),
        deletes: base.deletes.clone(),
        manifests: base.manifests.clone(),
    };
    lake.tables.put(next, Arc::new(kept));
    Ok(Some(expired.len() as u64))
}

/// Snapshots that need not stay.
fn expired(metadata: &TableMetadata, keep: &Keep) -> Vec<i64> {
    let mut snapshots: Vec<_> = metadata.snapshots().collect();
    snapshots.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.sequence_number()));
    let retention = i64::try_from(keep.retention.as_millis()).unwrap_or(i64::MAX);
    let since = keep.now.as_millis().saturating_sub(retention);
    snapshots
        .into_iter()
        .skip(keep.last.max(1))
        .filter(|snapshot| snapshot.timestamp_ms() <= since)
        .map(|snapshot| snapshot.snapshot_id())
        .filter(|id| !keep.held.contains(id) && metadata.current_snapshot_id() != Some(*id))
        .collect()
}

/// Metadata as of our own clock: the builder asks the system for the time when there is no new snapshot.
fn at(
    table: &TableName,
    built: &TableMetadata,
    base: &TableMetadata,
    keep: &Keep,
) -> Result<TableMetadata> {
    let failed = |e| Error::new(Kind::Corrupt, "write metadata of", table).because(e);
    let mut text = serde_json::to_value(built).map_err(failed)?;
    let updated = keep.now.as_millis().max(base.last_updated_ms());
    text["last-updated-ms"] = updated.into();
    serde_json::from_value(text).map_err(failed)
}

/// Removes what no snapshot names.
pub(super) async fn sweep(lake: &Lake, table: &TableName, sweep: &Sweep) -> Result<Swept> {
    let place = garbage::Place {
        state: &*lake.state,
        objects: &lake.objects,
        chance: &*lake.chance,
        table,
        folder: names::folder(table),
    };
    garbage::sweep(&place, sweep, || references(lake, table)).await
}

/// Everything that the metadata leads to; none between two reads of a commit.
async fn references(lake: &Lake, table: &TableName) -> Result<Option<References>> {
    let Some(found) = current(lake, table).await? else {
        // A table without a head has a first build under way, or what is left of one.
        let absent = lake.state.get(&head_key(table)).await?.is_none();
        return Ok(absent.then(References::default));
    };
    let mut paths = HashSet::from([found.snapshot.metadata.clone()]);
    let bytes = load::read(&lake.objects, &found.snapshot.metadata).await?;
    let metadata: TableMetadata = serde_json::from_slice(&bytes).map_err(|e| {
        Error::new(
            Kind::Corrupt,
            "read table metadata",
            &found.snapshot.metadata,
        )
        .because(e)
    })?;
    for entry in metadata.metadata_log() {
        paths.insert(lake.root.path(&entry.metadata_file)?);
    }
    let lists: BTreeSet<String> = metadata
        .snapshots()
        .map(|snapshot| snapshot.manifest_list().to_owned())
        .collect();
    let mut manifests = BTreeMap::new();
    let mut read = stream::iter(lists)
        .map(|list| async move {
            let manifests = load::list(&lake.objects, &lake.root, &list).await?;
            Ok::<_, Error>((lake.root.path(&list)?, manifests))
        })
        .buffer_unordered(PARALLEL);
    while let Some((list, listed)) = read.try_next().await? {
        paths.insert(list);
        manifests.extend(listed.into_iter().map(|m| (m.manifest_path.clone(), m)));
    }
    let mut read = stream::iter(manifests)
        .map(|(location, manifest)| async move {
            let entries = load::entries(&lake.objects, &lake.root, manifest).await?;
            Ok::<_, Error>((lake.root.path(&location)?, entries))
        })
        .buffer_unordered(PARALLEL);
    while let Some((manifest, entries)) = read.try_next().await? {
        paths.insert(manifest);
        for (_, entry) in entries {
            paths.insert(lake.root.path(entry.file.file_path())?);
        }
    }
    Ok(Some(References {
        paths,
        settled: Some(found.head.advanced_at),
    }))
}

/// Writes the files anew that hold the most deleted rows.
pub(super) async fn compact(
    lake: &Lake,
    table: &TableName,
    key: &[String],
    bytes: u64,
) -> Result<Compacted> {
    let Some(current) = current(lake, table).await? else {
        return Ok(Compacted::default());
    };
    let base = lake.table(table, &current.snapshot).await?;
    let worst = worst(&base, bytes);
    if worst.is_empty() {
        return Ok(Compacted::default());
    }
    let names = Arc::new(Names::new(table, lake.chance.clone(), lake.clock.clone()));
    let draft = Draft::change(table, &lake.root, &base, None)?;
    let files = rewritten(lake, &base, &worst, &draft, names.clone(), key).await?;
    let size = worst.iter().map(|at| base.files[*at].part.size).sum();
    let place = Place {
        objects: &lake.objects,
        root: &lake.root,
        names: &names,
        table,
        now: lake.clock.now(),
        limits: &lake.limits,
    };
    let compacted = worst.len() as u64;
    let edit = Edit {
        draft,
        added: files
            .into_iter()
            .map(|file| (file, RoaringTreemap::new()))
            .collect(),
        removed: worst,
        deleted: BTreeMap::new(),
        operation: Operation::Replace,
        properties: properties(&base),
        previous: Some(base.snapshot.metadata.clone()),
        base: Some(base.clone()),
    };
    let next = Arc::new(commit(&place, edit).await?);
    assert!(
        next.rows() == base.rows(),
        "a rewrite of {table} changes its rows: {} were {}",
        next.rows(),
        base.rows()
    );
    let done = current.publish(lake, table, &next.snapshot).await?;
    if done {
        lake.tables.put(next.snapshot.clone(), next);
    }
    Ok(Compacted {
        files: if done { compacted } else { 0 },
        bytes: if done { size } else { 0 },
        conflict: !done,
    })
}

/// Files with too many deleted rows, the worst first, up to so many bytes; one at least.
fn worst(base: &Table, bytes: u64) -> BTreeSet<usize> {
    let (part, whole) = DELETED;
    let mut worst: Vec<usize> = (0..base.files.len())
        .filter(|at| {
            let file = &base.files[*at];
            file.live_rows() > 0 && file.deleted_rows() * whole > file.part.rows * part
        })
        .collect();
    let share = |at: &usize| {
        let file = &base.files[*at];
        file.live_rows() * 1_000 / file.part.rows.max(1)
    };
    worst.sort_by_key(share);
    let mut sum = 0;
    let fits = |at: &usize| {
        let first = sum == 0;
        sum += base.files[*at].part.size;
        first || sum <= bytes
    };
    worst.into_iter().take_while(fits).collect()
}

async fn rewritten(
    lake: &Lake,
    base: &Table,
    worst: &BTreeSet<usize>,
    draft: &Draft,
    names: Arc<Names>,
    key: &[String],
) -> Result<Vec<NewFile>> {
    let columns = draft.columns.clone();
    let writer = Writer::new(Target {
        objects: lake.objects.clone(),
        names,
        key: key
            .iter()
            .filter_map(|name| columns.position(name))
            .collect(),
        columns: columns.clone(),
        file_bytes: lake.limits.file_bytes,
    });
    for at in worst {
        let file = &base.files[*at];
        if !rewrite::copy(&lake.objects, &lake.footers, file, &columns, &writer).await? {
            break;
        }
    }
    writer.finish().await
}

/// What the snapshot before said to readers holds for the same rows in other files.
fn properties(base: &Table) -> BTreeMap<String, String> {
    let snapshot = base.metadata.snapshot_by_id(base.snapshot.id);
    let all = snapshot.map(|snapshot| &snapshot.summary().additional_properties);
    all.into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            Some((key.strip_prefix("headwater.")?.to_owned(), value.clone()))
        })
        .collect()
}
