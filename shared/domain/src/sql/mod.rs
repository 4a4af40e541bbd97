//! SQL: one dialect, limits before any recursion, one read-only statement.

use std::{collections::BTreeMap, fmt};

use sqlparser::ast::Statement;

use crate::{Model, TableName};

mod dialect;

pub use dialect::HeadwaterDialect;

/// SQL that is refused, and where. Positions count from 1; 0 when unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// What is wrong.
    pub message: String,
    /// Line of the statement, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.message);
        }
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for SqlError {}

/// What the placeholders of a statement stand for.
#[derive(Clone, Debug)]
pub struct Bindings<'a> {
    /// The model itself: `{this}`.
    pub this: &'a TableName,
    /// `{watermark}`: what was consumed of the single live input.
    pub watermark: Option<u64>,
    /// `{watermark:schema.table}`.
    pub watermarks: BTreeMap<TableName, u64>,
}

/// A placeholder of the model language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// `{watermark}`.
    Watermark,
    /// `{watermark:schema.table}`.
    WatermarkOf(TableName),
    /// `{this}`.
    This,
    /// `{changes}`.
    Changes,
    /// `{changes:schema.table}`.
    ChangesOf(TableName),
}

/// Parses exactly one read-only statement: SELECT, WITH, VALUES, a set operation, or EXPLAIN of one.
///
/// # Errors
/// SQL that is too large or too deep, that cannot be parsed, or that does more than read.
pub fn parse(sql: &str) -> Result<Statement, SqlError> {
    let _ = sql;
    unimplemented!()
}

/// Tables a statement names, without CTEs, in first-seen order.
///
/// # Errors
/// A name that is not `schema.name` and no CTE.
pub fn tables(statement: &Statement) -> Result<Vec<TableName>, SqlError> {
    let _ = statement;
    unimplemented!()
}

/// Replaces placeholders and alias names, as tokens: never inside strings, comments or quoted names.
///
/// # Errors
/// A placeholder without a binding, at its position.
pub fn substitute(sql: &str, bindings: &Bindings<'_>) -> Result<String, SqlError> {
    let _ = (sql, bindings);
    unimplemented!()
}

/// The placeholders of a text, in order.
///
/// # Errors
/// SQL that cannot be split into tokens, or an unknown placeholder.
pub fn placeholders(sql: &str) -> Result<Vec<Placeholder>, SqlError> {
    let _ = sql;
    unimplemented!()
}

/// The text to run for a build of a model; `filtered` joins its filter in.
///
/// # Errors
/// As [`substitute`] and [`parse`].
pub fn text(model: &Model, bindings: &Bindings<'_>, filtered: bool) -> Result<String, SqlError> {
    let _ = (model, bindings, filtered);
    unimplemented!()
}
