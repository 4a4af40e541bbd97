//! Which keys of a model's table a change of its inputs may touch: what `incremental_strategy=auto` goes by (**M-3**).
//!
//! Of every place where the query reads an input it makes another query, over that input's changed rows: it yields the
//! key of every row of the result that may be another one now, and perhaps of some that are not. Two kinds of rows stand
//! for a table in such a query, both given by whoever runs it: [`changed`] rows, as they were before and as they are now,
//! and [`prior`] rows, those there are now and those that went. What joins and filters let through for these is all that
//! they let through for the rows of then or of now. What decides over several rows at once (groups, windows, HAVING) is
//! left out: it keeps to rows of one key, or the query cannot be traced.
//!
//! ## Invariants
//! * **M-3** a row of the result whose key no such query yields is the same before and after

mod columns;
mod correlated;
mod exprs;
mod from;
mod select;
mod shape;
mod sums;
#[cfg(test)]
mod tests;
mod tracer;

use std::fmt;

use sqlparser::ast::{Ident, Statement};

use super::{FEED_PREFIX, parse};
use crate::TableName;
use tracer::Tracer;

pub use sums::{Kind, SURE, Sum, Sums, THERE};

/// What a table that a query names is to the one who traces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Rows of its own, and somebody tells which of them change.
    Input,
    /// No rows of its own: the query it stands for.
    View(String),
    /// Nobody tells what changes in it, and why not.
    Untold(String),
}

/// How changes of a query's inputs become keys of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The key: output columns of the query, as they are spelt in SQL. Rows of a key are replaced together.
    pub key: Vec<String>,
    /// Per place where an input is read, the input and a query of the keys that its changes may touch.
    pub keys: Vec<(TableName, String)>,
    /// The inputs from whose changes alone the result follows, as long as no other input changed.
    pub sums: Vec<Sums>,
}

/// Why a query cannot be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untraceable {
    /// The input whose changes cannot be told from each other; none when it is no single one's fault.
    pub input: Option<TableName>,
    /// Why, as the end of a sentence.
    pub why: String,
}

impl fmt::Display for Untraceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.input {
            Some(input) => write!(
                f,
                "every refresh recomputes the whole table: changes of `{input}` cannot be traced to its keys, because {}",
                self.why
            ),
            None => write!(
                f,
                "every refresh recomputes the whole table: changes cannot be traced to its keys, because {}",
                self.why
            ),
        }
    }
}

impl Untraceable {
    fn because(why: impl Into<String>) -> Self {
        Self {
            input: None,
            why: why.into(),
        }
    }

    /// The same, of an input, unless it is of one already.
    fn of(mut self, input: Option<TableName>) -> Self {
        self.input = self.input.or(input);
        self
    }
}

/// The name that the changed rows of an input go by: its columns, before and after.
#[must_use]
pub fn changed(table: &TableName) -> Option<TableName> {
    named("_changed_", table)
}

/// The name that all rows of an input go by that are there or were.
#[must_use]
pub fn prior(table: &TableName) -> Option<TableName> {
    named("_prior_", table)
}

fn named(prefix: &str, table: &TableName) -> Option<TableName> {
    let schema = format!("{FEED_PREFIX}{}", table.schema());
    TableName::new(&schema, &format!("{prefix}{}", table.name())).ok()
}

/// A table's name in a statement. Quoted, so that no word of it is ever a keyword.
#[must_use]
pub fn quoted(table: &TableName) -> String {
    format!("\"{}\".\"{}\"", table.schema(), table.name())
}

/// Traces a query, all of whose placeholders are substituted. Without a key it is the columns it groups by.
///
/// # Errors
/// Why it cannot be traced.
pub fn trace(
    sql: &str,
    key: &[String],
    role: &dyn Fn(&TableName) -> Role,
) -> Result<Trace, Untraceable> {
    let statement = parse(sql).map_err(|error| Untraceable::because(error.to_string()))?;
    let Statement::Query(query) = &statement else {
        return Err(Untraceable::because("it is no SELECT"));
    };
    exprs::is_repeatable(&statement)?;
    let shape = Tracer::new(role).query(query)?;
    let key = shape.key(key)?;
    let columns: Vec<String> = key.iter().map(Ident::to_string).collect();
    let list = columns.join(", ");
    let read: Vec<TableName> = shape
        .changes
        .iter()
        .map(|(input, _)| input.clone())
        .collect();
    let keys = shape.changes.into_iter();
    Ok(Trace {
        sums: sums::sums(query, &key, &read),
        keys: keys
            .map(|(input, text)| (input, format!("SELECT {list} FROM ({text}) AS _c")))
            .collect(),
        key: columns,
    })
}
