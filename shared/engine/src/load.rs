//! Items of the state store, read together and decoded on demand.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    TableName,
    items::{self, Consumed, Control, Head, ModelState},
};
use ports::{
    Result, State,
    state::{Expect, Item, Key},
};
use serde::de::DeserializeOwned;

/// Most keys asked for at once: what one consistent read of any adapter can hold.
const KEYS_MAX: usize = 100;

/// Items as read; what is not here was absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    found: BTreeMap<Key, Item>,
}

impl Items {
    /// Reads items: as of one moment when there are at most a hundred, else hundred by hundred.
    ///
    /// # Errors
    /// What the store answers.
    pub(crate) async fn load(
        state: &dyn State,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<Self> {
        let mut items = Self::default();
        items.reload(state, keys).await?;
        Ok(items)
    }

    /// Reads items again, or more of them.
    ///
    /// # Errors
    /// What the store answers.
    pub(crate) async fn reload(
        &mut self,
        state: &dyn State,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<()> {
        let keys: Vec<Key> = keys
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        for chunk in keys.chunks(KEYS_MAX) {
            for (key, item) in chunk.iter().zip(state.get_many(chunk).await?) {
                match item {
                    Some(item) => self.found.insert(key.clone(), item),
                    None => self.found.remove(key),
                };
            }
        }
        Ok(())
    }

    /// The condition that an item is still as it was read.
    pub(crate) fn expect(&self, key: &Key) -> Expect {
        Expect::as_read(self.found.get(key))
    }

    /// A value, if the item was there.
    ///
    /// # Errors
    /// `Corrupt` when it is not what its type says.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>> {
        self.found.get(key).map(Item::decode).transpose()
    }

    /// The head of a table.
    ///
    /// # Errors
    /// As [`Items::get`].
    pub(crate) fn head(&self, table: &TableName) -> Result<Option<Head>> {
        self.get(&head(table))
    }

    /// What a model consumed of an input; nothing so far when there is no item.
    ///
    /// # Errors
    /// As [`Items::get`].
    pub(crate) fn consumed(&self, model: &TableName, input: &TableName) -> Result<Consumed> {
        Ok(self.get(&consumed(model, input))?.unwrap_or_default())
    }

    /// How a model's refreshes went.
    ///
    /// # Errors
    /// As [`Items::get`].
    pub(crate) fn state(&self, model: &TableName) -> Result<ModelState> {
        Ok(self.get(&state(model))?.unwrap_or_default())
    }

    /// What a person asked of a model.
    ///
    /// # Errors
    /// As [`Items::get`].
    pub(crate) fn control(&self, model: &TableName) -> Result<Control> {
        Ok(self.get(&control(model))?.unwrap_or_default())
    }
}

/// Key of a table's head.
pub(crate) fn head(table: &TableName) -> Key {
    Key::new(items::table(table), items::HEAD)
}

/// Key of what a model consumed of an input.
pub(crate) fn consumed(model: &TableName, input: &TableName) -> Key {
    Key::new(items::model(model), items::consumed(input))
}

/// Key of a model's state.
pub(crate) fn state(model: &TableName) -> Key {
    Key::new(items::model(model), items::STATE)
}

/// Key of what a model holds in quarantine.
pub(crate) fn quarantine(model: &TableName) -> Key {
    Key::new(items::model(model), items::QUARANTINE)
}

/// Key of what is known of a model's tombstones that are gone.
pub(crate) fn collected(model: &TableName) -> Key {
    Key::new(items::model(model), items::COLLECTED)
}

/// Key of a model's control.
pub(crate) fn control(model: &TableName) -> Key {
    Key::new(items::model(model), items::CONTROL)
}

/// Key of a table in the listing of all tables.
pub(crate) fn listing(table: &TableName) -> Key {
    Key::new(items::TABLES, table.to_string())
}

/// Key of the cycle.
pub(crate) fn cycle() -> Key {
    Key::new(items::CYCLE, items::CURRENT)
}
