//! Rows and leases in the state store.

use bytes::Bytes;
use domain::entry::{self, Content, ENTRIES, ENTRY, EntryId, LEASE, Lease, Row, Summary};
use ports::{
    Result,
    state::{Expect, Item, Key, Write, pack},
};
use serde::{Deserialize, Serialize};

use super::{Entry, Registry};

/// Key of a row.
pub(super) fn row_key(id: &EntryId) -> Key {
    Key::new(entry::entry(id), ENTRY)
}

/// Key of a lease.
pub(super) fn lease_key(id: &EntryId) -> Key {
    Key::new(entry::lease(id), LEASE)
}

/// Key of an entry in the listing of all.
pub(super) fn listing(id: &EntryId) -> Key {
    Key::new(ENTRIES, id.to_string())
}

/// A row as it was read.
#[derive(Clone, Debug)]
pub(super) struct StoredRow {
    pub(super) row: Row,
    pub(super) payload: Bytes,
    pub(super) version: u64,
}

impl StoredRow {
    pub(super) fn read(item: &Item) -> Result<Self> {
        let (row, payload) = item.unpack()?;
        Ok(Self {
            row,
            payload,
            version: item.version,
        })
    }

    /// The entry, once it is ready.
    pub(super) fn ready(self, id: &EntryId) -> Option<Entry> {
        let content = self.row.content()?.clone();
        Some(Entry {
            id: id.clone(),
            payload: content.inline.is_some().then_some(self.payload),
            row: self.row,
            content,
            version: self.version,
        })
    }
}

/// A row and the lease on it, as of one moment.
#[derive(Clone, Debug)]
pub(super) struct Both {
    pub(super) row: Option<StoredRow>,
    pub(super) lease: Option<(Lease, u64)>,
}

impl Both {
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref().map(|(lease, _)| lease)
    }

    pub(super) fn row(&self) -> Option<&Row> {
        self.row.as_ref().map(|stored| &stored.row)
    }

    pub(super) fn content(&self) -> Option<&Content> {
        self.row().and_then(Row::content)
    }

    /// The row is as it was read.
    pub(super) fn expect_row(&self) -> Expect {
        expect(self.row.as_ref().map(|stored| stored.version))
    }

    /// The lease is as it was read.
    pub(super) fn expect_lease(&self) -> Expect {
        expect(self.lease.as_ref().map(|(_, version)| *version))
    }

    /// Takes the entry out, if it is ready.
    pub(super) fn ready(self, id: &EntryId) -> Option<Entry> {
        self.row.and_then(|stored| stored.ready(id))
    }
}

fn expect(version: Option<u64>) -> Expect {
    version.map_or(Expect::Absent, Expect::Version)
}

/// A generation that was superseded, or may have been sent and not committed: an item of a list that the sweep works off.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Superseded {
    pub(super) id: EntryId,
    pub(super) generation: String,
}

/// Writes of a row and of what lists show of it.
pub(super) fn put_row(id: &EntryId, row: &Row, payload: &[u8], expect: Expect) -> [Write; 2] {
    let value = pack(row, payload);
    [
        Write::Put {
            key: row_key(id),
            value,
            expect,
        },
        Write::put(listing(id), &Summary::from(row), Expect::Any),
    ]
}

/// Writes that remove a row and what lists show of it.
pub(super) fn delete_row(id: &EntryId, expect: Expect) -> [Write; 2] {
    let (row, listing) = (row_key(id), listing(id));
    [
        Write::Delete { key: row, expect },
        Write::Delete {
            key: listing,
            expect: Expect::Any,
        },
    ]
}

impl Registry {
    /// A row: one read.
    pub(super) async fn row(&self, id: &EntryId) -> Result<Option<StoredRow>> {
        let item = self.world.state.get(&row_key(id)).await?;
        item.as_ref().map(StoredRow::read).transpose()
    }

    /// A row and its lease: one read of both.
    pub(super) async fn both(&self, id: &EntryId) -> Result<Both> {
        let keys = [row_key(id), lease_key(id)];
        let mut items = self.world.state.get_many(&keys).await?.into_iter();
        let (row, lease) = (items.next().flatten(), items.next().flatten());
        let lease = lease.map(|item| Ok::<_, ports::Error>((item.decode()?, item.version)));
        Ok(Both {
            row: row.as_ref().map(StoredRow::read).transpose()?,
            lease: lease.transpose()?,
        })
    }

    /// Whether all of it happened.
    pub(super) async fn transact(&self, writes: Vec<Write>) -> Result<bool> {
        Ok(self.world.state.transact(writes).await?.is_committed())
    }
}
