//! State in memory: the model that other adapters are compared with.

use std::{collections::BTreeMap, ops::Bound, sync::Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use ports::{
    Result, State,
    state::{Expect, Item, Key, Outcome, Span, Write, validate},
};

use crate::lock::lock;

/// The state store in memory; as strict as the durable ones.
#[derive(Debug, Default)]
pub struct MemoryState {
    stored: Mutex<Stored>,
}

#[derive(Debug, Default)]
struct Stored {
    items: BTreeMap<Key, (u64, Bytes)>,
    /// The last version given to any item.
    version: u64,
    /// Transactions that changed something.
    changes: u64,
}

impl MemoryState {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Every item, in order of partition and sort key: for oracles and for comparing two stores.
    #[must_use]
    pub fn items(&self) -> Vec<Item> {
        lock(&self.stored)
            .items
            .iter()
            .map(|(key, stored)| item(key, stored))
            .collect()
    }
}

impl Stored {
    fn holds(&self, key: &Key, expect: Expect) -> bool {
        let version = self.items.get(key).map(|(version, _)| *version);
        match expect {
            Expect::Any => true,
            Expect::Absent => version.is_none(),
            Expect::Version(expected) => version == Some(expected),
        }
    }

    fn apply(&mut self, write: Write) -> u64 {
        match write {
            Write::Put { key, value, .. } => {
                self.version += 1;
                self.items.insert(key, (self.version, value));
                self.version
            }
            Write::Delete { key, .. } => {
                self.items.remove(&key);
                0
            }
            Write::Check { .. } => 0,
        }
    }
}

fn item(key: &Key, (version, value): &(u64, Bytes)) -> Item {
    Item {
        key: key.clone(),
        version: *version,
        value: value.clone(),
    }
}

#[async_trait]
impl State for MemoryState {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        let stored = lock(&self.stored);
        Ok(keys
            .iter()
            .map(|key| stored.items.get(key).map(|found| item(key, found)))
            .collect())
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        if span.until.as_ref().is_some_and(|until| *until <= span.from) {
            return Ok(Vec::new());
        }
        let partition = span.partition.as_str();
        let from = Bound::Included(Key::new(partition, span.from.as_str()));
        let until = match &span.until {
            Some(until) => Bound::Excluded(Key::new(partition, until.as_str())),
            // The first key of the smallest partition name above this one.
            None => Bound::Excluded(Key::new(format!("{partition}\0"), "")),
        };
        let stored = lock(&self.stored);
        let found = stored
            .items
            .range((from, until))
            .map(|(key, found)| item(key, found));
        Ok(if span.reverse {
            found.rev().take(span.limit).collect()
        } else {
            found.take(span.limit).collect()
        })
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        validate(&writes)?;
        let mut stored = lock(&self.stored);
        let failed: Vec<usize> = (0..writes.len())
            .filter(|index| !stored.holds(writes[*index].key(), writes[*index].expect()))
            .collect();
        if !failed.is_empty() {
            return Ok(Outcome::Conflict(failed));
        }
        if writes
            .iter()
            .any(|write| !matches!(write, Write::Check { .. }))
        {
            stored.changes += 1;
        }
        Ok(Outcome::Committed(
            writes
                .into_iter()
                .map(|write| stored.apply(write))
                .collect(),
        ))
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        Ok(Some(lock(&self.stored).changes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn memory_keeps_the_contract() {
        crate::contract::state(Arc::new(MemoryState::new())).await;
    }
}
