//! Model files: directives and one query.

use std::collections::BTreeMap;

use crate::Assert;

/// A model file, taken apart but not judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// `@config` pairs: key, value, and the key's line and column in the file, both from 1.
    pub config: Vec<(String, String, usize, usize)>,
    /// `@assert`: the parenthesised ones first, then the others, each in file order; `@grain` as `unique(..)`.
    pub asserts: Vec<Assert>,
    /// `@depends_on`: lower case, no repeats, first-seen order.
    pub depends_on: Vec<String>,
    /// `@description`; several are joined by a space.
    pub description: Option<String>,
    /// `@col name: text`, by column.
    pub columns: BTreeMap<String, String>,
    /// `@owner`.
    pub owner: Option<String>,
    /// `@source_freshness`, verbatim.
    pub source_freshness: Vec<String>,
    /// `@grain`: the columns, as written.
    pub grain: Vec<String>,
    /// The query: lines kept where they were, directives blanked, blank lines at both ends dropped.
    pub sql: String,
    /// Line of the file at which `sql` starts, from 1.
    pub sql_line: usize,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

/// A directive that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Stable word: `unknown_directive`, `config_invalid`, ..
    pub code: &'static str,
    /// What is wrong and what to do.
    pub message: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

/// Splits a model file's text into directives and SQL; comment-prefixed forms included.
#[must_use]
pub fn header(text: &str) -> Header {
    let _ = text;
    unimplemented!()
}
