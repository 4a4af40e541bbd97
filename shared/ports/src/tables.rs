//! Tables of the lake: pinned reads of all, staged writes of model tables.

use std::{collections::BTreeMap, fmt, sync::Arc};

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};
use async_trait::async_trait;
use domain::{OnSchemaChange, TableName, Timestamp, cdc::Placeholder, items::Snapshot};
use futures::stream::BoxStream;

use crate::{
    Error, Kind, Result,
    feed::{Between, Changes},
    state::{Item, Write},
    upkeep::{Collected, Compacted, Keep, Sweep, Swept},
};

/// A stream of record batches of one schema.
pub struct Rows {
    /// Columns of every batch.
    pub schema: SchemaRef,
    /// The batches.
    pub stream: BoxStream<'static, Result<RecordBatch>>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// One table at one moment. Whoever holds a pin reads the same rows for ever (until its snapshot expires).
#[derive(Clone, Debug, PartialEq)]
pub enum Pin {
    /// A landing table through a sequence.
    Landing {
        /// The table.
        table: TableName,
        /// Columns, the sequence column last.
        schema: SchemaRef,
        /// Last sequence read, inclusive; 0 reads nothing.
        through: u64,
    },
    /// A snapshot of a model table, published or staged.
    Model {
        /// The table.
        table: TableName,
        /// The snapshot.
        snapshot: Snapshot,
    },
}

impl Pin {
    /// The table it pins.
    #[must_use]
    pub fn table(&self) -> &TableName {
        match self {
            Self::Landing { table, .. } | Self::Model { table, .. } => table,
        }
    }
}

/// What a scan of a pin has to read: a schema, and parts whose rows together are the table.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Columns of the table; for landing tables with the sequence column.
    pub schema: SchemaRef,
    /// The parts, in sequence order for landing tables.
    pub parts: Vec<Part>,
}

/// A part of a table.
#[derive(Clone, Debug)]
pub enum Part {
    /// Rows in memory, in the scan's schema.
    Memory(RecordBatch),
    /// A parquet object.
    File(Arc<FilePart>),
}

/// A parquet object of a table.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// Path in the warehouse.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Rows in the file, deleted ones counted.
    pub rows: u64,
    /// For landing files: the sequence of the file's first row. The file has no sequence column: row `i` (from 0) has
    /// sequence `first_sequence + i`. None for model files, which hold all their columns.
    pub first_sequence: Option<u64>,
    /// Row numbers of the file (from 0) that are deleted, ascending.
    pub deleted: Option<Arc<roaring::RoaringTreemap>>,
    /// What is known of each column by name: absent means nothing is known.
    pub bounds: BTreeMap<String, Bounds>,
}

/// Bounds of a column in one file, as single-row arrays of the column's type.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Not above any value; none when unknown. NaN is left out of bounds, as parquet does.
    pub min: Option<arrow::array::ArrayRef>,
    /// Not below any value.
    pub max: Option<arrow::array::ArrayRef>,
    /// NULLs in the file, deleted rows counted.
    pub nulls: Option<u64>,
}

/// How staged rows meet the table's.
#[derive(Clone, Debug, PartialEq)]
pub enum Apply {
    /// Rows are added, by column name.
    Append,
    /// One row per key: of the batch's rows of one key the one with the highest `_seq` stays (the last delivered when
    /// equal or without `_seq`), and it takes the place of the table's row of that key. NULL equals NULL, -0.0 equals
    /// 0.0, NaN equals NaN (**M-1**).
    Merge {
        /// Key columns.
        key: Vec<String>,
    },
    /// Every table row of a key in the batch goes; all rows of the batch stay.
    DeleteInsert {
        /// Key columns.
        key: Vec<String>,
    },
    /// Every table row of these keys goes, and the batch's rows of them stay; its rows of other keys are left out. A key
    /// that the batch has no rows of is gone. Keys are equal as in a merge (**M-3**).
    Replace {
        /// Key columns.
        key: Vec<String>,
        /// The keys: columns of those names, duplicates allowed.
        keys: Vec<RecordBatch>,
    },
    /// The table's rows become the batch's; its columns change as far as the change allows.
    ReplaceAll,
    /// The table's rows become the batch's, and so do its columns. With a key one row of each stays, as in a merge.
    Overwrite {
        /// Key columns; none when all rows stay.
        key: Vec<String>,
    },
    /// The batch's rows are change events, and say what becomes of the row of their key.
    Events(Box<Events>),
}

/// How change events are applied.
///
/// Of a batch's events of one key the one with the greatest sequence wins; of equals a delete, and among equal upserts
/// the first. It is dropped unless its sequence is greater than that of the key's row and of its tombstone. An event
/// without a sequence (NULL, or text that is none) is never applied: it comes back in [`Staged::refused`].
///
/// A value that an event does not have, since it did not change, stays that of the row whose place the event takes, which
/// may be one of the batch: the column holds [`Events::unavailable`], or a column `unavailable` of JSON arrays names it. When
/// no row has it, it is NULL and counted; `unavailable` of a stored row names such columns.
///
/// Sequences are whole numbers, decimals, timestamps, or text that holds numbers (of any length) or RFC 3339 timestamps;
/// any other type, both kinds of text in one column, and text that is no sequence in all of a table's first events, are
/// `Invalid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// Key columns.
    pub key: Vec<String>,
    /// Column of the operation, white space and case aside: text that begins with `d` deletes, `t` and `truncate` remove
    /// every row whose sequence is not greater than their own, any other text and NULL upsert.
    pub op: String,
    /// Column of the sequence.
    pub sequence: String,
    /// What stands for a value that the event does not have.
    pub unavailable: Placeholder,
    /// What a delete does.
    pub deletes: Deletes,
    /// The greatest sequence of a truncate so far ([`Staged::truncated`]): what is not newer is gone, and an event that is
    /// not newer changes nothing.
    pub truncated: Option<String>,
    /// All rows and tombstones go first.
    pub rebuild: bool,
}

/// What a delete among change events does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletes {
    /// The row goes, and a tombstone is left: its key and the delete's sequence. A newer upsert removes it again.
    Hard {
        /// The table of tombstones.
        tombstones: TableName,
        /// The snapshot of it that the change is based on; none creates the table.
        base: Option<Snapshot>,
        /// The greatest sequence of tombstones that are gone ([`Collected::through`]): an upsert of a key that neither
        /// table nor tombstones have, and that is not newer, may be of a row that was deleted. It comes back in
        /// [`Staged::late`]. A delete of such a key leaves no tombstone: the one that is gone may have been newer.
        collected: Option<String>,
    },
    /// The row stays as it is, but for the columns of the operation and the sequence, `_seq` and `_deleted`: these become
    /// the delete's, `_deleted` true. Of a key without a row the event becomes one. The table has a column `_deleted`
    /// that the query does not deliver, false in all other rows.
    Soft,
}

/// A change to a model table.
#[derive(Debug)]
pub struct Change {
    /// The table.
    pub table: TableName,
    /// The published snapshot it is based on; none creates the table.
    pub base: Option<Snapshot>,
    /// Catalog pointers, of the table and of its tombstones, that were read together with their bases; one that is not
    /// here is read when it is needed.
    pub pointers: BTreeMap<TableName, Option<Item>>,
    /// How rows are applied.
    pub apply: Apply,
    /// What to do about other columns.
    pub on_schema_change: OnSchemaChange,
    /// The rows.
    pub rows: Rows,
    /// A re-stamp: when set, `_seq` of every staged row becomes `first, first + 1, ..` in batch order.
    pub restamp_from: Option<u64>,
    /// Written to the snapshot's summary: watermarks and what else a reader may want.
    pub properties: BTreeMap<String, String>,
}

/// Files written and visible to nobody. Dropped, they are garbage for the sweep.
#[derive(Clone, Debug)]
#[must_use = "staged rows become visible only when their writes are committed"]
pub struct Staged {
    /// The snapshot the table will have. It can be pinned and read already. Equals the base when nothing changed.
    pub snapshot: Snapshot,
    /// Whether the table differs from its base in any row or column.
    pub changed: bool,
    /// Rows added.
    pub added: u64,
    /// Rows removed.
    pub deleted: u64,
    /// Rows in the table after it.
    pub rows: u64,
    /// Highest `_seq` of the rows added, if the column is there.
    pub sequence_max: Option<u64>,
    /// Columns of the table after it.
    pub schema: SchemaRef,
    /// The catalog pointer, and that of the tombstones, expecting their bases: to be part of the refresh's one transaction.
    pub writes: Vec<Write>,
    /// The tombstones, when they change too.
    pub tombstones: Option<Tombstones>,
    /// Change events without a sequence, as they were delivered (**Q-1**).
    pub refused: Vec<RecordBatch>,
    /// Events that may be older than a tombstone that is gone, in the table's columns (**Q-1**).
    pub late: Vec<RecordBatch>,
    /// The sequence of a truncate, when it is the newest: to be given back as [`Events::truncated`].
    pub truncated: Option<String>,
    /// Values of change events that did not change and were not there to be kept: NULL now.
    pub unavailable: u64,
}

/// Staged tombstones of a table: a table of their own, key columns and sequence, that moves in the same transaction.
#[derive(Clone, Debug)]
pub struct Tombstones {
    /// The table.
    pub table: TableName,
    /// The snapshot it will have.
    pub snapshot: Snapshot,
    /// Rows in it.
    pub rows: u64,
}

/// Tables of the lake.
#[async_trait]
pub trait Tables: Send + Sync + fmt::Debug {
    /// Pins the table as it is now: landing tables through their head, models at their head's snapshot. `None` when
    /// the table has never been declared or built.
    async fn pin(&self, table: &TableName) -> Result<Option<Pin>>;

    /// What there is to read. For landing pins only parts that may hold sequences above `after` are returned, and a
    /// part may still hold lower ones.
    async fn scan(&self, pin: &Pin, after: u64) -> Result<Scan>;

    /// What changed between two moments of a table, at a cost of the files and rows that changed. Which rows cancel
    /// out is decided here; the feed's rows are read when it is.
    async fn changes(&self, between: &Between) -> Result<Changes>;

    /// Columns of a pinned table.
    async fn schema(&self, pin: &Pin) -> Result<SchemaRef>;

    /// Refuses columns that no table can have, whatever rows they hold: a name twice, a type without a form on disk.
    ///
    /// # Errors
    /// `Invalid` names the column.
    fn accepts(&self, table: &TableName, columns: &Schema) -> Result<()> {
        let (_, _) = (table, columns);
        Ok(())
    }

    /// Whether rows of these columns would give a column of a pinned table another type.
    async fn retypes(&self, pin: &Pin, rows: &SchemaRef) -> Result<bool> {
        let (_, _) = (pin, rows);
        Ok(false)
    }

    /// When the first row of a landing table after a sequence arrived, if a scan from there has just seen it: a question
    /// less to the state store. None says nothing.
    fn arrived(&self, table: &TableName, after: u64) -> Option<Timestamp> {
        let (_, _) = (table, after);
        None
    }

    /// Writes files for a change, and the metadata of the snapshot they make. Memory is bounded by the batch's keys
    /// and one open file, never by the table.
    async fn stage(&self, change: Change) -> Result<Staged>;

    /// Lets snapshots of a model table go that need not stay; how many went. None when the table moved on meanwhile.
    /// Neither watermark nor commit count move: readers are not woken.
    async fn expire(&self, table: &TableName, keep: &Keep) -> Result<Option<u64>> {
        let (_, _) = (table, keep);
        Ok(Some(0))
    }

    /// Removes objects of a model table that no snapshot names.
    async fn sweep(&self, table: &TableName, sweep: &Sweep) -> Result<Swept> {
        let (_, _) = (table, sweep);
        Ok(Swept::default())
    }

    /// Stages the removal of tombstones of deletes that were applied before a moment. `sequence` is their column of that name,
    /// `known` what [`Collected::through`] was so far. None when there is none to remove, or the table moved on meanwhile.
    async fn collect(
        &self,
        table: &TableName,
        sequence: &str,
        before: Timestamp,
        known: Option<&str>,
    ) -> Result<Option<Collected>> {
        let (_, _, _, _) = (table, sequence, before, known);
        Ok(None)
    }

    /// Writes the files anew that hold the most deleted rows, up to so many bytes. Neither watermark nor commit count
    /// move, and the change feed shows nothing: the rows are the same.
    async fn compact(&self, table: &TableName, key: &[String], bytes: u64) -> Result<Compacted> {
        let (_, _, _) = (table, key, bytes);
        Ok(Compacted::default())
    }
}

/// The error of a damaged or lost file of a model's table, with the command that builds the table anew from its inputs. Other
/// errors stay as they are, and so does one that names such a command already.
#[must_use]
pub fn damaged(error: Error, table: &TableName) -> Error {
    if error.kind != Kind::Corrupt || error.chain().contains(ANEW) {
        return error;
    }
    let name = table.to_string();
    let model = name.strip_suffix(TOMBSTONES).unwrap_or(&name);
    let told = match std::error::Error::source(&error) {
        Some(source) => crate::error::chain(source),
        None => String::from("it is damaged"),
    };
    let told = format!("{told}; {ANEW} {model} --full`");
    Error::new(error.kind, error.action, error.subject).because(told)
}

/// How the advice begins.
const ANEW: &str = "build the table anew with `headwater run";
/// How the name of a table of tombstones ends.
const TOMBSTONES: &str = "__tombstones";
