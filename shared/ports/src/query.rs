//! SQL over pinned tables.

use std::{collections::BTreeMap, fmt, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use domain::{Duration, TableName};

use crate::{
    Result,
    feed::Feed,
    tables::{Pin, Rows},
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

/// A read-only statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// One SELECT.
    pub sql: String,
    /// Values of `$1`, `$2` and on.
    pub parameters: Vec<Parameter>,
    /// What it may use.
    pub limits: Limits,
}

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

    /// Plans a statement and returns its columns.
    async fn describe(&self, statement: &Statement, catalog: &Catalog) -> Result<SchemaRef>;
}
