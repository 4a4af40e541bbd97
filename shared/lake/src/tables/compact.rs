//! Keeping files few: which delete files a commit merges, and which data files it writes anew.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum};
use ports::{Error, Kind, Result};
use roaring::RoaringTreemap;

use super::{
    commit::{Edit, Place},
    deletes::{self, PATH_ID, Positions},
    limits::Limits,
    load,
    table::Table,
};

/// What happens to a table's delete files.
pub(crate) struct DeletePlan {
    /// The one new delete file.
    pub new: Option<NewDeletes>,
    /// Positions of delete files that go.
    pub dropped: BTreeSet<usize>,
}

/// A new delete file.
pub(crate) struct NewDeletes {
    pub path: String,
    pub bytes: Bytes,
    /// Rows it deletes.
    pub rows: u64,
    first: String,
    last: String,
}

impl NewDeletes {
    fn new(path: String, positions: &Positions) -> Result<Option<Self>> {
        let ends = positions.first_key_value().zip(positions.last_key_value());
        let Some(((first, _), (last, _))) = ends else {
            return Ok(None);
        };
        let (first, last) = (first.clone(), last.clone());
        let bytes = deletes::encode(positions)?;
        Ok(Some(Self {
            path,
            bytes,
            rows: deletes::count(positions),
            first,
            last,
        }))
    }

    /// As manifests list it.
    pub(crate) fn file(&self, place: &Place<'_>) -> Result<DataFile> {
        let one = (self.first == self.last).then(|| self.first.clone());
        DataFileBuilder::default()
            .content(DataContentType::PositionDeletes)
            .file_path(place.root.location(&self.path))
            .file_format(DataFileFormat::Parquet)
            .record_count(self.rows)
            .file_size_in_bytes(self.bytes.len() as u64)
            .lower_bounds([(PATH_ID, Datum::string(&self.first))].into())
            .upper_bounds([(PATH_ID, Datum::string(&self.last))].into())
            .referenced_data_file(one)
            .build()
            .map_err(|e| Error::new(Kind::Corrupt, "list delete file", &self.path).because(e))
    }
}

/// Plans the delete files of a commit: one new file for its deletes; when there would be too many files, the smaller
/// ones are merged into it, so that every deleted row is written anew a logarithmic number of times.
pub(crate) async fn plan_deletes(place: &Place<'_>, edit: &Edit) -> Result<DeletePlan> {
    let mut positions = Positions::new();
    for (file, rows) in edit.added.iter().filter(|(_, rows)| !rows.is_empty()) {
        deletes::add(&mut positions, &place.root.location(&file.path), rows);
    }
    let Some(base) = edit.base.as_deref() else {
        let new = NewDeletes::new(place.names.deletes(), &positions)?;
        return Ok(DeletePlan {
            new,
            dropped: BTreeSet::new(),
        });
    };
    let stays = |at: &usize| !edit.removed.contains(at);
    for (at, rows) in edit.deleted.iter().filter(|(at, _)| stays(at)) {
        deletes::add(&mut positions, base.files[*at].entry.file.file_path(), rows);
    }
    let stale = (0..base.files.len())
        .filter(stays)
        .any(|at| base.files[at].part.deleted.is_some());
    let dropped = match (stale, positions.is_empty()) {
        // No file that stays has deleted rows of old: no delete file of old says anything.
        (false, _) => (0..base.deletes.len()).collect(),
        (true, true) => BTreeSet::new(),
        (true, false) => to_merge(base, deletes::count(&positions), place.limits.delete_files),
    };
    if stale && !dropped.is_empty() {
        let live: BTreeSet<&str> = (0..base.files.len())
            .filter(stays)
            .map(|at| base.files[at].entry.file.file_path())
            .collect();
        let merged = dropped
            .iter()
            .map(|at| base.deletes[*at].path.clone())
            .collect();
        for (location, rows) in load::positions(place.objects, merged).await? {
            if live.contains(location.as_str()) {
                deletes::add(&mut positions, &location, &rows);
            }
        }
    }
    Ok(DeletePlan {
        new: NewDeletes::new(place.names.deletes(), &positions)?,
        dropped,
    })
}

/// Delete files to merge with `new_rows` new deletes, smallest first: at least enough to be below the limit, and on
/// while the next is not much larger than what is merged already.
fn to_merge(base: &Table, new_rows: u64, most: usize) -> BTreeSet<usize> {
    let mut sizes: Vec<(u64, usize)> = base
        .deletes
        .iter()
        .enumerate()
        .map(|(at, f)| (f.entry.file.record_count(), at))
        .collect();
    if sizes.len() < most {
        return BTreeSet::new();
    }
    sizes.sort_unstable();
    let mut merged = BTreeSet::new();
    let mut rows = new_rows;
    for (size, at) in sizes {
        if merged.len() >= most / 2 && size > rows * 2 {
            break;
        }
        merged.insert(at);
        rows += size;
    }
    merged
}

/// Data files to write anew with this commit, given what it deletes of them; those that lose every row are not
/// among them. `all` when every file has to be.
pub(crate) fn to_fold(
    base: &Table,
    deleted: &BTreeMap<usize, RoaringTreemap>,
    all: bool,
    limits: &Limits,
) -> BTreeSet<usize> {
    let more = |at: usize| deleted.get(&at).map_or(0, RoaringTreemap::len);
    let live = |at: &usize| base.files[*at].live_rows() > more(*at);
    let files: Vec<usize> = (0..base.files.len()).filter(live).collect();
    if all {
        return files.into_iter().collect();
    }
    let size = |at: usize| base.files[at].part.size;
    let gone = |at: usize| base.files[at].deleted_rows() + more(at);
    let bytes: u64 = files.iter().map(|at| size(*at)).sum();
    let tiny = bytes <= limits.tiny_bytes && files.iter().any(|at| gone(*at) > 0);
    let half = files
        .iter()
        .any(|at| gone(*at) * 2 > base.files[*at].part.rows);
    let small = bytes <= limits.small_bytes && (half || files.len() >= limits.small_files);
    if tiny || small {
        return files.into_iter().collect();
    }
    let mut small: Vec<usize> = files
        .into_iter()
        .filter(|at| size(*at) < limits.small_bytes)
        .collect();
    if small.len() < limits.small_files {
        return BTreeSet::new();
    }
    small.sort_unstable_by_key(|at| size(*at));
    let mut folded = 0;
    let fits = |at: &usize| {
        folded += size(*at);
        folded <= limits.fold_bytes
    };
    small.into_iter().take_while(fits).collect()
}
