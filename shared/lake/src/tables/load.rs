//! Reading a table cold: metadata file, manifest list, manifests, delete files; the last two in parallel.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use domain::{TableName, items::Snapshot};
use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::{
    DataContentType, DataFileFormat, FormatVersion, Manifest, ManifestEntry, ManifestFile,
    ManifestList, ManifestStatus, TableMetadata,
};
use object_store::{ObjectStoreExt, path::Path};
use ports::{Error, Kind, Objects, Result, tables::FilePart};

use super::{
    bounds,
    columns::Columns,
    deletes::{self, Positions},
    names::Root,
    table::{Data, Deletes, Entry, Table},
};

/// Objects read at a time.
const PARALLEL: usize = 8;

/// Reads a snapshot of a table.
pub(crate) async fn load(
    objects: &Objects,
    root: &Root,
    table: &TableName,
    snapshot: &Snapshot,
) -> Result<Table> {
    let bytes = read(objects, &snapshot.metadata).await?;
    let metadata: TableMetadata =
        serde_json::from_slice(&bytes).map_err(|e| corrupt(&snapshot.metadata).because(e))?;
    let found = metadata
        .snapshot_by_id(snapshot.id)
        .cloned()
        .ok_or_else(|| {
            corrupt(&snapshot.metadata).because(format!("it has no snapshot {}", snapshot.id))
        })?;
    let schema = found
        .schema(&metadata)
        .map_err(|e| corrupt(&snapshot.metadata).because(e))?;
    let columns = Columns::new(table, schema)?;
    let manifests = list(objects, root, found.manifest_list()).await?;
    let listed: Vec<Vec<(DataContentType, Entry)>> = stream::iter(manifests.clone())
        .map(|manifest| entries(objects, root, manifest))
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    let (mut files, mut deletes) = (Vec::new(), Vec::new());
    for (content, entry) in listed.into_iter().flatten() {
        let path = root.path(entry.file.file_path())?;
        match content {
            DataContentType::Data => files.push(data(&columns, path, entry)),
            DataContentType::PositionDeletes => deletes.push(Deletes { path, entry }),
            DataContentType::EqualityDeletes => {
                return Err(corrupt(&path).because("equality deletes are not ours"));
            }
        }
    }
    let paths = deletes.iter().map(|file| file.path.clone()).collect();
    subtract(&mut files, positions(objects, paths).await?);
    let metadata = Arc::new(metadata);
    Ok(Table {
        snapshot: snapshot.clone(),
        metadata,
        columns,
        files,
        deletes,
        manifests,
    })
}

/// Reads one object; one that metadata names and that is gone is `Corrupt`.
pub(crate) async fn read(objects: &Objects, path: &str) -> Result<Bytes> {
    let answer = async { objects.get(&Path::from(path)).await?.bytes().await };
    answer.await.map_err(|error| match error {
        object_store::Error::NotFound { .. } => corrupt(path).because(error),
        other => Error::from(other),
    })
}

fn corrupt(subject: &str) -> Error {
    Error::new(Kind::Corrupt, "read table metadata", subject)
}

/// The manifests of a manifest list.
pub(crate) async fn list(
    objects: &Objects,
    root: &Root,
    location: &str,
) -> Result<Vec<ManifestFile>> {
    let path = root.path(location)?;
    let bytes = read(objects, &path).await?;
    let list = ManifestList::parse_with_version(&bytes, FormatVersion::V2);
    Ok(list
        .map_err(|e| corrupt(&path).because(e))?
        .consume_entries()
        .into_iter()
        .collect())
}

/// The live files of a manifest.
pub(crate) async fn entries(
    objects: &Objects,
    root: &Root,
    manifest: ManifestFile,
) -> Result<Vec<(DataContentType, Entry)>> {
    let path = root.path(&manifest.manifest_path)?;
    let bytes = read(objects, &path).await?;
    let parsed = Manifest::parse_avro(&bytes).map_err(|e| corrupt(&path).because(e))?;
    let location: Arc<str> = manifest.manifest_path.as_str().into();
    let live = parsed.entries().iter().filter(|entry| entry.is_alive());
    live.map(|entry| {
        if entry.file_format() != DataFileFormat::Parquet {
            return Err(corrupt(entry.file_path()).because("it is not a parquet file"));
        }
        Ok((
            entry.content_type(),
            inherit(entry, &manifest, location.clone()),
        ))
    })
    .collect()
}

/// What an added entry leaves out it has from its manifest.
fn inherit(entry: &ManifestEntry, manifest: &ManifestFile, location: Arc<str>) -> Entry {
    let added = entry.status == ManifestStatus::Added;
    let sequence = |own: Option<i64>| match (own, added) {
        (Some(own), _) => own,
        (None, true) => manifest.sequence_number,
        (None, false) => 0,
    };
    Entry {
        manifest: location,
        file: Arc::new(entry.data_file.clone()),
        snapshot_id: entry.snapshot_id.unwrap_or(manifest.added_snapshot_id),
        sequence: sequence(entry.sequence_number),
        file_sequence: sequence(entry.file_sequence_number),
    }
}

fn data(columns: &Columns, path: String, entry: Entry) -> Data {
    let part = FilePart {
        path,
        size: entry.file.file_size_in_bytes(),
        rows: entry.file.record_count(),
        first_sequence: None,
        deleted: None,
        bounds: bounds::from_manifest(columns, &entry.file),
    };
    Data {
        part: Arc::new(part),
        entry,
    }
}

/// All rows that some delete files name.
pub(crate) async fn positions(objects: &Objects, paths: Vec<String>) -> Result<Positions> {
    let read = stream::iter(paths).map(|path| async move {
        let bytes = read(objects, &path).await?;
        deletes::decode(&path, bytes)
    });
    let all = Positions::new();
    read.buffered(PARALLEL)
        .try_fold(all, async |mut all, some| {
            some.iter()
                .for_each(|(location, rows)| deletes::add(&mut all, location, rows));
            Ok(all)
        })
        .await
}

fn subtract(files: &mut [Data], positions: Positions) {
    let mut by_location: HashMap<String, _> = positions.into_iter().collect();
    for file in files {
        if let Some(rows) = by_location.remove(file.entry.file.file_path()) {
            *file = file.without(&rows);
        }
    }
}
