//! SQL over pinned tables.

use std::{collections::BTreeMap, fmt, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use domain::{Duration, TableName};

use crate::{
    Error, Kind, Result,
    feed::Feed,
    tables::{Pin, Rows, Scan},
};

/// The tables and views a statement may name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Pinned tables.
    pub tables: BTreeMap<TableName, Pin>,
    /// Change feeds, by the names they go by in the statement. Each is a table of its columns and [`domain::CHANGE`].
    pub feeds: BTreeMap<TableName, Arc<Feed>>,
    /// Views and ephemeral models by name: their queries, placeholders already substituted.
    pub views: BTreeMap<TableName, String>,
    /// Rows that a statement asks for by [`AFFECTED`]; none when it does not.
    pub affected: Vec<RecordBatch>,
}

/// A function of a statement over a catalog with affected rows: whether its arguments are, in their order, the values of
/// one of these. NULL equals NULL, -0.0 equals 0.0, NaN equals NaN.
pub const AFFECTED: &str = "_affected";

/// The column of a scan over an entry that numbers its rows: there when the scan's schema has it, and from the
/// `first_sequence` of its file.
pub const ROW: &str = "_headwater_row";

/// A read-only statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// One SELECT.
    pub sql: String,
    /// Values of `$1`, `$2` and on.
    pub parameters: Vec<Parameter>,
    /// What it may use.
    pub limits: Limits,
    /// The order of its rows.
    pub order: RowOrder,
    /// Of a live model, the inputs of which it reads what came since the last refresh: with the value of the watermark that
    /// says so, none where a feed does. When there is one, only its sequences tell which row came last; when there are
    /// several, none do. None for any other statement, in which the sequences of any one table tell.
    pub watermarks: Option<BTreeMap<TableName, Option<u64>>>,
}

/// In which order rows come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowOrder {
    /// In any that the statement allows; those of one landing table in that of `_seq`.
    #[default]
    Any,
    /// In any, and it is told which came last, whatever ORDER BY says: rows as they lie in one landing table come in that
    /// order. Others have a column [`ARRIVAL`], of the sequences of one table: those that their column `_seq` is made of,
    /// or else those of the table that each of them is one row of. When there is neither, their schema says so
    /// ([`UNORDERED`]).
    Told,
    /// The same, and rows that have a column `_seq`, or are each one row of a table with one, come in that of it.
    Known,
    /// The same; `Invalid` when there is no such column.
    Sequence,
}

/// The last column, BIGINT, of rows that tell by it which of them came last; of equal ones none did.
pub const ARRIVAL: &str = "_headwater_arrival";

/// Metadata of the schema of rows of a live model whose column `_seq` is not the sequence of one table.
pub const FOREIGN: &str = "headwater.foreign";

/// Metadata of the schema of rows whose order cannot be told, though it was asked for: the columns, as a JSON list, that
/// no two of them have in common; `null` when none are known.
pub const UNORDERED: &str = "headwater.unordered";

/// A bound value.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// NULL.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
}

impl Parameter {
    /// Reads a JSON scalar. Numbers are read from their text, so that none loses a digit on the way.
    ///
    /// # Errors
    /// What is wrong, and what to pass instead.
    pub fn from_json(text: &str) -> std::result::Result<Self, String> {
        match text.as_bytes().first() {
            Some(b'n') => Ok(Self::Null),
            Some(b't' | b'f') => Ok(Self::Boolean(text == "true")),
            Some(b'"') => serde_json::from_str(text)
                .map(Self::Text)
                .map_err(|error| error.to_string()),
            Some(b'[' | b'{') => Err(String::from("must be a scalar; pass JSON as text")),
            _ if text.contains(['.', 'e', 'E']) => text
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Self::Float)
                .ok_or_else(|| String::from("is not a number that DOUBLE holds")),
            _ => text
                .parse()
                .map(Self::Integer)
                .map_err(|_| String::from("does not fit BIGINT; pass it as text and cast it")),
        }
    }

    /// The JSON scalar that [`from_json`](Self::from_json) reads back.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Null => String::from("null"),
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            // With a fraction or an exponent, so that it stays what it is.
            Self::Float(value) => format!("{value:?}"),
            Self::Text(value) => serde_json::Value::from(value.as_str()).to_string(),
        }
    }
}

/// Limits of one statement. What a process may use in all is the adapter's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time from start to the last row; `Unavailable` when it is over.
    pub time: Duration,
    /// Most rows returned; `TooLarge` when there are more.
    pub rows: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(300),
            rows: None,
        }
    }
}

impl Statement {
    /// A statement without parameters, under default limits.
    pub fn new(sql: impl Into<String>) -> Self {
        Self {
            sql: sql.into(),
            parameters: Vec::new(),
            limits: Limits::default(),
            order: RowOrder::Any,
            watermarks: None,
        }
    }
}

/// The query engine.
///
/// Contract: one SELECT (or VALUES, WITH .. SELECT, set operations, EXPLAIN of one); anything that writes, names a file or
/// a table outside the catalog, or is larger or deeper than the limits is `Invalid` with a position or the limit in its
/// message. No statement ends the process. `_havn_seq` is read as `_seq`.
#[async_trait]
pub trait Query: Send + Sync + fmt::Debug {
    /// Plans and runs a statement. Rows of a single landing table without ORDER BY come in sequence order.
    async fn run(&self, statement: &Statement, catalog: &Catalog) -> Result<Rows>;

    /// Runs a statement over one entry, which goes by the name `this`: the planner resolves it as the table it is, so that
    /// comments, texts, aliases and common table expressions of that name mean what they mean. Other tables are `Invalid`.
    async fn over(&self, statement: &Statement, entry: &Scan) -> Result<Rows> {
        let _ = entry;
        let error = Error::new(Kind::Unavailable, "run statement", &statement.sql);
        Err(error.because("this query engine reads no entries"))
    }

    /// Plans a statement and returns its columns.
    async fn describe(&self, statement: &Statement, catalog: &Catalog) -> Result<SchemaRef>;
}
