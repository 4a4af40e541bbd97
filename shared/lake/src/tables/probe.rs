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
    rank::{Order, Rank},
    read::{Footers, Readable, failed},
    table::{Data, Table},
};

/// Rows decoded at a time: a row group.
const BATCH_ROWS: usize = 128 << 10;
/// Row groups one task reads.
const UNIT_GROUPS: usize = 4;
/// Tasks at a time: enough to hide an object store's latency, few enough to bound memory.
const PARALLEL: usize = 4;

/// Keys to look for.
#[derive(Clone, Debug)]
pub(crate) struct Sought {
    /// The keys.
    pub set: Arc<KeySet>,
    /// The same as ranges.
    pub ranges: Arc<Ranges>,
}

/// What to look for in one table.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The keys.
    pub sought: Sought,
    /// Key columns: the name the table's files have it under, none where old rows are NULL; and its type.
    pub columns: Vec<Column>,
    /// The column that orders rows of one key; none when every match goes.
    pub order: Option<(Order, Column)>,
}

/// The name the table's files have a column under, none where old rows are NULL; and its type.
pub(crate) type Column = (Option<String>, DataType);

/// What was found in one file, of rows that have one of the keys and are not deleted yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Their numbers.
    pub rows: RoaringTreemap,
    /// The same with what orders them; empty when nothing does.
    pub hits: Vec<Hit>,
}

/// A row of a table that has one of the keys.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    /// Its number in the file.
    pub row: u64,
    /// The row of the change that has the same key.
    pub event: u64,
    /// Its sequence.
    pub rank: Option<Rank>,
}

/// What is found, by position of the file in the table.
pub(crate) async fn probe(
    objects: &Objects,
    footers: &Footers,
    table: &Table,
    wanted: &Arc<Wanted>,
) -> Result<BTreeMap<usize, Found>> {
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
    let mut found = BTreeMap::<usize, Found>::new();
    let mut tasks = tasks.buffer_unordered(PARALLEL);
    while let Some((at, more)) = tasks.try_next().await? {
        let of_file = found.entry(at).or_default();
        of_file.rows |= more.rows;
        of_file.hits.extend(more.hits);
    }
    for (at, of_file) in &mut found {
        if let Some(deleted) = &table.files[*at].part.deleted {
            of_file.rows -= deleted.as_ref();
            of_file.hits.retain(|hit| !deleted.contains(hit.row));
        }
    }
    found.retain(|_, of_file| !of_file.rows.is_empty());
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
                self.sought.ranges.may_hold(at, known)
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
                *keep &= self.sought.ranges.may_hold(
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

    /// Rows of some row groups that have one of the keys.
    async fn find(&self, file: &Readable, groups: Vec<usize>) -> Result<Found> {
        let footer = file.footer();
        let order = self.order.as_ref().map(|(_, column)| column);
        let columns: Vec<&Column> = self.columns.iter().chain(order).collect();
        let places: Vec<Option<usize>> = columns
            .iter()
            .map(|(name, _)| columns::position(footer.schema(), name.as_ref()?))
            .collect();
        let mut roots: Vec<usize> = places.iter().copied().flatten().collect();
        roots.sort_unstable();
        roots.dedup();
        let starts = file.starts();
        let part = file.part();
        let mut found = Found::default();
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
                let column = |(place, (_, kind)): (&Option<usize>, &&Column)| match place {
                    Some(place) => batch
                        .column(roots.partition_point(|root| root < place))
                        .clone(),
                    None => new_null_array(kind, rows),
                };
                let read: Vec<ArrayRef> = places.iter().zip(&columns).map(column).collect();
                let (key, sequence) = read.split_at(self.columns.len());
                let mut matches = Vec::new();
                self.sought
                    .set
                    .probe(&Keys::new(key, rows), &mut hashes, |row, event| {
                        found.rows.insert(first + row as u64);
                        if self.order.is_some() {
                            matches.push((row, event));
                        }
                    });
                for ((order, _), sequence) in self.order.iter().zip(sequence) {
                    for (row, event) in &matches {
                        found.hits.push(Hit {
                            row: first + *row as u64,
                            event: *event,
                            rank: order.read(sequence, *row),
                        });
                    }
                }
                first += rows as u64;
            }
        }
        Ok(found)
    }
}
