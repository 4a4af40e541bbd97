//! What was found of data sets before. A statement over an entry looks whether its data is there; of a file that is still the
//! one it was, nothing but that is asked.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use object_store::ObjectMeta;
use ports::entries::Stored;

/// Data sets that are remembered: those that were found last.
const SEEN_MAX: usize = 256;

/// Data sets that were found, by what the store says of their files: another upload under the same name has another tag.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<VecDeque<(ObjectMeta, Stored)>>);

fn is_same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    one.location == other.location
        && one.size == other.size
        && one.e_tag.is_some()
        && one.e_tag == other.e_tag
}

impl Seen {
    /// What is stored in a file, if it was found before as it is.
    pub(super) fn of(&self, meta: &ObjectMeta) -> Option<Stored> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = seen.iter().find(|(known, _)| is_same(known, meta));
        found.map(|(_, stored)| stored.clone())
    }

    /// Remembers a file as the store describes it.
    pub(super) fn keep(&self, meta: ObjectMeta, stored: &Stored) {
        if meta.e_tag.is_none() {
            return;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|(known, _)| known.location != meta.location);
        seen.truncate(SEEN_MAX - 1);
        seen.push_front((meta, stored.clone()));
    }
}
