//! The tables a statement names.

use std::{collections::BTreeSet, ops::ControlFlow};

use sqlparser::ast::{
    ObjectName, ObjectNamePart, Query, Spanned, Statement, TableFactor, Visit, Visitor,
};

use super::SqlError;
use crate::TableName;

/// Tables named in a statement, in first-seen order, without common table expressions and table functions.
///
/// # Errors
/// A name that is not `schema.name`, with its place.
pub fn tables(statement: &Statement) -> Result<Vec<TableName>, SqlError> {
    let mut names = Names::default();
    match statement.visit(&mut names) {
        ControlFlow::Continue(()) => Ok(names.found),
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Default)]
struct Names {
    found: Vec<TableName>,
    seen: BTreeSet<TableName>,
    // Names of common table expressions, one set per query being visited.
    scopes: Vec<BTreeSet<String>>,
}

impl Visitor for Names {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        self.scopes.push(
            ctes.map(|cte| cte.alias.name.value.to_ascii_lowercase())
                .collect(),
        );
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
        self.scopes.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        match factor {
            TableFactor::Table {
                name, args: None, ..
            } => match self.take(name) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Names {
    fn take(&mut self, name: &ObjectName) -> Result<(), SqlError> {
        let at = name.span().start;
        let parts: Vec<&str> = name.0.iter().filter_map(ident).collect();
        let table = match parts.as_slice() {
            [one] => {
                let lower = one.to_ascii_lowercase();
                if self.scopes.iter().any(|scope| scope.contains(&lower)) {
                    return Ok(());
                }
                return Err(SqlError::at(
                    at,
                    format!("table `{one}` needs its schema: `schema.{one}`"),
                ));
            }
            [schema, table] => TableName::new(schema, table)
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

fn ident(part: &ObjectNamePart) -> Option<&str> {
    part.as_ident().map(|ident| ident.value.as_str())
}
