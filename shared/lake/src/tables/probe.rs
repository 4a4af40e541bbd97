//! Finding a batch's keys in a table: bounds first, then only the key columns of what they leave.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, new_null_array},
    datatypes::DataType,
};
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use ports::{Error, Kind, Objects, Result, tables::FilePart};
use roaring::RoaringTreemap;

use super::{
    columns,
    keymap::KeySet,
    keys::Keys,
    prune::{Known, Ranges},
    read::{Footers, Readable, failed},
    table::{Data, Table},
};

/// Rows decoded at a time: a row group.
const BATCH_ROWS: usize = 128 << 10;
/// Row groups one task reads.
const UNIT_GROUPS: usize = 4;
/// Tasks at a time: enough to hide an object store's latency, few enough to bound memory.
const PARALLEL: usize = 4;

/// What to look for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The keys.
    pub set: KeySet,
    /// The same as ranges.
    pub ranges: Ranges,
    /// Key columns: the name the table's files have it under, none where old rows are NULL; and its type.
    pub columns: Vec<(Option<String>, DataType)>,
}

/// Row numbers, by position of the file in the table, of rows that have one of the keys and are not deleted yet.
pub(crate) async fn probe(
    objects: &Objects,
    footers: &Footers,
    table: &Table,
    wanted: &Arc<Wanted>,
) -> Result<BTreeMap<usize, RoaringTreemap>> {
    let open = stream::iter(wanted.candidates(table)).map(|(at, part)| async move {
        Ok::<_, Error>((at, Readable::open(objects, footers, part).await?))
    });
    let open: Vec<_> = open.buffered(PARALLEL).try_collect().await?;
    let mut units = Vec::new();
    for (at, file) in open {
        let groups = wanted.groups(&file);
        units.extend(
            groups
                .chunks(UNIT_GROUPS)
                .map(|groups| (at, file.clone(), groups.to_vec())),
        );
    }
    let tasks = stream::iter(units).map(|(at, file, groups)| {
        let wanted = wanted.clone();
        let task = tokio::spawn(async move { wanted.find(&file, groups).await });
        async move {
            let failed = |e| Error::new(Kind::Unavailable, "probe", "data file").because(e);
            Ok::<_, Error>((at, task.await.map_err(failed)??))
        }
    });
    let mut found = BTreeMap::<usize, RoaringTreemap>::new();
    let mut tasks = tasks.buffer_unordered(PARALLEL);
    while let Some((at, rows)) = tasks.try_next().await? {
        *found.entry(at).or_default() |= rows;
    }
    for (at, rows) in &mut found {
        if let Some(deleted) = &table.files[*at].part.deleted {
            *rows -= deleted.as_ref();
        }
    }
    found.retain(|_, rows| !rows.is_empty());
    Ok(found)
}

impl Wanted {
    /// Files that may hold a key.
    fn candidates(&self, table: &Table) -> Vec<(usize, Arc<FilePart>)> {
        let files = table
            .files
            .iter()
            .enumerate()
            .filter(|(_, file)| self.may_be_in(file));
        files.map(|(at, file)| (at, file.part.clone())).collect()
    }

    fn may_be_in(&self, file: &Data) -> bool {
        if file.live_rows() == 0 {
            return false;
        }
        self.columns.iter().enumerate().all(|(at, (name, _))| {
            let bounds = name.as_ref().and_then(|name| file.part.bounds.get(name));
            bounds.is_none_or(|b| {
                let known = Known {
                    min: b.min.as_ref(),
                    max: b.max.as_ref(),
                    nulls: b.nulls,
                };
                self.ranges.may_hold(at, known)
            })
        })
    }

    /// Row groups that may hold a key.
    fn groups(&self, file: &Readable) -> Vec<usize> {
        let footer = file.footer();
        let groups = footer.metadata().row_groups();
        let mut keep = vec![true; groups.len()];
        for (at, (name, _)) in self.columns.iter().enumerate() {
            let Some(name) = name else { continue };
            let converter =
                StatisticsConverter::try_new(name, footer.schema(), footer.parquet_schema());
            let Ok(converter) = converter else { continue };
            let ends = (
                converter.row_group_mins(groups),
                converter.row_group_maxes(groups),
                converter.row_group_null_counts(groups),
            );
            let (Ok(mins), Ok(maxes), Ok(nulls)) = ends else {
                continue;
            };
            for (group, keep) in keep.iter_mut().enumerate() {
                let one = |ends: &ArrayRef| ends.is_valid(group).then(|| ends.slice(group, 1));
                let (min, max) = (one(&mins), one(&maxes));
                let nulls =
                    arrow::array::Array::is_valid(&nulls, group).then(|| nulls.value(group));
                *keep &= self.ranges.may_hold(
                    at,
                    Known {
                        min: min.as_ref(),
                        max: max.as_ref(),
                        nulls,
                    },
                );
            }
        }
        (0..groups.len()).filter(|group| keep[*group]).collect()
    }

    /// Rows of some row groups, by number in the file, that have one of the keys.
    async fn find(&self, file: &Readable, groups: Vec<usize>) -> Result<RoaringTreemap> {
        let footer = file.footer();
        let places: Vec<Option<usize>> = self
            .columns
            .iter()
            .map(|(name, _)| columns::position(footer.schema(), name.as_ref()?))
            .collect();
        let mut roots: Vec<usize> = places.iter().copied().flatten().collect();
        roots.sort_unstable();
        roots.dedup();
        let starts: Vec<u64> = starts(footer.metadata().row_groups());
        let part = file.part();
        let mut found = RoaringTreemap::new();
        let mut hashes = Vec::new();
        let mut stream = file.stream(&roots, groups.clone(), BATCH_ROWS)?;
        for group in groups {
            let Some(batches) = stream.next_row_group().await.map_err(|e| failed(part, e))? else {
                break;
            };
            let mut first = starts[group];
            for batch in batches {
                let batch = batch.map_err(|e| failed(part, e.into()))?;
                let rows = batch.num_rows();
                let column =
                    |(place, (_, kind)): (&Option<usize>, &(Option<String>, DataType))| match place
                    {
                        Some(place) => batch
                            .column(roots.partition_point(|root| root < place))
                            .clone(),
                        None => new_null_array(kind, rows),
                    };
                let key: Vec<ArrayRef> = places.iter().zip(&self.columns).map(column).collect();
                self.set.probe(&Keys::new(&key, rows), &mut hashes, |row| {
                    found.insert(first + row as u64);
                });
                first += rows as u64;
            }
        }
        Ok(found)
    }
}

/// Number of the first row of each row group.
fn starts(groups: &[parquet::file::metadata::RowGroupMetaData]) -> Vec<u64> {
    let starts = groups.iter().scan(0, |next, group| {
        let first = *next;
        *next += u64::try_from(group.num_rows()).unwrap_or(0);
        Some(first)
    });
    starts.collect()
}
