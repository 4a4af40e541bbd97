//! State: versioned items and one transaction. The whole system rests on this port (DESIGN section 4).

use async_trait::async_trait;
use bytes::Bytes;
use domain::items::{CATALOG, Pointed};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Error, Kind, Result,
    upkeep::{Sweep, Swept},
};

/// Most writes one transaction may hold.
pub const WRITES_MAX: usize = 100;

/// Where an item is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Items of one partition are read in order together.
    pub partition: String,
    /// Order within the partition, bytewise.
    pub sort: String,
}

impl Key {
    /// A key from its parts.
    pub fn new(partition: impl Into<String>, sort: impl Into<String>) -> Self {
        Self {
            partition: partition.into(),
            sort: sort.into(),
        }
    }
}

/// A stored item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Where it is.
    pub key: Key,
    /// Changes with every put of this key; opaque, never reused for one key.
    pub version: u64,
    /// What it holds: JSON, or a JSON header with bytes behind it (see [`pack`]).
    pub value: Bytes,
}

/// What must be true of an item for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Any,
    /// There is no item.
    Absent,
    /// The item has this version.
    Version(u64),
}

impl Expect {
    /// Expects what was just read: the item's version, or its absence.
    #[must_use]
    pub fn as_read(item: Option<&Item>) -> Self {
        item.map_or(Self::Absent, |item| Self::Version(item.version))
    }
}

/// One part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Stores a value.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Bytes,
        /// Under which condition.
        expect: Expect,
    },
    /// Removes an item; removing one that is absent is no conflict under [`Expect::Any`].
    Delete {
        /// Where.
        key: Key,
        /// Under which condition.
        expect: Expect,
    },
    /// Changes nothing and only holds the condition.
    Check {
        /// Where.
        key: Key,
        /// The condition.
        expect: Expect,
    },
}

impl Write {
    /// Where the write is.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } | Self::Check { key, .. } => key,
        }
    }

    /// The condition it holds.
    #[must_use]
    pub fn expect(&self) -> Expect {
        match self {
            Self::Put { expect, .. } | Self::Delete { expect, .. } | Self::Check { expect, .. } => {
                *expect
            }
        }
    }

    /// What it does to the catalogs that other readers read: none unless it writes a catalog pointer.
    ///
    /// # Errors
    /// `Invalid` for a pointer that is none.
    pub fn pointed(&self) -> Result<Option<Pointed>> {
        let key = self.key();
        let value = match self {
            _ if key.partition != CATALOG => return Ok(None),
            Self::Check { .. } => return Ok(None),
            Self::Put { value, .. } => Some(&**value),
            Self::Delete { .. } => None,
        };
        let pointed = Pointed::read(&key.sort, value).map_err(|why| {
            Error::new(Kind::Invalid, "write catalog pointer", &key.sort).because(why)
        })?;
        Ok(Some(pointed))
    }

    /// A put of a value as JSON.
    ///
    /// # Panics
    /// Never for the item types of `domain`, which always serialise.
    pub fn put(key: Key, value: &impl Serialize, expect: Expect) -> Self {
        Self::Put {
            key,
            value: encode(value),
            expect,
        }
    }
}

/// Refuses what no store may take: more than [`WRITES_MAX`] writes, or two of one key. Every adapter asks this first, so
/// that all refuse alike.
///
/// # Errors
/// `Invalid`, naming the key that is there twice or the number of writes.
pub fn validate(writes: &[Write]) -> Result<()> {
    let invalid = |subject: String| Error::new(Kind::Invalid, "write transaction", subject);
    if writes.len() > WRITES_MAX {
        let sentence = format!("it has more than {WRITES_MAX} writes");
        return Err(invalid(format!("{} writes", writes.len())).because(sentence));
    }
    let mut seen = std::collections::HashSet::with_capacity(writes.len());
    for key in writes.iter().map(Write::key) {
        if !seen.insert(key) {
            let subject = format!("{}/{}", key.partition, key.sort);
            return Err(invalid(subject).because("two writes name this key"));
        }
    }
    Ok(())
}

/// How a transaction ended. A conflict is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All writes happened; the new version of each put, in order of the writes (0 for deletes and checks).
    Committed(Vec<u64>),
    /// Nothing happened; indexes of the writes whose condition did not hold. Empty when the store only knows that
    /// another transaction was in the way.
    Conflict(Vec<usize>),
}

impl Outcome {
    /// Whether everything happened.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed(_))
    }
}

/// An ordered stretch of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The partition.
    pub partition: String,
    /// First sort key, inclusive.
    pub from: String,
    /// Sort key to stop before, exclusive; none for the end of the partition.
    pub until: Option<String>,
    /// From the end backwards.
    pub reverse: bool,
    /// Most items to return.
    pub limit: usize,
}

impl Span {
    /// Every item of a partition whose sort key starts with `prefix`, at most `limit`.
    pub fn prefix(partition: impl Into<String>, prefix: &str, limit: usize) -> Self {
        // The smallest text after everything that starts with an ASCII prefix.
        let until = (!prefix.is_empty()).then(|| format!("{prefix}\u{10FFFF}"));
        Self {
            partition: partition.into(),
            from: prefix.to_owned(),
            until,
            reverse: false,
            limit,
        }
    }

    /// The stretch after the last item of a full page, if it was full.
    #[must_use]
    pub fn after(&self, page: &[Item]) -> Option<Self> {
        let last = (page.len() >= self.limit).then(|| page.last()).flatten()?;
        let mut next = self.clone();
        if self.reverse {
            next.until = Some(last.key.sort.clone());
        } else {
            next.from = format!("{}\0", last.key.sort);
        }
        Some(next)
    }
}

/// The state store.
///
/// Contract (`testkit::contract::state`):
/// * a transaction happens whole or not at all, and is durable when it returns `Committed`;
/// * reads see every transaction committed before they began, from any process;
/// * two writes of one transaction never name the same key (`Invalid`), nor are there more than [`WRITES_MAX`];
/// * an adapter re-reads an unknown outcome and answers for what really happened, or says `Unavailable`.
#[async_trait]
pub trait State: Send + Sync + std::fmt::Debug {
    /// Reads one item.
    async fn get(&self, key: &Key) -> Result<Option<Item>> {
        Ok(self
            .get_many(std::slice::from_ref(key))
            .await?
            .pop()
            .flatten())
    }

    /// Reads items as of one moment; answers in the order asked.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>>;

    /// Reads a stretch of one partition in order; a page shorter than the limit is the last.
    async fn query(&self, span: &Span) -> Result<Vec<Item>>;

    /// Writes all or nothing.
    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome>;

    /// A number that changes when any process commits; lets a runner notice other processes cheaply. `None` when the
    /// store cannot tell.
    async fn change_counter(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Whether values may lie outside of the store, as objects that are left behind when their items are overwritten.
    fn sheds(&self) -> bool {
        false
    }

    /// Removes such objects that no item names any more and that are too old for a commit on its way.
    async fn sweep(&self, sweep: &Sweep) -> Result<Swept> {
        let _ = sweep;
        Ok(Swept::default())
    }
}

/// Reads every page of a span.
///
/// # Errors
/// What the store answers.
pub async fn query_all(state: &dyn State, span: Span) -> Result<Vec<Item>> {
    let mut all = Vec::new();
    let mut next = Some(span);
    while let Some(span) = next {
        let page = state.query(&span).await?;
        next = span.after(&page);
        all.extend(page);
    }
    Ok(all)
}

/// A value as JSON bytes.
///
/// # Panics
/// When a value cannot be JSON: a map with keys that are no text. Item types have none.
pub fn encode(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("item types serialise to JSON"))
}

impl Item {
    /// The value, read from JSON.
    ///
    /// # Errors
    /// `Corrupt` when it is not what the type says.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        decode(&self.key, &self.value)
    }

    /// A packed value: its JSON header and the bytes behind it.
    ///
    /// # Errors
    /// `Corrupt` when it is not packed, or the header is not what the type says.
    pub fn unpack<T: DeserializeOwned>(&self) -> Result<(T, Bytes)> {
        let corrupt = || {
            Error::new(
                Kind::Corrupt,
                "read item",
                format!("{}/{}", self.key.partition, self.key.sort),
            )
        };
        let length = self
            .value
            .first_chunk::<4>()
            .map(|b| u32::from_le_bytes(*b) as usize)
            .ok_or_else(corrupt)?;
        if self.value.len() < 4 + length {
            return Err(corrupt().because("its header is cut short"));
        }
        Ok((
            decode(&self.key, &self.value[4..4 + length])?,
            self.value.slice(4 + length..),
        ))
    }
}

fn decode<T: DeserializeOwned>(key: &Key, value: &[u8]) -> Result<T> {
    serde_json::from_slice(value).map_err(|e| {
        Error::new(
            Kind::Corrupt,
            "read item",
            format!("{}/{}", key.partition, key.sort),
        )
        .because(e)
    })
}

/// A JSON header with bytes behind it: four bytes of header length (little endian), the header, the bytes.
///
/// # Panics
/// When the header is over 4 GiB.
pub fn pack(header: &impl Serialize, bytes: &[u8]) -> Bytes {
    let header = encode(header);
    let mut out = Vec::with_capacity(4 + header.len() + bytes.len());
    out.extend_from_slice(
        &u32::try_from(header.len())
            .expect("headers are small")
            .to_le_bytes(),
    );
    out.extend_from_slice(&header);
    out.extend_from_slice(bytes);
    Bytes::from(out)
}
