//! Tables a statement names.

use std::{collections::BTreeSet, ops::ControlFlow};

use sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Spanned, Statement, TableFactor, Visit, Visitor,
};

use super::{SqlError, scopes::Scopes};
use crate::TableName;

/// Tables a statement names, in first-seen order. Names of CTEs are left out where they are in scope.
///
/// # Errors
/// A name that is neither `schema.name` nor a CTE, with its position.
pub fn tables(statement: &Statement) -> Result<Vec<TableName>, SqlError> {
    let mut walk = Walk::default();
    match statement.visit(&mut walk) {
        ControlFlow::Continue(()) => Ok(walk.found),
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Debug, Default)]
struct Walk {
    found: Vec<TableName>,
    seen: BTreeSet<TableName>,
    scopes: Scopes,
}

impl Walk {
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
