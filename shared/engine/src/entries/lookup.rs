//! Looking up: one read when the payload rides inline.

use std::collections::BTreeMap;

use domain::{
    Duration, Position, TableName,
    entry::{EntryId, Freshness, Mode},
    items::Head,
};
use ports::{Error, Kind, Result, tables::Rows};

use super::{Entry, Registry, payload, stored::delete_row, stored::lease_key};
use crate::load;
use ports::state::{Expect, Write};

/// What a caller asks of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// How it is served when expired; as its builder said when none.
    pub mode: Option<Mode>,
    /// Oldest that will do, beside what its builder said.
    pub ttl: Option<Duration>,
    /// Whether it is stale when a table it was computed from has moved, whatever its builder said.
    pub on_advance: bool,
}

/// What there is.
#[derive(Clone, Debug)]
pub enum Found {
    /// As good as new.
    Hit(Box<Entry>),
    /// Expired, and good enough for who asked.
    Stale(Box<Entry>),
    /// Built for the first time, as far as its row knows.
    Building,
    /// Nothing that may be served.
    Miss,
}

impl Registry {
    /// Looks an entry up and starts nothing.
    ///
    /// # Errors
    /// What the state store answers.
    pub async fn lookup(&self, id: &EntryId, ask: Ask) -> Result<Found> {
        let Some(stored) = self.row(id).await? else {
            return Ok(Found::Miss);
        };
        let mode = ask.mode.unwrap_or(stored.row.spec.mode);
        let Some(entry) = stored.ready(id) else {
            return Ok(Found::Building);
        };
        Ok(match (self.freshness(&entry, ask).await?, mode) {
            (Freshness::Fresh, _) => Found::Hit(Box::new(entry)),
            (Freshness::Stale, Mode::Swr) => Found::Stale(Box::new(entry)),
            (Freshness::Stale, Mode::Strict) | (Freshness::Gone, _) => Found::Miss,
        })
    }

    /// How good an entry is; tables are asked only by entries that go stale with them.
    pub(super) async fn freshness(&self, entry: &Entry, ask: Ask) -> Result<Freshness> {
        let query = entry.row.spec.query.as_ref();
        let heads = match ask.on_advance || query.is_some_and(|query| query.on_advance) {
            true => Some(self.positions(entry.content.watermarks.keys()).await?),
            false => None,
        };
        let (now, stale_max) = (self.now(), self.settings.stale_max);
        let content = &entry.content;
        Ok(domain::entry::freshness(
            content,
            ask.ttl,
            heads.as_ref(),
            stale_max,
            now,
        ))
    }

    /// How far tables have come.
    pub(super) async fn positions<'a>(
        &self,
        tables: impl Iterator<Item = &'a TableName> + Clone,
    ) -> Result<BTreeMap<TableName, Position>> {
        let heads = load::Items::load(&*self.world.state, tables.clone().map(load::head)).await?;
        tables
            .map(|table| {
                let head: Option<Head> = heads.head(table)?;
                Ok((
                    table.clone(),
                    head.map(|head| head.position).unwrap_or_default(),
                ))
            })
            .collect()
    }

    /// The rows of an entry, in the order they were computed in. None when its data is gone: then it is a miss, and the row
    /// goes too (**E-2**).
    ///
    /// # Errors
    /// What the ports answer.
    pub async fn rows(&self, entry: &Entry) -> Result<Option<Rows>> {
        if let Some(payload) = &entry.payload {
            return payload::decode(&entry.id, payload).map(Some);
        }
        match self
            .world
            .entries
            .read(&entry.set(), entry.content.bytes)
            .await
        {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if error.kind == Kind::NotFound => {
                self.lost(entry).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The data of a ready entry has vanished: its row goes, unless it has moved on meanwhile.
    pub(super) async fn lost(&self, entry: &Entry) -> Result<bool, Error> {
        tracing::warn!(entry = %entry.id, generation = entry.content.generation, "the data of an entry is gone");
        let mut writes = delete_row(&entry.id, Expect::Version(entry.version)).to_vec();
        writes.push(Write::Delete {
            key: lease_key(&entry.id),
            expect: Expect::Any,
        });
        self.transact(writes).await
    }
}
