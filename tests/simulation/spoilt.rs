//! Deliberately broken registries: the state store with one promise to entries taken away.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use domain::{
    Timestamp,
    entry::{ENTRY, INDEX, LEASE, Lease, Row},
};
use ports::{
    Entries, Result, State,
    entries::DataSet,
    state::{Expect, Item, Key, Outcome, Span, Write},
};

use crate::{broken::Broken, scheduler::Scheduler};

/// When a lease ends that never does.
const NEVER: Timestamp = Timestamp(4_000_000_000_000_000);

/// A state store that entries cannot rely on.
#[derive(Debug)]
pub(crate) struct Spoilt {
    pub(crate) inner: Arc<dyn State>,
    pub(crate) entries: Arc<dyn Entries>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) broken: Broken,
    /// Items as they were read before.
    pub(crate) seen: Mutex<HashMap<Key, Option<Item>>>,
}

impl Spoilt {
    /// What is answered instead of an item.
    fn read(&self, key: &Key, item: Option<Item>) -> Option<Item> {
        match self.broken {
            Broken::ImmortalLease if key.sort == LEASE => item.map(immortal),
            Broken::StaleReads if key.sort == ENTRY => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let before = seen.insert(key.clone(), item.clone());
                match before {
                    Some(before) if self.scheduler.chance(0.3) => before,
                    _ => item,
                }
            }
            _ => item,
        }
    }

    /// Removes the data of entries before the rows that name it.
    async fn data_first(&self, writes: &[Write]) -> Result<()> {
        for write in writes {
            let Write::Delete { key, .. } = write else {
                continue;
            };
            let id = key.partition.strip_prefix("entry#");
            let Some(id) = id.filter(|_| key.sort == ENTRY) else {
                continue;
            };
            let Some(item) = self.inner.get(key).await? else {
                continue;
            };
            let (row, _) = item.unpack::<Row>()?;
            if let (Some(content), Ok(id)) = (row.content(), id.parse()) {
                let generation = content.generation.clone();
                self.entries.delete(&DataSet { id, generation }).await?;
            }
        }
        Ok(())
    }
}

fn immortal(item: Item) -> Item {
    let Ok(mut lease) = item.decode::<Lease>() else {
        return item;
    };
    lease.deadline = NEVER;
    let value = serde_json::to_vec(&lease).unwrap_or_default().into();
    Item { value, ..item }
}

/// An index that is published whatever has happened meanwhile.
fn careless(writes: Vec<Write>) -> Vec<Write> {
    let is_index = |write: &Write| write.key().sort.starts_with(INDEX);
    if !writes.iter().any(is_index) {
        return writes;
    }
    let kept = writes.into_iter().filter(is_index);
    kept.map(|write| match write {
        Write::Put { key, value, .. } => Write::Put {
            key,
            value,
            expect: Expect::Any,
        },
        Write::Delete { .. } | Write::Check { .. } => write,
    })
    .collect()
}

#[async_trait]
impl State for Spoilt {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        let items = self.inner.get_many(keys).await?;
        let each = keys.iter().zip(items);
        Ok(each.map(|(key, item)| self.read(key, item)).collect())
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        self.inner.query(span).await
    }

    async fn transact(&self, mut writes: Vec<Write>) -> Result<Outcome> {
        match self.broken {
            Broken::CarelessIndex => writes = careless(writes),
            Broken::DataFirst => self.data_first(&writes).await?,
            _ => {}
        }
        self.inner.transact(writes).await
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        self.inner.change_counter().await
    }
}
