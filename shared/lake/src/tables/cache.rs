//! What a process remembers: tables by snapshot, footers by file. Both are immutable once written.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Keeps the values used last.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    kept: Mutex<Kept<K, V>>,
    most: usize,
}

#[derive(Debug)]
struct Kept<K, V> {
    values: HashMap<K, (u64, V)>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    /// Keeps at most `most` values.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            kept: Mutex::new(Kept {
                values: HashMap::new(),
                uses: 0,
            }),
            most,
        }
    }

    /// The value of a key, if kept.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        let (used, value) = kept.values.get_mut(key)?;
        *used = now;
        Some(value.clone())
    }

    /// Keeps a value; the one unused for longest makes room.
    pub(crate) fn put(&self, key: K, value: V) {
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        kept.values.insert(key, (now, value));
        if kept.values.len() > self.most {
            let oldest = kept.values.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                kept.values.remove(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept<K, V>> {
        // Nothing panics while holding it; a poisoned cache would still be whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_unused_for_longest_goes() {
        let cache = Cache::new(2);
        cache.put(1, 'a');
        cache.put(2, 'b');
        assert_eq!(cache.get(&1), Some('a'));
        cache.put(3, 'c');
        assert_eq!(
            (cache.get(&1), cache.get(&2), cache.get(&3)),
            (Some('a'), None, Some('c'))
        );
    }
}
