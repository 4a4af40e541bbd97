//! The catalog pointer of a table: the item that says which metadata file is the table.

use std::sync::Arc;

use domain::{
    TableName,
    items::{CATALOG, Snapshot},
};
use ports::{
    Error, Kind, Result, State,
    state::{Expect, Item, Key, Write},
};
use serde::{Deserialize, Serialize};

use super::names::Root;

/// The value, in the words of PyIceberg's catalogs.
#[derive(Debug, Serialize, Deserialize)]
struct Locations {
    metadata_location: String,
    #[serde(default)]
    previous_metadata_location: Option<String>,
}

/// A pointer as read.
#[derive(Debug)]
pub(crate) struct Pointer {
    expect: Expect,
    location: Option<String>,
    metadata: Option<String>,
}

impl Pointer {
    /// Reads the pointer of a table.
    pub(crate) async fn read(
        state: &Arc<dyn State>,
        root: &Root,
        table: &TableName,
    ) -> Result<Self> {
        let item = state.get(&key(table)).await?;
        Self::of(root, item.as_ref())
    }

    /// The pointer of an item that was read; there is none before the table's first commit.
    pub(crate) fn of(root: &Root, item: Option<&Item>) -> Result<Self> {
        let location = match item {
            Some(item) => Some(item.decode::<Locations>()?.metadata_location),
            None => None,
        };
        let metadata = location
            .as_deref()
            .map(|location| root.path(location))
            .transpose()?;
        Ok(Self {
            expect: Expect::as_read(item),
            location,
            metadata,
        })
    }

    /// The metadata file it is at.
    pub(crate) fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref()
    }

    /// `Conflict` unless the pointer is at the base.
    pub(crate) fn expect(&self, table: &TableName, base: Option<&Snapshot>) -> Result<()> {
        let base = base.map(|snapshot| snapshot.metadata.as_str());
        if self.metadata.as_deref() == base {
            return Ok(());
        }
        let at = self.metadata.as_deref().unwrap_or("no metadata");
        let base = base.unwrap_or("no metadata");
        Err(
            Error::new(Kind::Conflict, "stage rows of", table).because(format!(
                "the table is at {at}, the change is based on {base}"
            )),
        )
    }

    /// The write that moves it on from what was read.
    pub(crate) fn moved(&self, root: &Root, table: &TableName, metadata: &str) -> Write {
        let locations = Locations {
            metadata_location: root.location(metadata),
            previous_metadata_location: self.location.clone(),
        };
        Write::put(key(table), &locations, self.expect)
    }
}

fn key(table: &TableName) -> Key {
    Key::new(CATALOG, table.to_string())
}
