//! Building under a lease: upload, commit, abort.

use arrow::datatypes::Schema;
use bytes::Bytes;
use domain::{
    Duration, Position, TableName,
    entry::{
        Content, EntryId, Lease, Row, SUPERSEDED, Spec, Status, inline_length, rides_inline,
        together,
    },
    items::{self, Column},
};
use ports::{
    Error, Kind, Result,
    entries::{DataSet, Stored, Upload},
    state::{Expect, Key, Write},
    tables::Rows,
};
use std::collections::BTreeMap;

use super::{
    ATTEMPTS, Entry, Refused, Registry, contended, payload, shown,
    stored::{Both, Superseded, delete_row, lease_key, put_row, row_key},
};

/// After a build of a stale entry that failed, its readers start no other for this long.
const REST: Duration = Duration::from_secs(5);
/// A file larger than this has no payload that rides inline: parquet does not grow that much.
const SMALL_FILE: u64 = 4 << 20;
/// What the names of the keys and attributes of an item take, about.
const KEYS: u64 = 400;

/// What a commit says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Longest payload that rides inline, if it is to be shorter than the setting.
    pub inline_max: Option<u64>,
}

/// A build that is complete and not committed.
pub(super) struct Built {
    pub(super) stored: Stored,
    pub(super) payload: Option<Bytes>,
    pub(super) watermarks: BTreeMap<TableName, Position>,
}

impl Registry {
    /// Takes the data of a build. What is no data for the entry ends the build.
    ///
    /// # Errors
    /// [`Refused::Fenced`] for a token that is not that of the lease, [`Refused::Unfit`] for what is no parquet file, is cut
    /// short, or has other columns than were declared.
    pub async fn upload(
        &self,
        id: &EntryId,
        token: &str,
        upload: Upload,
    ) -> Result<Stored, Refused> {
        let (lease, set) = self.leased(id, token).await?;
        let limit = self.settings.upload_max;
        let stored = match self.world.entries.receive(&set, upload, limit).await {
            Ok(stored) => stored,
            Err(error) if error.kind == Kind::TooLarge => {
                self.abort(id, token).await?;
                return Err(error.into());
            }
            // The store does not answer: the same upload may do better.
            Err(error) if error.kind == Kind::Unavailable => return Err(error.into()),
            Err(error) => return Err(self.unfit(id, token, error.chain()).await?),
        };
        match undeclared(&lease, &stored) {
            Some(why) => Err(self.unfit(id, token, why).await?),
            None => Ok(stored),
        }
    }

    /// Takes the data of a build from rows of this process.
    ///
    /// # Errors
    /// As [`Registry::upload`].
    pub async fn store(&self, id: &EntryId, token: &str, rows: Rows) -> Result<Stored, Refused> {
        let (_, set) = self.leased(id, token).await?;
        Ok(self.world.entries.write(&set, rows).await?)
    }

    async fn unfit(&self, id: &EntryId, token: &str, why: String) -> Result<Refused, Refused> {
        self.abort(id, token).await?;
        Ok(Refused::Unfit(id.clone(), why))
    }

    pub(super) async fn leased(
        &self,
        id: &EntryId,
        token: &str,
    ) -> Result<(Lease, DataSet), Refused> {
        let lease = self.both(id).await?.lease.map(|(lease, _)| lease);
        let lease = lease
            .filter(|lease| is_of(lease, token))
            .ok_or_else(|| Refused::Fenced(id.clone()))?;
        Ok((lease, set(id, token)))
    }

    /// Makes what was uploaded the entry. Committing twice is committing once.
    ///
    /// # Errors
    /// [`Refused::Fenced`] for a token that is not that of the lease (**E-3**), [`Refused::NothingUploaded`] without data,
    /// [`Refused::Unfit`] as for an upload: what was sent to an address is looked at here for the first time.
    pub async fn commit(
        &self,
        id: &EntryId,
        token: &str,
        commit: Commit,
    ) -> Result<Entry, Refused> {
        let both = self.both(id).await?;
        if both
            .content()
            .is_some_and(|content| content.generation == token)
            && let Some(entry) = both.clone().ready(id)
        {
            return Ok(entry);
        }
        let Some(lease) = both.lease().filter(|lease| is_of(lease, token)) else {
            return Err(Refused::Fenced(id.clone()));
        };
        let set = set(id, token);
        let stored = match self.world.entries.check(&set).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Err(Refused::NothingUploaded(id.clone())),
            // It was sent past us.
            Err(error) if error.kind == Kind::Invalid => {
                return Err(self.unfit(id, token, error.chain()).await?);
            }
            Err(error) => return Err(error.into()),
        };
        if stored.bytes > self.settings.upload_max {
            return Err(self.too_large(id, token).await?);
        }
        if let Some(why) = undeclared(lease, &stored) {
            return Err(self.unfit(id, token, why).await?);
        }
        let payload = match stored.bytes <= SMALL_FILE {
            true => match self.small(&set, stored.bytes).await {
                Ok(payload) => payload,
                Err(error) if error.kind == Kind::Corrupt => {
                    return Err(self.unfit(id, token, error.chain()).await?);
                }
                Err(error) => return Err(error.into()),
            },
            false => None,
        };
        let built = Built {
            stored,
            payload,
            watermarks: BTreeMap::new(),
        };
        self.finish(id, token, built, commit).await
    }

    async fn small(&self, set: &DataSet, bytes: u64) -> Result<Option<Bytes>> {
        payload::of(self.world.entries.read(set, bytes).await?).await
    }

    /// The transaction that makes a build the entry: row, lease and list of the superseded at once.
    pub(super) async fn finish(
        &self,
        id: &EntryId,
        token: &str,
        built: Built,
        commit: Commit,
    ) -> Result<Entry, Refused> {
        for _ in 0..ATTEMPTS {
            let both = self.both(id).await?;
            let Some((lease, _)) = both.lease.as_ref().filter(|(lease, _)| is_of(lease, token))
            else {
                return Err(Refused::Fenced(id.clone()));
            };
            let Some(before) = both.row() else {
                return Err(Refused::Fenced(id.clone()));
            };
            let (row, payload) = self.ready_row(before, lease, &built, commit);
            let mut writes = put_row(id, &row, &payload, both.expect_row()).to_vec();
            writes.push(Write::Delete {
                key: lease_key(id),
                expect: both.expect_lease(),
            });
            writes.extend(self.superseding(id, &both));
            if self.transact(writes).await? {
                let entry = self.committed(id, token).await?;
                self.keep_indexed(&entry).await;
                return Ok(entry);
            }
        }
        Err(contended("commit entry", id).into())
    }

    async fn committed(&self, id: &EntryId, token: &str) -> Result<Entry, Refused> {
        let entry = self.row(id).await?.and_then(|stored| stored.ready(id));
        // Evicted or rebuilt in the blink of an eye: this build was the entry, and is no more.
        entry
            .filter(|entry| entry.content.generation == token)
            .ok_or_else(|| Refused::Missing(id.clone()))
    }

    fn ready_row(
        &self,
        before: &Row,
        lease: &Lease,
        built: &Built,
        commit: Commit,
    ) -> (Row, Bytes) {
        let now = self.now();
        let mut content = Content {
            generation: lease.token.clone(),
            created_at: now,
            expires_at: lease.spec.expiry(now),
            rows: built.stored.rows,
            bytes: built.stored.bytes,
            inline: None,
            columns: shown::columns(&built.stored.schema),
            watermarks: built.watermarks.clone(),
        };
        let row = |content: &Content| Row {
            born: before.born.clone(),
            spec: Spec {
                // What somebody had indexed stays so, whoever rebuilds.
                indexes: together(&before.spec.indexes, &lease.spec.indexes),
                ..lease.spec.clone()
            },
            status: Status::Ready(content.clone()),
        };
        let max = commit
            .inline_max
            .unwrap_or(u64::MAX)
            .min(self.settings.inline_max);
        let payload = built.payload.clone().filter(|payload| {
            let header = ports::state::encode(&row(&content)).len() as u64;
            rides_inline(payload.len() as u64, header, KEYS, max)
        });
        content.inline = payload
            .as_ref()
            .map(|payload| inline_length(payload.len() as u64));
        (row(&content), payload.unwrap_or_default())
    }

    /// Remembers the generation that goes, for those who still read it and for the sweep.
    pub(super) fn superseding(&self, id: &EntryId, both: &Both) -> Option<Write> {
        Some(self.leaving(id, &both.content()?.generation))
    }

    /// Puts a generation that no row will name again on the list of those that go after their grace.
    pub(super) fn leaving(&self, id: &EntryId, generation: &str) -> Write {
        let key = Key::new(SUPERSEDED, items::moment(self.now(), generation));
        let superseded = Superseded {
            id: id.clone(),
            generation: generation.to_owned(),
        };
        Write::put(key, &superseded, Expect::Any)
    }

    /// Gives a lease back: a first build leaves no row, a rebuild leaves the entry as it is. What was uploaded goes.
    ///
    /// # Errors
    /// [`Refused::Fenced`] for a token that is not that of the lease.
    pub async fn abort(&self, id: &EntryId, token: &str) -> Result<(), Refused> {
        for _ in 0..ATTEMPTS {
            let both = self.both(id).await?;
            let Some(lease) = both.lease().filter(|lease| is_of(lease, token)) else {
                return Err(Refused::Fenced(id.clone()));
            };
            let writes = match both.content() {
                Some(_) => {
                    let resting = Lease {
                        deadline: self.now() + REST,
                        resting: true,
                        ..lease.clone()
                    };
                    let row = Write::Check {
                        key: row_key(id),
                        expect: both.expect_row(),
                    };
                    vec![
                        Write::put(lease_key(id), &resting, both.expect_lease()),
                        row,
                    ]
                }
                None => {
                    let mut writes = delete_row(id, both.expect_row()).to_vec();
                    writes.push(Write::Delete {
                        key: lease_key(id),
                        expect: both.expect_lease(),
                    });
                    writes
                }
            };
            if self.transact(writes).await? {
                // Nothing names it; what cannot be removed now is found by the next reconcile.
                if let Err(error) = self.world.entries.delete(&set(id, token)).await {
                    tracing::warn!(entry = %id, error = error.chain(), "an aborted build is left to reconcile");
                }
                return Ok(());
            }
        }
        Err(contended("abort build of", id).into())
    }
}

pub(super) fn is_of(lease: &Lease, token: &str) -> bool {
    !lease.resting && lease.token == token
}

pub(super) fn set(id: &EntryId, token: &str) -> DataSet {
    DataSet {
        id: id.clone(),
        generation: token.to_owned(),
    }
}

/// What an upload has instead of the columns that were declared.
fn undeclared(lease: &Lease, stored: &Stored) -> Option<String> {
    let (columns, declared) = (shown::columns(&stored.schema), &lease.spec.declared);
    (!declared.is_empty() && *declared != columns).then(|| {
        format!(
            "it has the columns {}, declared were {}",
            spelled(&columns),
            spelled(declared)
        )
    })
}

fn spelled(columns: &[Column]) -> String {
    let each = columns
        .iter()
        .map(|column| format!("{} {}", column.name, column.kind));
    each.collect::<Vec<_>>().join(", ")
}

/// Refuses columns of one name.
pub(super) fn distinct(schema: &Schema) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    match schema
        .fields()
        .iter()
        .find(|field| !seen.insert(field.name()))
    {
        Some(field) => Err(format!(
            "it has two columns `{}`: give one of them another name",
            field.name()
        )),
        None => Ok(()),
    }
}

/// An error of a port as the reason of a refusal.
pub(super) fn unavailable(
    what: &'static str,
    subject: &EntryId,
    why: impl std::fmt::Display,
) -> Error {
    Error::new(Kind::Unavailable, what, subject).because(why.to_string())
}
