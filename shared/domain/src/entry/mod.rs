//! Materialized entries: what the registry holds of each, and what is to be done about it.
//!
//! An entry is the result of a call, kept until it expires. Its row in the registry, not its data, decides that it
//! exists. Who is to compute it holds a lease; the lease's token is also the name of the generation that is written under
//! it, so a builder that was taken over can neither commit nor get in another's way.
//!
//! ## Invariants
//! * **E-2** a ready row's data exists; what no row names is garbage
//! * **E-3** an old token commits nothing

mod decide;
mod id;
mod index;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Duration, Position, TableName, Timestamp, items::Column};

pub use decide::{Decision, Freshness, decide, freshness, is_due};
pub use id::{EntryId, IdError, TENANT_BYTES_MAX};
pub use index::{
    INDEX, INDEX_COLUMNS_MAX, INDEXES_MAX, Index, IndexDecision, IndexSpec, IndexState, Metric,
    decide_index, index_key, together,
};
pub use settings::{EntrySettings, INLINE_MAX, inline_length, rides_inline};

/// Partition that lists every entry: the sort key is its id, the value a [`Summary`].
pub const ENTRIES: &str = "entries";
/// Partition of generations that were superseded, in the order of when: they go after the grace time.
pub const SUPERSEDED: &str = "garbage#entries";
/// Partition of generations whose file could be sent to an address, in the order of until when.
pub const UPLOADS: &str = "garbage#uploads";
/// Partition and sort key of what links to data are signed with.
pub const LINKS: &str = "links";
/// Sort key of a [`Row`], with the payload behind it when it rides inline.
pub const ENTRY: &str = "entry";
/// Sort key of a [`Lease`].
pub const LEASE: &str = "lease";

/// Partition of an entry: `entry#<id>`.
#[must_use]
pub fn entry(id: &EntryId) -> String {
    format!("entry#{id}")
}

/// Partition of the lease on an entry: `lease#entry#<id>`.
#[must_use]
pub fn lease(id: &EntryId) -> String {
    format!("lease#entry#{id}")
}

/// Sort key, in an entry's partition, of a token that reads it.
#[must_use]
pub fn reader(digest: &str) -> String {
    format!("token#{digest}")
}

/// What an expired entry is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It is served while one rebuild runs.
    #[default]
    Swr,
    /// Nothing: it is a miss.
    Strict,
}

/// What a builder says of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// What people call it.
    pub key: String,
    /// The function's version.
    #[serde(default)]
    pub version: i64,
    /// How it is served once it is expired.
    #[serde(default)]
    pub mode: Mode,
    /// How long a build is good for; none for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The query that makes it, for entries that the server can make by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<QuerySpec>,
    /// Columns that a build is said to have; an upload of others is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared: Vec<Column>,
    /// What it is searched by, in this generation and those after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexSpec>,
}

impl Spec {
    /// When a build committed at `now` expires.
    #[must_use]
    pub fn expiry(&self, now: Timestamp) -> Option<Timestamp> {
        self.ttl_ms.map(|ttl| now + Duration::from_millis(ttl))
    }
}

/// `entry#<id>` / `entry`: the registry row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Tells this row from one of the same id before it was evicted: tokens name it.
    pub born: String,
    /// What its builder said of it.
    pub spec: Spec,
    /// How far it has come.
    pub status: Status,
}

/// How far an entry has come. A build that failed leaves the row it found, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Built for the first time; nobody reads it.
    Building {
        /// Since when.
        since: Timestamp,
    },
    /// Readable.
    Ready(Content),
}

/// What a ready entry holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// The generation: the token it was built under, and the name of its folder.
    pub generation: String,
    /// When it was committed.
    pub created_at: Timestamp,
    /// From when on it is expired; none for never.
    pub expires_at: Option<Timestamp>,
    /// Rows; none is a result like any other.
    pub rows: u64,
    /// Bytes of the data file.
    pub bytes: u64,
    /// Bytes of the payload as text, when it rides behind the row.
    pub inline: Option<u64>,
    /// Columns, in SQL words.
    pub columns: Vec<Column>,
    /// How far the tables had come that a query read; empty for others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub watermarks: BTreeMap<TableName, Position>,
}

/// A query that the server can run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuerySpec {
    /// The statement.
    pub sql: String,
    /// Its parameters, as they were sent: JSON scalars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// Whether it goes stale when a table it read moves on.
    #[serde(default)]
    pub on_advance: bool,
}

/// `lease#entry#<id>` / `lease`: who builds an entry, until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The fencing token. It is never given twice.
    pub token: String,
    /// Who holds it, for people.
    pub holder: String,
    /// When it was taken.
    pub since: Timestamp,
    /// From then on anybody may take over. A deadline of now is a value like any other.
    pub deadline: Timestamp,
    /// What the builder says of the entry; the row's once it is committed.
    pub spec: Spec,
    /// The build failed, and nobody holds the lease: until the deadline readers of stale data start no other build.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resting: bool,
}

impl Lease {
    /// Whether somebody builds under it at `now`.
    #[must_use]
    pub fn is_held(&self, now: Timestamp) -> bool {
        !self.resting && now < self.deadline
    }
}

impl Row {
    /// What it holds, once it is ready.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        match &self.status {
            Status::Building { .. } => None,
            Status::Ready(content) => Some(content),
        }
    }
}

/// `entries` / `<id>`: what lists show of an entry without its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What people call it.
    pub key: String,
    /// The function's version.
    pub version: i64,
    /// How an expired entry is served.
    pub mode: Mode,
    /// Whether it can be read.
    pub ready: bool,
    /// Of what can be read when it was committed, of others since when they are built.
    pub created_at: Timestamp,
    /// From when on it is expired.
    pub expires_at: Option<Timestamp>,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// The generation; none while there is none.
    pub generation: Option<String>,
    /// Whether the server can make it by itself.
    #[serde(default)]
    pub query: bool,
}

impl From<&Row> for Summary {
    fn from(row: &Row) -> Self {
        let content = row.content();
        let since = match &row.status {
            Status::Building { since } => *since,
            Status::Ready(content) => content.created_at,
        };
        Self {
            key: row.spec.key.clone(),
            version: row.spec.version,
            mode: row.spec.mode,
            ready: content.is_some(),
            created_at: since,
            expires_at: content.and_then(|content| content.expires_at),
            rows: content.map_or(0, |content| content.rows),
            bytes: content.map_or(0, |content| content.bytes),
            generation: content.map(|content| content.generation.clone()),
            query: row.spec.query.is_some(),
        }
    }
}
