//! Pieces of objects in memory, the least recently used of which go first.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use object_store::path::Path;

/// Bytes of an object.
pub(crate) type Piece = Arc<[u8]>;

/// Which object, from where, how long.
type Key = (u64, u64, u64);

/// Objects whose numbers are remembered though nothing of them is held.
const OBJECTS_MAX: usize = 4_096;

/// The cache of a process.
#[derive(Debug)]
pub(crate) struct Cache {
    max: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    ticks: u64,
    pieces: HashMap<Key, (Piece, u64)>,
    by_age: BTreeMap<u64, Key>,
    /// Numbers of objects. Their names are never given twice, so neither are these.
    objects: HashMap<Path, u64>,
    next: u64,
}

impl Cache {
    /// A cache of at most so many bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            held: Mutex::default(),
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of an object.
    pub(crate) fn object(&self, path: &Path) -> u64 {
        let mut held = self.held();
        if let Some(number) = held.objects.get(path) {
            return *number;
        }
        if held.objects.len() >= OBJECTS_MAX {
            // Generations come and go for as long as the process lives.
            let used: HashSet<u64> = held.pieces.keys().map(|(object, _, _)| *object).collect();
            held.objects.retain(|_, number| used.contains(number));
        }
        let number = held.next;
        held.next += 1;
        held.objects.insert(path.clone(), number);
        number
    }

    pub(crate) fn get(&self, key: Key) -> Option<Piece> {
        let mut held = self.held();
        held.ticks += 1;
        let now = held.ticks;
        let (piece, last) = held.pieces.get_mut(&key)?;
        let (piece, before) = (piece.clone(), std::mem::replace(last, now));
        held.by_age.remove(&before);
        held.by_age.insert(now, key);
        Some(piece)
    }

    pub(crate) fn put(&self, key: Key, piece: &Piece) {
        if piece.len() > self.max {
            return;
        }
        let mut held = self.held();
        held.ticks += 1;
        let now = held.ticks;
        if let Some((old, last)) = held.pieces.insert(key, (piece.clone(), now)) {
            held.bytes -= old.len();
            held.by_age.remove(&last);
        }
        held.bytes += piece.len();
        held.by_age.insert(now, key);
        while held.bytes > self.max {
            let Some((_, oldest)) = held.by_age.pop_first() else {
                return;
            };
            if let Some((gone, _)) = held.pieces.remove(&oldest) {
                held.bytes -= gone.len();
            }
        }
    }

    pub(crate) fn clear(&self) {
        let mut held = self.held();
        held.pieces.clear();
        held.by_age.clear();
        held.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first_and_the_bytes_stay_bounded() {
        let cache = Cache::new(10);
        let piece = |length: usize| Piece::from(vec![0_u8; length]);
        cache.put((0, 0, 4), &piece(4));
        cache.put((0, 4, 4), &piece(4));
        assert!(cache.get((0, 0, 4)).is_some());
        cache.put((0, 8, 4), &piece(4));
        assert!(cache.get((0, 4, 4)).is_none());
        assert!(cache.get((0, 0, 4)).is_some());
        cache.put((1, 0, 99), &piece(99));
        assert!(cache.get((1, 0, 99)).is_none());
        assert!(cache.held().bytes <= 10);
        let (a, b) = (Path::from("a"), Path::from("b"));
        assert_ne!(cache.object(&a), cache.object(&b));
        assert_eq!(cache.object(&a), cache.object(&a));
    }

    #[test]
    fn objects_of_which_nothing_is_held_are_forgotten_and_no_number_is_given_twice() {
        let cache = Cache::new(10);
        let kept = cache.object(&Path::from("kept"));
        cache.put((kept, 0, 4), &Piece::from(vec![0_u8; 4]));
        let mut last = kept;
        for at in 0..3 * OBJECTS_MAX {
            let number = cache.object(&Path::from(format!("gone/{at}")));
            assert!(number > last);
            last = number;
        }
        assert!(cache.held().objects.len() <= OBJECTS_MAX);
        assert_eq!(cache.object(&Path::from("kept")), kept);
    }
}
