//! What is known of an entry, and what a function says of its own.

use std::time::Duration;

use domain::items::Column;
use serde::{Deserialize, Serialize};

pub use domain::entry::Mode;

/// How a frame came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// From the registry, as good as new.
    Hit,
    /// From the registry, expired; it is rebuilt behind.
    Stale,
    /// Computed by this process, and stored or being stored.
    Built,
    /// Computed by this process, and not stored: the registry was away, or somebody else builds it.
    Alone,
}

/// What is known of an entry.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Meta {
    /// Its name: the fingerprint of its call, and its tenant.
    pub id: String,
    /// What people call it.
    pub key: String,
    /// The function's version.
    pub version: i64,
    /// When it was committed (RFC 3339); none before that.
    #[serde(default)]
    pub created_at: Option<String>,
    /// From when on it is expired; none for never, and before it is committed.
    #[serde(default)]
    pub expires_at: Option<String>,
    /// Rows.
    pub row_count: u64,
    /// Bytes of its data; 0 before it is committed.
    #[serde(default)]
    pub byte_size: u64,
    /// The generation that is read; none before it is committed.
    #[serde(default)]
    pub generation: Option<String>,
    /// Columns, in SQL words.
    #[serde(default)]
    pub columns: Vec<Column>,
}

/// What is done when the registry does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The function runs, and its callers are served.
    #[default]
    Fallback,
    /// Callers get the error, and the source is left in peace.
    Raise,
}

/// How long a result is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ttl {
    /// As the registry says.
    #[default]
    Default,
    /// For ever.
    Never,
    /// This long.
    For(Duration),
}

/// An index that is built with the entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Index {
    /// Words of text columns, ranked by BM25.
    Text {
        /// The columns.
        columns: Vec<String>,
    },
    /// Nearest vectors.
    Vector {
        /// The column.
        column: String,
    },
}

impl Index {
    /// Full text over a column.
    #[must_use]
    pub fn bm25(column: &str) -> Self {
        Self::Text {
            columns: vec![column.to_owned()],
        }
    }

    /// Nearest vectors over a column.
    #[must_use]
    pub fn vector(column: &str) -> Self {
        Self::Vector {
            column: column.to_owned(),
        }
    }
}

/// What a function says of its entries: the attribute's words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// What people call them.
    pub key: String,
    /// Raised when the function means something else than before.
    pub version: i64,
    /// How long they are good for.
    pub ttl: Ttl,
    /// How an expired one is served; the registry's default when none.
    pub mode: Option<Mode>,
    /// Whether they are stored behind the caller's back; the client's default when none.
    pub background: Option<bool>,
    /// What is done when the registry is away; the client's default when none.
    pub on_error: Option<OnError>,
    /// Longest that one build takes; the registry's default when none.
    pub lease: Option<Duration>,
    /// Indexes that are built with them.
    pub index: Vec<Index>,
}
