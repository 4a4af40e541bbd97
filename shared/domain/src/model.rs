//! A parsed model file: the header's directives and one query.

use std::collections::BTreeMap;

use crate::{Duration, TableName};

/// One model: what is built, how, from which query.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The table or view the model builds.
    pub name: TableName,
    /// Where it was read from, relative to the project, for messages.
    pub file: String,
    /// The `@config` directives.
    pub config: Config,
    /// `@description`.
    pub description: Option<String>,
    /// `@col name: text`, by column.
    pub columns: BTreeMap<String, String>,
    /// `@assert` and `@grain`, in file order of their lines.
    pub asserts: Vec<Assert>,
    /// `@owner`.
    pub owner: Option<String>,
    /// `@source_freshness`, verbatim.
    pub source_freshness: Vec<String>,
    /// The query, without directives, with its placeholders.
    pub sql: String,
    /// Line of the file at which `sql` starts, from 1.
    pub sql_line: usize,
    /// Tables the query, its filter and `@depends_on` name, without CTEs, in first-seen order, without itself.
    pub reads: Vec<TableName>,
}

/// The `@config` keys of a model, typed.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Config {
    /// `materialized`; a view unless said otherwise.
    pub materialized: Materialized,
    /// `live=true`.
    pub live: bool,
    /// `live_interval`: least time between two refreshes.
    pub live_interval: Option<Duration>,
    /// `target_lag`: how old unapplied data may become; refreshes wait for more as long as it can be kept.
    pub target_lag: Option<Duration>,
    /// `unique_key`: key columns, as written.
    pub unique_key: Vec<String>,
    /// `incremental_strategy`.
    pub strategy: Strategy,
    /// `incremental_filter`: starts with WHERE; appended to the query on incremental builds.
    pub filter: Option<String>,
    /// `partition_by`: columns, as written.
    pub partition_by: Vec<String>,
    /// `on_schema_change`.
    pub on_schema_change: OnSchemaChange,
    /// `cdc_op`, `cdc_seq` and `cdc_deletes`.
    pub cdc: Option<Cdc>,
    /// `on_bad_row=quarantine`.
    pub quarantine: bool,
    /// `tags`.
    pub tags: Vec<String>,
}

/// How a model is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Materialized {
    /// Computed at query time.
    #[default]
    View,
    /// Rebuilt whole by batch runs.
    Table,
    /// Changed in place by its strategy.
    Incremental,
    /// Inlined into its readers; never stored.
    Ephemeral,
}

/// How an incremental model takes in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strategy {
    /// One row per key; the last arrival wins. Without a key it appends.
    #[default]
    Merge,
    /// Every old row of a touched key makes room for the batch's rows of that key.
    DeleteInsert,
    /// Rows are added.
    Append,
    /// The engine finds the affected keys itself.
    Auto,
}

/// What happens when the query's columns are not the table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnSchemaChange {
    /// New columns are added; a missing or retyped one is refused.
    #[default]
    AppendNewColumns,
    /// The table's columns stay; extra ones are dropped, missing ones read NULL.
    Ignore,
    /// Any difference is refused.
    Fail,
    /// The table's columns become the query's.
    SyncAllColumns,
}

/// Change events instead of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cdc {
    /// Column of the operation.
    pub op: String,
    /// Column that orders changes to one key.
    pub seq: String,
    /// Deletes flag the row instead of removing it.
    pub soft_deletes: bool,
}

/// One `@assert`: a check on the staged table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assert {
    /// The check, as written: `no_nulls(x)`, `row_count > 0`, `unique(a, b)`, `accepted_values(s, ['a'])` or a condition.
    pub expression: String,
    /// What a failure does.
    pub severity: Severity,
    /// Line of the file, from 1.
    pub line: usize,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Told, nothing stops.
    Warning,
    /// The refresh, or the project, is refused.
    Error,
}
