//! Tables a statement names.

use std::{collections::BTreeSet, ops::ControlFlow};

use sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Spanned, Statement, TableFactor, Visitor,
};

use super::{SqlError, scopes::Scopes, visit};
use crate::TableName;

/// The schema that a name without one is in, and the name an entry goes by in a statement over it.
const ENTRY: (&str, &str) = ("main", "this");

/// Tables a statement names, in first-seen order. Names of CTEs are left out where they are in scope.
///
/// # Errors
/// A name that is neither `schema.name` nor a CTE, with its position.
pub fn tables(statement: &Statement) -> Result<Vec<TableName>, SqlError> {
    walk(statement, false)
}

/// Whether a statement over an entry names it: as `this`, the only table there is, which CTEs may hide.
///
/// # Errors
/// A name that is neither `this` nor a CTE, with its position.
pub fn tables_over_entry(statement: &Statement) -> Result<Vec<TableName>, SqlError> {
    walk(statement, true)
}

fn walk(statement: &Statement, entry: bool) -> Result<Vec<TableName>, SqlError> {
    let mut walk = Walk {
        entry,
        ..Walk::default()
    };
    match visit(statement, &mut walk) {
        ControlFlow::Continue(()) => Ok(walk.found),
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Debug, Default)]
struct Walk {
    /// Whether the statement is over an entry.
    entry: bool,
    found: Vec<TableName>,
    seen: BTreeSet<TableName>,
    scopes: Scopes,
}

impl Walk {
    /// Apart from the visitor, whose calls are nested as deep as the statement: what is needed here must not be on the stack
    /// of each of them.
    #[inline(never)]
    fn record(&mut self, name: &ObjectName) -> Result<(), SqlError> {
        let parts: Vec<&Ident> = name.0.iter().filter_map(ObjectNamePart::as_ident).collect();
        let at = name.span().start;
        let table = match parts[..] {
            [one] if one.quote_style == Some('\'') => {
                return Err(SqlError::at(
                    at,
                    format!("`{name}` is a file; only tables of the lake can be read"),
                ));
            }
            [one] if self.scopes.find(one).is_some() => return Ok(()),
            [one] if self.entry && one.value.eq_ignore_ascii_case(ENTRY.1) => {
                TableName::new(ENTRY.0, ENTRY.1)
                    .map_err(|error| SqlError::at(at, error.to_string()))?
            }
            _ if self.entry => {
                return Err(SqlError::at(
                    at,
                    format!(
                        "there is no table `{name}` here: a statement over an entry reads `this` alone"
                    ),
                ));
            }
            [one] => {
                return Err(SqlError::at(
                    at,
                    format!("`{}` needs its schema: write `schema.{0}`", one.value),
                ));
            }
            [schema, table] => TableName::new(&schema.value, &table.value)
                .map_err(|error| SqlError::at(at, error.to_string()))?,
            _ => {
                return Err(SqlError::at(
                    at,
                    format!("`{name}` is not of the form `schema.name`"),
                ));
            }
        };
        if self.seen.insert(table.clone()) {
            self.found.push(table);
        }
        Ok(())
    }
}

impl Visitor for Walk {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        self.scopes.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        self.scopes.leave(query, ());
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        match factor {
            TableFactor::Table {
                name, args: None, ..
            } => match self.record(name) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}
