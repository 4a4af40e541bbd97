//! Making a snapshot: manifests, manifest list and metadata file for a set of changed files, put in parallel.
//!
//! Nothing here is visible to anybody until the catalog pointer moves.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use domain::{TableName, Timestamp, items::Snapshot};
use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, MAIN_BRANCH, ManifestFile,
    Operation, Summary,
};
use object_store::{ObjectStoreExt, path::Path};
use ports::{Error, Kind, Objects, Result, tables::FilePart};
use roaring::RoaringTreemap;

use super::{
    bounds::Metrics,
    compact::{self, DeletePlan},
    draft::{Draft, failed, snapshot_id},
    limits::Limits,
    manifests::{Content, Entries, Manifests, Object, Written, to_rewrite},
    names::{Names, Root},
    table::{Data, Deletes, Entry, Table},
    write::NewFile,
};

/// Objects put at a time.
const PARALLEL: usize = 8;

/// Where a commit is made.
pub(crate) struct Place<'a> {
    pub objects: &'a Objects,
    pub root: &'a Root,
    pub names: &'a Names,
    pub table: &'a TableName,
    pub now: Timestamp,
    pub limits: &'a Limits,
}

/// What a commit changes.
pub(crate) struct Edit {
    /// The metadata it starts from.
    pub draft: Draft,
    /// The table before; none for a new one.
    pub base: Option<Arc<Table>>,
    /// The metadata file before, which the number of the next follows, also where nothing else of it is left.
    pub previous: Option<String>,
    /// New files, and the rows of them that are deleted at once.
    pub added: Vec<(NewFile, RoaringTreemap)>,
    /// Positions of files that go.
    pub removed: BTreeSet<usize>,
    /// Rows that go, by position of their file.
    pub deleted: BTreeMap<usize, RoaringTreemap>,
    /// The operation of the snapshot.
    pub operation: Operation,
    /// For the summary.
    pub properties: BTreeMap<String, String>,
}

/// Writes all a snapshot needs; the table it makes.
pub(crate) async fn commit(place: &Place<'_>, edit: Edit) -> Result<Table> {
    let plan = compact::plan_deletes(place, &edit).await?;
    let manifests = Manifests {
        table: place.table,
        root: place.root,
        names: place.names,
        snapshot_id: snapshot_id(place.names, &edit.draft.metadata),
        sequence: edit.draft.metadata.next_sequence_number(),
        draft: &edit.draft,
    };
    let mut objects = Vec::new();
    let mut listed = Vec::new();
    let files = data_manifest(place, &edit, &manifests, &mut listed, &mut objects).await?;
    let deletes =
        delete_manifest(place, &edit, &plan, &manifests, &mut listed, &mut objects).await?;
    let (list_location, list) = manifests.list(&listed).await?;
    objects.push(list);
    let summary = summary(&edit, &plan, &files, &deletes);
    let metadata = metadata(place, &edit, &manifests, list_location, summary)?;
    let path = place.names.metadata(edit.previous.as_deref());
    let bytes = serde_json::to_vec(&metadata)
        .map_err(|e| Error::new(Kind::Corrupt, "write metadata of", place.table).because(e))?;
    objects.push((path.clone(), bytes.into()));
    let snapshot = Snapshot {
        metadata: path,
        id: manifests.snapshot_id,
    };
    put(place.objects, objects).await?;
    Ok(Table {
        snapshot,
        metadata: Arc::new(metadata),
        columns: edit.draft.columns,
        files,
        deletes,
        manifests: listed,
    })
}

async fn put(store: &Objects, objects: Vec<Object>) -> Result<()> {
    let puts = stream::iter(objects).map(|(path, bytes)| async move {
        store
            .put(&Path::from(path), bytes.into())
            .await
            .map_err(Error::from)
    });
    puts.buffer_unordered(PARALLEL)
        .try_for_each(|_| async { Ok(()) })
        .await
}

/// Lists the data files: kept manifests as they are, and one new for what is added, moved and removed.
async fn data_manifest(
    place: &Place<'_>,
    edit: &Edit,
    manifests: &Manifests<'_>,
    listed: &mut Vec<ManifestFile>,
    objects: &mut Vec<Object>,
) -> Result<Vec<Data>> {
    let base = edit.base.as_deref();
    let old = || base.iter().flat_map(|base| base.files.iter().enumerate());
    let gone = |at: usize| edit.removed.contains(&at);
    let live = old()
        .filter(|(at, _)| !gone(*at))
        .map(|(_, f)| f.entry.manifest.clone())
        .collect();
    let removed_from = old()
        .filter(|(at, _)| gone(*at))
        .map(|(_, f)| f.entry.manifest.clone());
    let known = base.map_or(&[][..], |base| base.manifests.as_slice());
    let rewritten = to_rewrite(
        known,
        &live,
        &removed_from.collect(),
        place.limits.manifests,
    );
    let keeps = |m: &&ManifestFile| {
        let location = m.manifest_path.as_str();
        live.contains(location) && !rewritten.contains(location)
    };
    listed.extend(known.iter().filter(keeps).cloned());

    let mut entries = Entries::default();
    let mut files: Vec<Data> = Vec::new();
    let mut moved: Vec<Data> = Vec::new();
    for (at, file) in old() {
        let moves = rewritten.contains(&file.entry.manifest);
        if gone(at) {
            entries.removed.push(file.entry.clone());
            continue;
        }
        let file = edit
            .deleted
            .get(&at)
            .map_or_else(|| file.clone(), |rows| file.without(rows));
        if moves {
            entries.existing.push(file.entry.clone());
            moved.push(file);
        } else {
            files.push(file);
        }
    }
    let mut parts = Vec::new();
    for (file, deleted) in &edit.added {
        entries.added.push(data_file(place, edit, file)?);
        parts.push(part(file, deleted));
    }
    if entries.added.is_empty() && entries.existing.is_empty() && entries.removed.is_empty() {
        return Ok(files);
    }
    parts.extend(moved.into_iter().map(|file| file.part));
    let written = write(Content::Data, entries, manifests, listed, objects).await?;
    files.extend(
        parts
            .into_iter()
            .zip(written)
            .map(|(part, entry)| Data { part, entry }),
    );
    Ok(files)
}

async fn write(
    content: Content,
    entries: Entries,
    manifests: &Manifests<'_>,
    listed: &mut Vec<ManifestFile>,
    objects: &mut Vec<Object>,
) -> Result<Vec<Entry>> {
    let Written {
        manifest,
        object,
        live,
    } = manifests.write(content, entries).await?;
    listed.push(manifest);
    objects.push(object);
    Ok(live)
}

fn part(file: &NewFile, deleted: &RoaringTreemap) -> Arc<FilePart> {
    Arc::new(FilePart {
        path: file.path.clone(),
        size: file.size,
        rows: file.rows,
        first_sequence: None,
        deleted: (!deleted.is_empty()).then(|| Arc::new(deleted.clone())),
        bounds: file.bounds.clone(),
    })
}

fn data_file(place: &Place<'_>, edit: &Edit, file: &NewFile) -> Result<DataFile> {
    let metrics = Metrics::new(&edit.draft.columns, &file.bounds, &file.footer);
    let offsets = file
        .footer
        .row_groups()
        .iter()
        .filter_map(|group| group.file_offset())
        .collect();
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(place.root.location(&file.path))
        .file_format(DataFileFormat::Parquet)
        .record_count(file.rows)
        .file_size_in_bytes(file.size)
        .column_sizes(metrics.sizes)
        .value_counts(metrics.values)
        .null_value_counts(metrics.nulls)
        .lower_bounds(metrics.lower)
        .upper_bounds(metrics.upper)
        .split_offsets(Some(offsets))
        .build()
        .map_err(|e| Error::new(Kind::Corrupt, "list data file", &file.path).because(e))
}

/// Lists the delete files: as they were, or all in one new manifest.
async fn delete_manifest(
    place: &Place<'_>,
    edit: &Edit,
    plan: &DeletePlan,
    manifests: &Manifests<'_>,
    listed: &mut Vec<ManifestFile>,
    objects: &mut Vec<Object>,
) -> Result<Vec<Deletes>> {
    let old = edit
        .base
        .as_ref()
        .map_or(&[][..], |base| base.deletes.as_slice());
    if plan.new.is_none() && plan.dropped.is_empty() {
        let live: BTreeSet<&str> = old
            .iter()
            .map(|file| file.entry.manifest.as_ref())
            .collect();
        let known = edit.base.iter().flat_map(|base| &base.manifests);
        listed.extend(
            known
                .filter(|m| live.contains(m.manifest_path.as_str()))
                .cloned(),
        );
        return Ok(old.to_vec());
    }
    let mut entries = Entries::default();
    let mut paths = Vec::new();
    if let Some(new) = &plan.new {
        objects.push((new.path.clone(), new.bytes.clone()));
        entries.added.push(new.file(place)?);
        paths.push(new.path.clone());
    }
    for (at, file) in old.iter().enumerate() {
        if plan.dropped.contains(&at) {
            entries.removed.push(file.entry.clone());
        } else {
            entries.existing.push(file.entry.clone());
            paths.push(file.path.clone());
        }
    }
    let written = write(Content::Deletes, entries, manifests, listed, objects).await?;
    Ok(paths
        .into_iter()
        .zip(written)
        .map(|(path, entry)| Deletes { path, entry })
        .collect())
}

fn metadata(
    place: &Place<'_>,
    edit: &Edit,
    manifests: &Manifests<'_>,
    list: String,
    summary: Summary,
) -> Result<iceberg::spec::TableMetadata> {
    let draft = &edit.draft;
    // Clocks of two writers may differ: time in a table's metadata never runs backwards.
    let last = edit
        .base
        .as_ref()
        .map_or(i64::MIN, |base| base.metadata.last_updated_ms());
    let snapshot = iceberg::spec::Snapshot::builder()
        .with_snapshot_id(manifests.snapshot_id)
        .with_parent_snapshot_id(draft.metadata.current_snapshot_id())
        .with_sequence_number(manifests.sequence)
        .with_timestamp_ms(place.now.as_millis().max(last))
        .with_manifest_list(list)
        .with_summary(summary)
        .with_schema_id(draft.columns.iceberg.schema_id())
        .build();
    let mut old: Vec<_> = draft.metadata.snapshots().collect();
    old.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.sequence_number()));
    let expired: Vec<i64> = old
        .iter()
        .skip(place.limits.snapshots - 1)
        .map(|s| s.snapshot_id())
        .collect();
    let built = draft
        .builder
        .clone()
        .set_branch_snapshot(snapshot, MAIN_BRANCH);
    let built = built.map(|builder| match expired.is_empty() {
        true => builder,
        false => builder.remove_snapshots(&expired),
    });
    Ok(built
        .and_then(|builder| builder.build())
        .map_err(|e| failed(place.table, e))?
        .metadata)
}

/// The snapshot's summary: Iceberg's counts, and our properties under `headwater.`.
fn summary(edit: &Edit, plan: &DeletePlan, files: &[Data], deletes: &[Deletes]) -> Summary {
    let base = edit.base.as_deref();
    let removed = || edit.removed.iter().filter_map(|at| base?.files.get(*at));
    let added = || edit.added.iter().map(|(file, _)| file);
    let new_positions = plan.new.as_ref().map_or(0, |new| new.rows);
    let counts = [
        ("added-data-files", edit.added.len() as u64),
        ("added-records", added().map(|file| file.rows).sum()),
        ("added-files-size", added().map(|file| file.size).sum()),
        ("deleted-data-files", edit.removed.len() as u64),
        (
            "deleted-records",
            removed().map(|file| file.part.rows).sum(),
        ),
        (
            "removed-files-size",
            removed().map(|file| file.part.size).sum(),
        ),
        ("added-delete-files", u64::from(plan.new.is_some())),
        ("added-position-delete-files", u64::from(plan.new.is_some())),
        ("added-position-deletes", new_positions),
        ("removed-delete-files", plan.dropped.len() as u64),
    ];
    let totals = [
        (
            "total-records",
            files.iter().map(|file| file.part.rows).sum::<u64>(),
        ),
        ("total-data-files", files.len() as u64),
        (
            "total-files-size",
            files.iter().map(|file| file.part.size).sum(),
        ),
        ("total-delete-files", deletes.len() as u64),
        (
            "total-position-deletes",
            deletes
                .iter()
                .map(|file| file.entry.file.record_count())
                .sum(),
        ),
        ("total-equality-deletes", 0),
    ];
    let changes = counts.into_iter().filter(|(_, count)| *count > 0);
    let ours = edit
        .properties
        .iter()
        .map(|(key, value)| (format!("headwater.{key}"), value.clone()));
    let additional_properties: HashMap<String, String> = changes
        .chain(totals)
        .map(|(key, count)| (key.to_owned(), count.to_string()))
        .chain(ours)
        .collect();
    Summary {
        operation: edit.operation.clone(),
        additional_properties,
    }
}
