//! Maintenance of tables: small steps, each safe to be cut short anywhere, to be taken twice, and to be taken by two
//! processes at once. None of them changes what any reader reads.

use std::collections::BTreeSet;

use domain::{Duration, Timestamp};

use crate::state::Write;

/// A step of folding: runs of small landing commits become one.
#[derive(Clone, Debug)]
pub struct Fold {
    /// Sequence to begin after.
    pub after: u64,
    /// Commits made later than this are left alone.
    pub until: Timestamp,
    /// Now.
    pub now: Timestamp,
    /// Sequences up to which somebody has read: no run goes past one, so that the origin of what is unread stays exact.
    pub cuts: BTreeSet<u64>,
}

/// What a step of folding did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Commits that became part of another one.
    pub commits: u64,
    /// Rows in them.
    pub rows: u64,
    /// Somebody else changed the same commits first, and nothing was done.
    pub conflict: bool,
    /// Commits that are too young to be folded were seen: there will be more to do without any new commit.
    pub young: bool,
    /// Sequence after which to go on; none at the end of the table.
    pub next: Option<u64>,
}

/// Which snapshots of a model table stay.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Now.
    pub now: Timestamp,
    /// So many of the last.
    pub last: usize,
    /// All that are younger than this.
    pub retention: Duration,
    /// Those that somebody has read, by id: what changed since is told from them.
    pub held: BTreeSet<i64>,
}

/// A step of removing objects that nothing names.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Now.
    pub now: Timestamp,
    /// How long an object stays after it was found that nothing names it.
    pub grace: Duration,
    /// How long an object stays that may still become part of the table.
    pub orphans: Duration,
    /// Most objects to remove.
    pub most: usize,
}

/// What a step of removing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects that were found to be named by nothing: they go after the grace time.
    pub found: u64,
    /// Objects removed.
    pub removed: u64,
    /// Their bytes, where known.
    pub bytes: u64,
    /// Objects that wait for their grace time to end.
    pub waiting: u64,
    /// There is more to remove at once.
    pub more: bool,
}

/// What a step of forgetting idempotency marks did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Marks that went.
    pub marks: u64,
    /// Somebody else changed the same marks first.
    pub conflict: bool,
    /// There is more to forget.
    pub more: bool,
}

/// What a step of rewriting data files did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Files that went.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The table moved on meanwhile, and nothing was done.
    pub conflict: bool,
}

/// Tombstones that are to go.
#[derive(Clone, Debug)]
#[must_use = "they go when the writes are committed"]
pub struct Collected {
    /// How many.
    pub rows: u64,
    /// The greatest sequence among them and among all that went before, in a form of the lake's own.
    pub through: String,
    /// The catalog pointer and the head of their table, expected as they were read.
    pub writes: Vec<Write>,
}
