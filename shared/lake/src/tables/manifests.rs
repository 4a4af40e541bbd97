//! Manifests and manifest lists as bytes, by the `iceberg` crate's own writers over its memory store.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use domain::TableName;
use iceberg::{
    io::FileIO,
    spec::{DataFile, ManifestFile, ManifestListWriter, ManifestWriterBuilder},
};
use ports::Result;

use super::{
    draft::{Draft, failed},
    names::{Names, Root},
    table::Entry,
};

/// Manifests smaller than this are merged when there are many of them.
const SMALL_BYTES: i64 = 256 << 10;
/// Where the memory store keeps the one file being written.
const SCRATCH: &str = "memory:///scratch";

/// An object to be put.
pub(crate) type Object = (String, Bytes);

/// What is common to the manifests of one commit.
pub(crate) struct Manifests<'a> {
    pub table: &'a TableName,
    pub root: &'a Root,
    pub names: &'a Names,
    pub draft: &'a Draft,
    pub snapshot_id: i64,
    pub sequence: i64,
}

/// Entries of one new manifest.
#[derive(Default)]
pub(crate) struct Entries {
    pub added: Vec<DataFile>,
    pub existing: Vec<Entry>,
    pub removed: Vec<Entry>,
}

/// A manifest that was written.
pub(crate) struct Written {
    pub manifest: ManifestFile,
    pub object: Object,
    /// Entries of the live files in it: added ones first, in the order given.
    pub live: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Data,
    Deletes,
}

impl Manifests<'_> {
    /// Writes one manifest.
    pub(crate) async fn write(&self, content: Content, entries: Entries) -> Result<Written> {
        let failed = |e| failed(self.table, e);
        let io = FileIO::new_with_memory();
        let output = io.new_output(SCRATCH).map_err(failed)?;
        let schema = self.draft.columns.iceberg.clone();
        let spec = self
            .draft
            .metadata
            .default_partition_spec()
            .as_ref()
            .clone();
        let builder = ManifestWriterBuilder::new(output, Some(self.snapshot_id), schema, spec);
        let mut writer = match content {
            Content::Data => builder.build_v2_data(),
            Content::Deletes => builder.build_v2_deletes(),
        };
        for file in &entries.added {
            writer.add_file(file.clone(), -1).map_err(failed)?;
        }
        for old in &entries.existing {
            let file = old.file.as_ref().clone();
            writer
                .add_existing_file(file, old.snapshot_id, old.sequence, Some(old.file_sequence))
                .map_err(failed)?;
        }
        for old in &entries.removed {
            let file = old.file.as_ref().clone();
            writer
                .add_delete_file(file, old.sequence, Some(old.file_sequence))
                .map_err(failed)?;
        }
        let mut manifest = writer.write_manifest_file().await.map_err(failed)?;
        let path = self.names.manifest("manifest");
        let bytes = take(&io, self.table).await?;
        manifest.manifest_path = self.root.location(&path);
        manifest.sequence_number = self.sequence;
        if manifest.min_sequence_number < 0 {
            manifest.min_sequence_number = self.sequence;
        }
        let live = self.live(&manifest, entries);
        Ok(Written {
            manifest,
            object: (path, bytes),
            live,
        })
    }

    fn live(&self, manifest: &ManifestFile, entries: Entries) -> Vec<Entry> {
        let location: Arc<str> = manifest.manifest_path.as_str().into();
        let added = entries.added.into_iter().map(|file| Entry {
            manifest: location.clone(),
            file: Arc::new(file),
            snapshot_id: self.snapshot_id,
            sequence: self.sequence,
            file_sequence: self.sequence,
        });
        let moved = entries.existing.into_iter().map(|old| Entry {
            manifest: location.clone(),
            ..old
        });
        added.chain(moved).collect()
    }

    /// Writes the manifest list; its location and object.
    pub(crate) async fn list(&self, manifests: &[ManifestFile]) -> Result<(String, Object)> {
        let failed = |e| failed(self.table, e);
        let io = FileIO::new_with_memory();
        let output = io.new_output(SCRATCH).map_err(failed)?;
        let parent = self.draft.metadata.current_snapshot_id();
        let sink = output.writer().await.map_err(failed)?;
        let mut writer = ManifestListWriter::v2(sink, self.snapshot_id, parent, self.sequence);
        writer
            .add_manifests(manifests.iter().cloned())
            .map_err(failed)?;
        writer.close().await.map_err(failed)?;
        let path = self.names.manifest("snap");
        let bytes = take(&io, self.table).await?;
        Ok((self.root.location(&path), (path, bytes)))
    }
}

async fn take(io: &FileIO, table: &TableName) -> Result<Bytes> {
    let input = io.new_input(SCRATCH).map_err(|e| failed(table, e))?;
    input.read().await.map_err(|e| failed(table, e))
}

/// Which manifests of data files a commit rewrites: those that list a file it removes, and all small ones once there
/// are many. The others stay as they are.
pub(crate) fn to_rewrite(
    manifests: &[ManifestFile],
    live: &BTreeSet<Arc<str>>,
    removed_from: &BTreeSet<Arc<str>>,
    most: usize,
) -> BTreeSet<Arc<str>> {
    let small = manifests
        .iter()
        .filter(|m| m.manifest_length < SMALL_BYTES && live.contains(m.manifest_path.as_str()));
    let small: Vec<Arc<str>> = small.map(|m| m.manifest_path.as_str().into()).collect();
    let mut rewritten = removed_from.clone();
    if small.len() >= most {
        rewritten.extend(small);
    }
    rewritten
}
