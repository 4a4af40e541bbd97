//! The keys of a batch: which row stays for each, and whether a table's row is one of them.

use hashbrown::{HashTable, hash_table::Entry};

use super::keys::{Digest, Keys, bucket};

/// Shards grow one at a time, so that a large first build never holds its map twice.
const SHARDS: usize = 64;
/// Bits of the prefilter per key: one in 16 rows that are no key passes it.
const FILTER_BITS_PER_KEY: usize = 16;

/// Keys seen so far.
#[derive(Debug)]
pub(crate) struct KeyMap {
    shards: Vec<HashTable<Kept>>,
    len: usize,
    /// Hashes of the keys for the prefilter; none when no table will be probed.
    hashes: Option<Vec<u64>>,
    /// `_seq` by row, in pieces of one batch: none while deliveries decide.
    sequences: Vec<Vec<i64>>,
    /// First row of each piece.
    starts: Vec<u64>,
    scratch: Vec<u64>,
}

#[derive(Debug)]
struct Kept {
    digest: Digest,
    row: u64,
}

impl KeyMap {
    /// An empty map; `probed` when a table's rows will be looked up in it.
    pub(crate) fn new(probed: bool) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            len: 0,
            hashes: probed.then(Vec::new),
            sequences: Vec::new(),
            starts: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Distinct keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes in the keys of a batch whose first row is `first`, and passes to `superseded` every row, of this batch or
    /// an earlier one, that another row of its key takes the place of, with that, and whether they are equals: the highest
    /// of `sequences` stays, the last of equals.
    pub(crate) fn merge(
        &mut self,
        keys: &Keys,
        first: u64,
        sequences: Option<Vec<i64>>,
        mut superseded: impl FnMut(u64, u64, bool),
    ) {
        let mut hashes = std::mem::take(&mut self.scratch);
        keys.hashes(&mut hashes);
        if let Some(sequences) = sequences {
            self.starts.push(first);
            self.sequences.push(sequences);
        }
        for (at, hash) in hashes.iter().enumerate() {
            let (digest, row) = (keys.digest(at), first + at as u64);
            let Some(other) = self.insert(digest, *hash, row) else {
                continue;
            };
            let order = self.sequence(row).cmp(&self.sequence(other));
            if order.is_ge() {
                superseded(other, row, order.is_eq());
            } else {
                superseded(row, other, false);
                self.keep(&digest, other);
            }
        }
        self.scratch = hashes;
    }

    /// Takes in the keys of a batch, all of whose rows stay.
    pub(crate) fn add(&mut self, keys: &Keys) {
        let mut hashes = std::mem::take(&mut self.scratch);
        keys.hashes(&mut hashes);
        for (at, hash) in hashes.iter().enumerate() {
            self.insert(keys.digest(at), *hash, 0);
        }
        self.scratch = hashes;
    }

    /// Takes in the keys of those rows of a batch that take part, one row per key: of two, `stays` says whether the new
    /// one does.
    pub(crate) fn choose(
        &mut self,
        keys: &Keys,
        first: u64,
        takes_part: impl Fn(u64) -> bool,
        mut stays: impl FnMut(u64, u64) -> bool,
    ) {
        let mut hashes = std::mem::take(&mut self.scratch);
        keys.hashes(&mut hashes);
        for (at, hash) in hashes.iter().enumerate() {
            let row = first + at as u64;
            if !takes_part(row) {
                continue;
            }
            let digest = keys.digest(at);
            if let Some(other) = self.insert(digest, *hash, row)
                && !stays(row, other)
            {
                self.keep(&digest, other);
            }
        }
        self.scratch = hashes;
    }

    /// Keeps `row` for a key; the row kept so far, if any.
    fn insert(&mut self, digest: Digest, hash: u64, row: u64) -> Option<u64> {
        let place = bucket(&digest);
        let shard = &mut self.shards[shard(place)];
        match shard.entry(
            place,
            |kept| kept.digest == digest,
            |kept| bucket(&kept.digest),
        ) {
            Entry::Occupied(mut kept) => Some(std::mem::replace(&mut kept.get_mut().row, row)),
            Entry::Vacant(free) => {
                free.insert(Kept { digest, row });
                self.len += 1;
                if let Some(hashes) = &mut self.hashes {
                    hashes.push(hash);
                }
                None
            }
        }
    }

    fn keep(&mut self, digest: &Digest, row: u64) {
        let place = bucket(digest);
        if let Some(kept) = self.shards[shard(place)].find_mut(place, |kept| kept.digest == *digest)
        {
            kept.row = row;
        }
    }

    fn sequence(&self, row: u64) -> i64 {
        let piece = self.starts.partition_point(|start| *start <= row);
        let at = piece.checked_sub(1).and_then(|piece| {
            let offset = usize::try_from(row - self.starts[piece]).ok()?;
            self.sequences[piece].get(offset)
        });
        at.copied().unwrap_or(i64::MIN)
    }

    /// Ends the taking in: the set of keys, ready to be probed.
    pub(crate) fn into_set(self) -> KeySet {
        KeySet {
            filter: Filter::new(self.hashes.as_deref().unwrap_or_default()),
            shards: self.shards,
        }
    }
}

/// The top bits: hashbrown uses the lowest for the slot and bits 57 to 63 as its tag, so shards take those between.
fn shard(place: u64) -> usize {
    (place >> 48) as usize % SHARDS
}

/// A set of keys.
#[derive(Debug)]
pub(crate) struct KeySet {
    filter: Filter,
    shards: Vec<HashTable<Kept>>,
}

impl KeySet {
    /// Passes to `hit` the number of every row of a batch whose key is in the set, and the row kept for that key.
    pub(crate) fn probe(
        &self,
        keys: &Keys,
        hashes: &mut Vec<u64>,
        mut hit: impl FnMut(usize, u64),
    ) {
        keys.hashes(hashes);
        for (row, hash) in hashes.iter().enumerate() {
            if self.filter.may_hold(*hash)
                && let Some(kept) = self.kept(&keys.digest(row))
            {
                hit(row, kept);
            }
        }
    }

    fn kept(&self, digest: &Digest) -> Option<u64> {
        let place = bucket(digest);
        self.shards[shard(place)]
            .find(place, |kept| kept.digest == *digest)
            .map(|kept| kept.row)
    }
}

/// A bitmap of hashes: small enough for the cache of a core, it turns most rows away.
#[derive(Debug)]
struct Filter {
    bits: Vec<u64>,
    shift: u32,
}

impl Filter {
    fn new(hashes: &[u64]) -> Self {
        let size = (hashes.len().max(64) * FILTER_BITS_PER_KEY).next_power_of_two();
        let mut filter = Self {
            bits: vec![0; size / 64],
            shift: 64 - size.trailing_zeros(),
        };
        for hash in hashes {
            let at = filter.bit(*hash);
            filter.bits[at / 64] |= 1 << (at % 64);
        }
        filter
    }

    fn bit(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    fn may_hold(&self, hash: u64) -> bool {
        let at = self.bit(hash);
        self.bits[at / 64] >> (at % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    fn keys(values: &[i64]) -> Keys {
        Keys::new(&[Arc::new(Int64Array::from(values.to_vec()))], values.len())
    }

    #[test]
    fn the_highest_sequence_stays_and_the_last_of_equals() {
        let mut map = KeyMap::new(false);
        let mut gone = Vec::new();
        let mut note = |row, _, equals| gone.push((row, equals));
        map.merge(&keys(&[1, 1, 2]), 0, Some(vec![5, 3, 7]), &mut note);
        map.merge(&keys(&[1, 2, 2]), 3, Some(vec![5, 6, 8]), &mut note);
        assert_eq!(gone, [(1, false), (0, true), (4, false), (2, false)]);
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn a_set_finds_its_keys_and_no_others() {
        let mut map = KeyMap::new(true);
        map.add(&keys(&(0..5_000).map(|n| n * 3).collect::<Vec<_>>()));
        let (set, mut found) = (map.into_set(), 0);
        set.probe(
            &keys(&(0..15_000).collect::<Vec<_>>()),
            &mut Vec::new(),
            |row, _| {
                assert_eq!(row % 3, 0);
                found += 1;
            },
        );
        assert_eq!(found, 5_000);
    }
}
