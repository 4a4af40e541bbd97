//! A table at one snapshot, as held in memory: columns, live files, deleted rows. Read from metadata once, then kept.

use std::sync::Arc;

use domain::items::Snapshot;
use iceberg::spec::{DataFile, ManifestFile, TableMetadata};
use ports::tables::{FilePart, Part, Scan};
use roaring::RoaringTreemap;

use super::columns::Columns;

/// A table at one snapshot.
#[derive(Debug)]
pub(crate) struct Table {
    /// Which.
    pub snapshot: Snapshot,
    /// The metadata file's content.
    pub metadata: Arc<TableMetadata>,
    /// Its columns.
    pub columns: Columns,
    /// Live data files.
    pub files: Vec<Data>,
    /// Live files of position deletes.
    pub deletes: Vec<Deletes>,
    /// Manifests that list them.
    pub manifests: Vec<ManifestFile>,
}

/// A live data file.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    /// As readers see it.
    pub part: Arc<FilePart>,
    /// As manifests list it.
    pub entry: Entry,
}

/// A live file of position deletes.
#[derive(Clone, Debug)]
pub(crate) struct Deletes {
    /// Path in the warehouse.
    pub path: String,
    /// As manifests list it.
    pub entry: Entry,
}

/// A manifest's entry for a live file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Location of the manifest that lists it.
    pub manifest: Arc<str>,
    /// What it says of the file.
    pub file: Arc<DataFile>,
    /// The snapshot that added the file.
    pub snapshot_id: i64,
    /// The commit's sequence number, for data and for the file.
    pub sequence: i64,
    /// Sequence number at which the file was added.
    pub file_sequence: i64,
}

impl Data {
    /// Rows that are not deleted.
    pub(crate) fn live_rows(&self) -> u64 {
        self.part.rows - self.deleted_rows()
    }

    /// Rows that are deleted.
    pub(crate) fn deleted_rows(&self) -> u64 {
        self.part
            .deleted
            .as_ref()
            .map_or(0, |deleted| deleted.len())
    }

    /// The same file with more rows deleted.
    pub(crate) fn without(&self, more: &RoaringTreemap) -> Self {
        let mut deleted = self.part.deleted.as_deref().cloned().unwrap_or_default();
        deleted |= more;
        let part = FilePart {
            deleted: Some(Arc::new(deleted)),
            ..FilePart::clone(&self.part)
        };
        Self {
            part: Arc::new(part),
            entry: self.entry.clone(),
        }
    }
}

impl Table {
    /// Rows of the table.
    pub(crate) fn rows(&self) -> u64 {
        self.files.iter().map(Data::live_rows).sum()
    }

    /// What there is to read.
    pub(crate) fn scan(&self) -> Scan {
        let parts = self
            .files
            .iter()
            .map(|file| Part::File(file.part.clone()))
            .collect();
        Scan {
            schema: self.columns.shown.clone(),
            parts,
        }
    }
}
