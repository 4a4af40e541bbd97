//! How large a statement becomes when the planner writes each CTE out where it is used.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, Query, Spanned, Statement, TableFactor, Visit, Visitor,
};
use sqlparser::tokenizer::Location;

use super::{
    SqlError,
    limits::{CTES_MAX, TABLES_MAX},
    scopes::Scopes,
};

/// Refuses statements that are short but explode: thirty CTEs that each name the one before twice are 2^30 tables.
///
/// # Errors
/// [`CTES_MAX`] or [`TABLES_MAX`] is exceeded.
pub(super) fn check(statement: &Statement) -> Result<(), SqlError> {
    let mut walk = Walk {
        scopes: Scopes::default(),
        tables: vec![0],
    };
    match statement.visit(&mut walk) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn too_many(at: Location) -> ControlFlow<SqlError> {
    let message = format!("too many tables once CTEs are written out; the limit is {TABLES_MAX}");
    ControlFlow::Break(SqlError::at(at, message))
}

struct Walk {
    /// Tables of each CTE once written out.
    scopes: Scopes<u64>,
    /// Tables so far, per open query.
    tables: Vec<u64>,
}

impl Walk {
    fn add(&mut self, tables: u64) -> u64 {
        match self.tables.last_mut() {
            Some(sum) => {
                *sum = sum.saturating_add(tables);
                *sum
            }
            None => 0,
        }
    }
}

/// Most `->` and `->>` one after the other: planning takes twice as long for each.
const ARROWS_MAX: usize = 12;

/// How many arrows a chain that ends here has, as far as the limit.
fn arrows(mut expr: &Expr) -> usize {
    let mut count = 0;
    while count <= ARROWS_MAX {
        expr = match expr {
            Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => inner,
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Arrow | BinaryOperator::LongArrow,
                ..
            } => {
                count += 1;
                left
            }
            _ => break,
        };
    }
    count
}

impl Visitor for Walk {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        if arrows(expr) > ARROWS_MAX {
            let message = format!(
                "more than {ARROWS_MAX} `->` in one chain; write `json_get(value, 'a', 'b', 'c')`"
            );
            return ControlFlow::Break(SqlError::at(expr.span().start, message));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        if let Some(with) = &query.with
            && with.cte_tables.len() > CTES_MAX
        {
            let message = format!("too many CTEs; the limit is {CTES_MAX}");
            return ControlFlow::Break(SqlError::at(with.with_token.0.span.start, message));
        }
        self.scopes.enter(query);
        self.tables.push(0);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let tables = self.tables.pop().unwrap_or(0);
        if !self.scopes.leave(query, tables) && self.add(tables) > TABLES_MAX {
            return too_many(query.span().start);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        let TableFactor::Table { name, .. } = factor else {
            return ControlFlow::Continue(());
        };
        let cte = match &name.0[..] {
            [one] => one.as_ident().and_then(|ident| self.scopes.find(ident)),
            _ => None,
        };
        // A recursive CTE names itself before anything is known of it.
        if self.add(cte.unwrap_or(1).max(1)) > TABLES_MAX {
            return too_many(name.span().start);
        }
        ControlFlow::Continue(())
    }
}
