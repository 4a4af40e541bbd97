//! What cancels out, and what is an update.
//!
//! A row is stood for by 128 bits of BLAKE3 over an encoding that two rows share only when they are the same bit for
//! bit: rows come from strangers, and a collision would hide a change. Memory is bounded: of very many rows only as many
//! are looked at in one pass as fit, each pass taking the rows whose digests are its own.

use std::collections::HashMap;

use arrow::{
    array::RecordBatch,
    error::ArrowError,
    row::{RowConverter, SortField},
};
use ports::{
    Error, Kind, Result,
    feed::{Picked, RowChange},
};
use roaring::RoaringTreemap;

use super::side::Side;
use crate::tables::{
    columns::Columns,
    keys::{Digest, Keys, bucket},
};

/// Rows of the two sides, by number.
#[derive(Debug, Default)]
struct Sides {
    removed: RoaringTreemap,
    added: RoaringTreemap,
}

/// The net change.
pub(super) async fn net(
    removed: &mut Side<'_>,
    added: &mut Side<'_>,
    key: &[usize],
) -> Result<Vec<(RowChange, Picked)>> {
    let changed = cancel(removed, added).await?;
    let updated = match key {
        [] => Sides::default(),
        key => updates(removed, added, &changed, key).await?,
    };
    let mut parts = Vec::new();
    let mut take = |change, side: &Side<'_>, rows: &RoaringTreemap| {
        parts.extend(side.pick(rows)?.into_iter().map(|part| (change, part)));
        Ok::<_, Error>(())
    };
    take(RowChange::UpdateBefore, removed, &updated.removed)?;
    take(
        RowChange::Delete,
        removed,
        &(&changed.removed - &updated.removed),
    )?;
    take(RowChange::UpdateAfter, added, &updated.added)?;
    take(RowChange::Insert, added, &(&changed.added - &updated.added))?;
    Ok(parts)
}

/// Rows that have no equal on the other side; of several equal ones as many as there are more of.
async fn cancel(removed: &mut Side<'_>, added: &mut Side<'_>) -> Result<Sides> {
    let rows = Digests::new(removed.columns())?;
    let mut left = Sides::default();
    for pass in passes(removed.len(), removed.pass_rows()) {
        let mut counts: HashMap<Digest, u64> = HashMap::new();
        let mut order: Vec<(u64, Digest)> = Vec::new();
        removed
            .each(|first, batch| {
                for (number, digest) in (first..).zip(rows.of(batch)?) {
                    if pass.takes(&digest) {
                        *counts.entry(digest).or_default() += 1;
                        order.push((number, digest));
                    }
                }
                Ok(())
            })
            .await?;
        added
            .each(|first, batch| {
                for (number, digest) in (first..).zip(rows.of(batch)?) {
                    if pass.takes(&digest) && !take_one(&mut counts, &digest) {
                        left.added.insert(number);
                    }
                }
                Ok(())
            })
            .await?;
        for (number, digest) in order {
            if take_one(&mut counts, &digest) {
                left.removed.insert(number);
            }
        }
    }
    Ok(left)
}

fn take_one(counts: &mut HashMap<Digest, u64>, digest: &Digest) -> bool {
    let count = counts.get_mut(digest).filter(|count| **count > 0);
    count.map(|count| *count -= 1).is_some()
}

/// The changed rows whose keys are on both sides.
async fn updates(
    removed: &mut Side<'_>,
    added: &mut Side<'_>,
    changed: &Sides,
    key: &[usize],
) -> Result<Sides> {
    let mut updated = Sides::default();
    if changed.removed.is_empty() || changed.added.is_empty() {
        return Ok(updated);
    }
    for pass in passes(changed.removed.len(), removed.pass_rows()) {
        // Whether a key that went has come.
        let mut keys: HashMap<Digest, bool> = HashMap::new();
        removed
            .each(|first, batch| {
                for (_, digest) in keyed(first, batch, &changed.removed, key) {
                    if pass.takes(&digest) {
                        keys.entry(digest).or_default();
                    }
                }
                Ok(())
            })
            .await?;
        added
            .each(|first, batch| {
                for (number, digest) in keyed(first, batch, &changed.added, key) {
                    if let Some(came) = keys.get_mut(&digest) {
                        *came = true;
                        updated.added.insert(number);
                    }
                }
                Ok(())
            })
            .await?;
        removed
            .each(|first, batch| {
                for (number, digest) in keyed(first, batch, &changed.removed, key) {
                    if keys.get(&digest) == Some(&true) {
                        updated.removed.insert(number);
                    }
                }
                Ok(())
            })
            .await?;
    }
    Ok(updated)
}

/// Keys of those rows of a batch that are among `rows`, with their numbers.
fn keyed(
    first: u64,
    batch: &RecordBatch,
    rows: &RoaringTreemap,
    key: &[usize],
) -> Vec<(u64, Digest)> {
    let end = first + batch.num_rows() as u64;
    if rows.range_cardinality(first..end) == 0 {
        return Vec::new();
    }
    let columns: Vec<_> = key.iter().map(|at| batch.column(*at).clone()).collect();
    let keys = Keys::new(&columns, batch.num_rows());
    let numbers = (first..end)
        .enumerate()
        .filter(|(_, number)| rows.contains(*number));
    numbers
        .map(|(at, number)| (number, keys.digest(at)))
        .collect()
}

/// One of several walks over the rows.
#[derive(Clone, Copy)]
struct Pass {
    number: u64,
    of: u64,
}

fn passes(rows: u64, most: u64) -> impl Iterator<Item = Pass> {
    let of = rows.div_ceil(most.max(1)).max(1);
    (0..of).map(move |number| Pass { number, of })
}

impl Pass {
    fn takes(self, digest: &Digest) -> bool {
        self.of == 1 || bucket(digest) % self.of == self.number
    }
}

/// Makes digests of whole rows.
struct Digests(RowConverter);

impl Digests {
    fn new(columns: &Columns) -> Result<Self> {
        let fields = columns.read.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        RowConverter::new(fields.collect())
            .map(Self)
            .map_err(failed)
    }

    fn of(&self, batch: &RecordBatch) -> Result<Vec<Digest>> {
        let rows = self.0.convert_columns(batch.columns()).map_err(failed)?;
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, b| word << 8 | u64::from(*b));
        let digest = |row: &[u8]| {
            let bytes = *blake3::hash(row).as_bytes();
            [word(&bytes[..8]), word(&bytes[8..16])]
        };
        Ok(rows.iter().map(|row| digest(row.as_ref())).collect())
    }
}

fn failed(error: ArrowError) -> Error {
    Error::new(Kind::Corrupt, "compare", "rows").because(error)
}
