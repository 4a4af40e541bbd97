//! A state store that counts.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ports::{
    Result, State,
    state::{Item, Key, Outcome, Span, Write},
};

use crate::lock::lock;

/// What a state store was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Calls that read by key, of one key or of many.
    pub gets: u64,
    /// Keys in those calls.
    pub keys: u64,
    /// Calls that read a span.
    pub queries: u64,
    /// Transactions, also those that ended as a conflict or an error.
    pub transacts: u64,
    /// Transactions that ended as a conflict.
    pub conflicts: u64,
    /// Writes in the transactions.
    pub writes: u64,
    /// Items read by either kind of call.
    pub items_read: u64,
    /// Bytes of values read.
    pub bytes_read: u64,
    /// Bytes of values put, also of transactions that did not happen.
    pub bytes_written: u64,
}

impl StateCounts {
    /// Calls of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.gets + self.queries + self.transacts
    }
}

/// A state store that counts what it is asked.
#[derive(Debug)]
pub struct CountedState {
    inner: Arc<dyn State>,
    counts: Mutex<StateCounts>,
}

impl CountedState {
    /// Counts from zero.
    #[must_use]
    pub fn new(inner: Arc<dyn State>) -> Self {
        Self {
            inner,
            counts: Mutex::default(),
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn counts(&self) -> StateCounts {
        *lock(&self.counts)
    }

    /// Counts since the last call of this.
    pub fn take(&self) -> StateCounts {
        std::mem::take(&mut lock(&self.counts))
    }

    fn read<'a>(&self, items: impl Iterator<Item = &'a Item>) {
        let mut counts = lock(&self.counts);
        for item in items {
            counts.items_read += 1;
            counts.bytes_read += item.value.len() as u64;
        }
    }
}

#[async_trait]
impl State for CountedState {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        {
            let mut counts = lock(&self.counts);
            counts.gets += 1;
            counts.keys += keys.len() as u64;
        }
        let items = self.inner.get_many(keys).await?;
        self.read(items.iter().flatten());
        Ok(items)
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        lock(&self.counts).queries += 1;
        let items = self.inner.query(span).await?;
        self.read(items.iter());
        Ok(items)
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        {
            let mut counts = lock(&self.counts);
            counts.transacts += 1;
            counts.writes += writes.len() as u64;
            for write in &writes {
                if let Write::Put { value, .. } = write {
                    counts.bytes_written += value.len() as u64;
                }
            }
        }
        let outcome = self.inner.transact(writes).await?;
        if !outcome.is_committed() {
            lock(&self.counts).conflicts += 1;
        }
        Ok(outcome)
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        self.inner.change_counter().await
    }
}

#[cfg(test)]
mod tests {
    use ports::state::Expect;

    use super::*;
    use crate::MemoryState;

    #[tokio::test]
    async fn requests_items_and_bytes_are_counted() {
        let state = CountedState::new(Arc::new(MemoryState::new()));
        let key = Key::new("p", "s");
        for _ in 0..2 {
            let write = Write::put(key.clone(), &123, Expect::Absent);
            state.transact(vec![write]).await.expect("memory answers");
        }
        state
            .get_many(&[key.clone(), Key::new("p", "t")])
            .await
            .expect("memory answers");
        state
            .query(&Span::prefix("p", "", 10))
            .await
            .expect("memory answers");
        let expected = StateCounts {
            gets: 1,
            keys: 2,
            queries: 1,
            transacts: 2,
            conflicts: 1,
            writes: 2,
            items_read: 2,
            bytes_read: 6,
            bytes_written: 6,
        };
        assert_eq!(state.take(), expected);
        assert_eq!(expected.requests(), 4);
        assert_eq!(state.counts(), StateCounts::default());
    }

    #[tokio::test]
    async fn a_counted_store_keeps_the_contract() {
        crate::contract::state(Arc::new(CountedState::new(Arc::new(MemoryState::new())))).await;
    }
}
