//! The change feed: between two moments of a table, every row that went and every row that came.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use domain::items::Snapshot;
use roaring::RoaringTreemap;

use crate::tables::{Part, Pin};

/// Where a feed begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// Before the first row: every row is an insert.
    Beginning,
    /// After a sequence of a landing table.
    Sequence(u64),
    /// At a snapshot of a model table.
    Snapshot(Snapshot),
}

/// Two moments of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct Between {
    /// The earlier one.
    pub since: Since,
    /// The later one, and the table.
    pub to: Pin,
    /// Columns that tell rows apart, so that a row that went and one that came are an update. Empty: nothing does, and
    /// there are only deletes and inserts.
    pub key: Vec<String>,
}

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowChange {
    /// It went, and one of its key came: this is what it was.
    UpdateBefore,
    /// It went.
    Delete,
    /// It came, and one of its key went: this is what it is.
    UpdateAfter,
    /// It came.
    Insert,
}

impl RowChange {
    /// All of them, what goes first.
    pub const ALL: [Self; 4] = [
        Self::UpdateBefore,
        Self::Delete,
        Self::UpdateAfter,
        Self::Insert,
    ];

    /// Its value in the column [`domain::CHANGE`].
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::UpdateBefore => "update_before",
            Self::Delete => "delete",
            Self::UpdateAfter => "update_after",
            Self::Insert => "insert",
        }
    }
}

/// Some rows of a part.
#[derive(Clone, Debug)]
pub struct Picked {
    /// The part.
    pub part: Part,
    /// Rows of a file, by number from 0; all that are not deleted when there is none. A part in memory is taken whole.
    pub rows: Option<Arc<RoaringTreemap>>,
}

/// A change feed. A row that went and one equal to it in every column that came are no change and are not in it.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Columns of the table at the later moment.
    pub schema: SchemaRef,
    /// The rows, and what happened to them.
    pub parts: Vec<(RowChange, Picked)>,
    /// Whether parts and rows are in the order of their sequences, as those of landing tables are.
    pub in_sequence: bool,
}

/// The answer to a question for a feed.
#[derive(Clone, Debug)]
pub enum Changes {
    /// The feed.
    Told(Feed),
    /// Nobody can tell any more: whoever follows the table reads it from its beginning and forgets what it had made.
    Lost(Lost),
}

/// Why a feed cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The earlier snapshot has expired, or is none of this table.
    Expired,
    /// A column went or is another one now: rows of before cannot be compared with rows of today.
    Columns,
}
