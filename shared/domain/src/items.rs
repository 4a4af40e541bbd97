//! What the state store holds: keys and values of its items (DESIGN section 4).
//!
//! Values are JSON, so that an item can be read by eye; readers treat an unknown word as corrupt, never as a default.

mod replay;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Position, TableName, Timestamp,
    lag::{Grain, Recent},
};

pub use replay::{Replay, ReplayCounts, ReplayEnd, ReplayOutcome};

/// Partition of everything about one table: `table#<t>`.
#[must_use]
pub fn table(table: &TableName) -> String {
    format!("table#{table}")
}

/// Partition of everything about one model: `model#<m>`.
#[must_use]
pub fn model(model: &TableName) -> String {
    format!("model#{model}")
}

/// Partition of the catalog pointers; the sort key is the table's name.
pub const CATALOG: &str = "catalog";
/// Partition of the cycle; its sort key is [`CURRENT`].
pub const CYCLE: &str = "cycle";
/// Sort key of the one open or last cycle.
pub const CURRENT: &str = "current";
/// Partition that lists every table that has a head; the sort key is the table's name, the value empty.
pub const TABLES: &str = "tables";
/// Sort key of a [`Head`].
pub const HEAD: &str = "head";
/// Sort key of a [`ModelState`].
pub const STATE: &str = "state";
/// Sort key of a model's [`Collected`].
pub const COLLECTED: &str = "collected";
/// Sort key of a model's [`Quarantine`].
pub const QUARANTINE: &str = "quarantine";
/// Sort key of a model's [`Replay`].
pub const REPLAY: &str = "replay";
/// Sort key of a [`Profile`].
pub const PROFILE: &str = "profile";
/// Sort key of a [`Control`].
pub const CONTROL: &str = "control";

/// Partition of what maintenance remembers of no table.
pub const MAINTENANCE: &str = "maintenance";

/// Partition of what maintenance remembers of a table: `maintenance#<t>`.
#[must_use]
pub fn maintenance(table: &TableName) -> String {
    format!("maintenance#{table}")
}

/// Partition of a table's objects that nothing names any more, in order of when that was found: `garbage#<t>`.
#[must_use]
pub fn garbage(table: &TableName) -> String {
    format!("garbage#{table}")
}

/// Beginning of the partitions that list idempotency marks.
const EXPIRY: &str = "expiry#";

/// Partition of a table's idempotency marks in order of time, so that old ones can be found: `expiry#<t>`.
#[must_use]
pub fn expiry(table: &TableName) -> String {
    format!("{EXPIRY}{table}")
}

/// Beginning of the partitions of idempotency marks: `seen#<source>#<key>`.
pub const SEEN: &str = "seen#";

/// Whether items of a partition stand for the idempotency keys of events, which are forgotten after a while.
#[must_use]
pub fn is_mark(partition: &str) -> bool {
    partition.starts_with(SEEN) || partition.starts_with(EXPIRY)
}

/// Sort key of something of a moment: microseconds in 20 digits, so that text order is time order, and what tells it
/// from others of the moment.
#[must_use]
pub fn moment(at: Timestamp, id: &str) -> String {
    format!("{:020}#{id}", at.0.max(0))
}

/// Sort key of a landing commit: `advance#<last sequence, 20 digits>`, so that text order is sequence order.
#[must_use]
pub fn advance(to: u64) -> String {
    format!("advance#{to:020}")
}

/// Sort key of a model's commit: `commit#<number, 20 digits>`.
#[must_use]
pub fn commit(commits: u64) -> String {
    format!("commit#{commits:020}")
}

/// Sort key of lags of a model in an interval that is over: `lag#<grain>#<slot>`.
#[must_use]
pub fn lag(grain: Grain, slot: i64) -> String {
    format!("{}{slot:02}", lags(grain))
}

/// What the sort keys of a model's lags of one grain begin with.
#[must_use]
pub fn lags(grain: Grain) -> String {
    format!("lag#{}#", grain.word())
}

/// Sort key of what a model consumed of one input: `consumed#<input>`.
#[must_use]
pub fn consumed(input: &TableName) -> String {
    format!("consumed#{input}")
}

/// `table#<t>` / `head`: how far the table has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Last sequence and number of commits. For models `sequence` is the published watermark.
    pub position: Position,
    /// Rows in the table.
    pub rows: u64,
    /// The commit that last replaced every row of a model by a rebuild; 0 when none did. Who consumed less than this many
    /// commits has read rows that may never have been.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rebuilt: u64,
    /// When the last commit was made.
    pub advanced_at: Timestamp,
    /// Columns of a landing table without the sequence; empty for models, whose snapshot has them.
    #[serde(default)]
    pub columns: Vec<Column>,
    /// The current snapshot of a model table; none for landing tables.
    #[serde(default)]
    pub snapshot: Option<Snapshot>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A column of a landing table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name, case kept.
    pub name: String,
    /// Type, in SQL words: `BIGINT`, `DOUBLE`, `VARCHAR`, `BOOLEAN`, `TIMESTAMP`, `DATE`, `DECIMAL(p,s)`, `BLOB`.
    pub kind: String,
}

/// A snapshot of a model table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// The Iceberg metadata file, as a path in the warehouse.
    pub metadata: String,
    /// The snapshot in it.
    pub id: i64,
}

/// `advance#<to>` of a landing table or `commit#<n>` of a model: one commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    /// Sequence before the commit; exclusive.
    pub from: u64,
    /// Last sequence of the commit; inclusive.
    pub to: u64,
    /// Rows added.
    pub rows: u64,
    /// When the oldest data in it arrived in landing.
    pub origin_at: Timestamp,
    /// When it was committed.
    pub committed_at: Timestamp,
    /// Where the rows of a landing commit are; none for models.
    #[serde(default)]
    pub data: Option<BatchData>,
}

/// Where the rows of a landing commit are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchData {
    /// Behind the item's header, as one Arrow IPC stream.
    Inline,
    /// A parquet object of the warehouse, and its size in bytes.
    Object {
        /// Path in the warehouse.
        path: String,
        /// Bytes.
        size: u64,
    },
}

/// `model#<m>` / `consumed#<input>`: the watermark, in the input's own domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumed {
    /// What has been consumed.
    pub position: Position,
    /// The snapshot of a model input that was read; none for landing tables, whose sequence says it all, and in items
    /// of versions before change feeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

/// `model#<m>` / `state`: how the model's refreshes went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelState {
    /// Failures since the last success.
    pub failures: u32,
    /// Not before this; none when not failing.
    pub retry_at: Option<Timestamp>,
    /// What went wrong last; none after a success.
    pub last_error: Option<String>,
    /// Whether it failed last as nothing was heard of its refreshes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Refreshes that succeeded.
    pub refreshes: u64,
    /// Rows those refreshes wrote.
    pub rows: u64,
    /// End of the last success.
    pub last_refresh: Option<Timestamp>,
    /// Lag that the last success removed, in milliseconds.
    pub last_lag_ms: Option<u64>,
    /// How long the last success took, in milliseconds.
    pub last_duration_ms: Option<u64>,
    /// Values of change events that had not changed and were not there to be kept, since the model was first built.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unavailable: u64,
    /// Change events quarantined since their key's tombstone may be gone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late_after_gc: u64,
    /// Change events quarantined since they had no sequence.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unordered: u64,
    /// Rows of the inputs that are in quarantine.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quarantined: u64,
    /// How long a refresh may well take: the slowest of the last ones, fading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_ms: Option<u64>,
    /// Lags of the intervals under way; none before anything was applied since they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Recent>,
    /// When assertions last ran.
    pub asserted_at: Option<Timestamp>,
    /// Warn-severity assertions that failed in the last success.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Digest of the query last built, for batch tables and `plan`; with `+` behind it when rows of other queries came since.
    #[serde(default)]
    pub built_from: Option<String>,
    /// Materialization, strategy and key of the last build; none before it was remembered.
    #[serde(default)]
    pub shape: Option<String>,
}

/// `model#<m>` / `collected`: what is known of rows that are gone without a tombstone: since theirs was older than it is
/// kept, or since a truncate left none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// The greatest sequence among them, as the lake writes it: an event of an unknown key that is not newer may be of a
    /// deleted row.
    #[serde(default)]
    pub through: Option<String>,
    /// How many went.
    pub rows: u64,
    /// When the last of them went.
    pub at: Timestamp,
    /// The greatest sequence of a truncate, as the lake writes it: what is not newer changes nothing.
    #[serde(default)]
    pub truncated: Option<String>,
}

/// `model#<m>` / `quarantine`: rows of the inputs that stay out of the model, since they broke it (`on_bad_row=quarantine`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// The rows, in order of their sequence.
    pub rows: Vec<BadRow>,
    /// Sequences of rows that nobody wants any more: they stay out of every build, and are listed no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<u64>,
    /// The input whose rows these are: of another one they say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_of: Option<TableName>,
}

impl Quarantine {
    /// Whether dropped rows are rows of this input. Before it was remembered, a model had one only.
    #[must_use]
    pub fn drops_of(&self, input: &TableName) -> bool {
        self.dropped_of.as_ref().is_none_or(|of| of == input)
    }
}

/// A row of an input that broke a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRow {
    /// The input.
    pub input: TableName,
    /// The row's sequence in it.
    pub sequence: u64,
    /// When it broke the model first.
    pub at: Timestamp,
    /// How.
    pub reason: String,
}

/// `model#<m>` / `profile`: what the rows of a snapshot are like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// When they were looked at.
    pub at: Timestamp,
    /// Commits of the table then.
    pub commits: u64,
    /// Rows.
    pub rows: u64,
    /// Whether only the statistics of the files were asked: the table was too large to be read for this.
    pub from_statistics: bool,
    /// Columns, in order, up to a limit.
    pub columns: Vec<ColumnProfile>,
    /// Columns beyond the limit.
    #[serde(default)]
    pub left_out: u64,
}

/// What the values of a column are like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnProfile {
    /// Name, case kept.
    pub name: String,
    /// Type, in Arrow's words.
    pub kind: String,
    /// NULLs; none when nobody knows.
    pub nulls: Option<u64>,
    /// The least value as text, cut when it is long; none without values, or of a type that has no order.
    pub min: Option<String>,
    /// The greatest likewise.
    pub max: Option<String>,
    /// Distinct values, about (within a few percent); none when nobody knows.
    pub distinct: Option<u64>,
}

/// `model#<m>` / `control`: what a person asked of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Not refreshed until resumed.
    pub paused: bool,
    /// Refresh at the next cycle whatever backoff or interval say; cleared by the attempt.
    pub retry: bool,
}

/// `cycle` / `current`: what the cycle fixed when it opened (**C-1**).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cycle {
    /// Counts cycles.
    pub number: u64,
    /// When it opened.
    pub opened_at: Timestamp,
    /// Heads of landing tables at that moment: the cycle reads no further.
    pub targets: BTreeMap<TableName, Position>,
    /// Models attempted so far, with how it ended.
    pub done: BTreeMap<TableName, String>,
    /// Refreshes that were sent to be run elsewhere, and when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sent: BTreeMap<TableName, Sent>,
    /// Whether the cycle has ended.
    pub closed: bool,
}

/// A refresh that was sent to be run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// When it was last sent.
    pub at: Timestamp,
    /// How often.
    pub attempt: u32,
}

/// What the writes of a transaction do to the catalogs that other readers read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointed {
    /// The table has this metadata now.
    To {
        /// The table.
        table: TableName,
        /// Where its metadata is.
        location: String,
        /// Where it was before.
        previous: Option<String>,
    },
    /// The table is gone.
    Nowhere {
        /// The table.
        table: TableName,
    },
}

impl Pointed {
    /// Reads a write to [`CATALOG`]: the sort key, and the new value unless the item goes.
    ///
    /// # Errors
    /// What is wrong with the name or the value.
    pub fn read(sort: &str, value: Option<&[u8]>) -> Result<Self, String> {
        let table: TableName = sort.parse().map_err(|error| format!("{error}"))?;
        let Some(value) = value else {
            return Ok(Self::Nowhere { table });
        };
        let pointer: serde_json::Value =
            serde_json::from_slice(value).map_err(|error| error.to_string())?;
        let text = |field: &str| pointer.get(field)?.as_str().map(str::to_owned);
        let location = text("metadata_location").ok_or("its value has no `metadata_location`")?;
        Ok(Self::To {
            table,
            location,
            previous: text("previous_metadata_location"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_without_a_snapshot_is_read_and_written_as_ever() {
        let stored = r#"{"position":{"sequence":7,"commits":2}}"#;
        let mark: Consumed = serde_json::from_str(stored).expect("a watermark");
        assert_eq!((mark.position.sequence, &mark.snapshot), (7, &None));
        assert_eq!(serde_json::to_string(&mark).expect("JSON"), stored);
        let snapshot = Snapshot {
            metadata: "m.json".to_owned(),
            id: 5,
        };
        let mark = Consumed {
            snapshot: Some(snapshot),
            ..mark
        };
        let text = serde_json::to_string(&mark).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Consumed>(&text).expect("a watermark"),
            mark
        );
    }
}
