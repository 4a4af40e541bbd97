//! How large a statement becomes when the planner writes each CTE out where it is used.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Spanned,
    Statement, TableFactor, Visitor,
};
use sqlparser::tokenizer::Location;

use super::{
    SqlError,
    limits::{CTES_MAX, TABLES_MAX},
    scopes::Scopes,
    visit,
};

/// Refuses statements that are short but explode: thirty CTEs that each name the one before twice are 2^30 tables.
///
/// # Errors
/// [`CTES_MAX`] or [`TABLES_MAX`] is exceeded.
pub(super) fn check(statement: &Statement) -> Result<(), SqlError> {
    let mut walk = Walk {
        scopes: Scopes::default(),
        tables: vec![0],
        doubled: Vec::new(),
        depth: 0,
        copies: 0,
    };
    match visit(statement, &mut walk) {
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
    /// Expressions to come that are written out twice, by where they are; and how many of them we are inside of.
    doubled: Vec<*const Expr>,
    depth: u32,
    /// Expressions that nested copies come to.
    copies: u64,
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

/// Most expressions that come of writing out what is written out twice inside of what is: `coalesce(coalesce(..), ..)`.
const COPIES_MAX: u64 = 50_000;
/// So many levels of it are in any statement, and are not counted.
const COPIES_FREE: u32 = 2;

/// The parts of an expression that the planner writes out twice or more.
fn doubled(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Between { expr, .. } => vec![expr.as_ref()],
        Expr::Case { conditions, .. } => conditions.iter().map(|when| &when.condition).collect(),
        Expr::Function(call) => {
            let name = call.name.0.last().and_then(|part| part.as_ident());
            let name = name.map(|name| name.value.to_ascii_lowercase());
            let is_doubling = matches!(
                name.as_deref(),
                Some(
                    "coalesce"
                        | "nvl"
                        | "nvl2"
                        | "ifnull"
                        | "if"
                        | "iff"
                        | "datediff"
                        | "date_diff"
                        | "max_by"
                        | "arg_max"
                        | "min_by"
                        | "arg_min"
                )
            );
            let FunctionArguments::List(list) = &call.args else {
                return Vec::new();
            };
            let args = list.args.iter().filter(|_| is_doubling);
            args.filter_map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            })
            .collect()
        }
        _ => Vec::new(),
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
        if self.doubled.last() == Some(&std::ptr::from_ref(expr)) {
            self.depth += 1;
        }
        if self.depth > COPIES_FREE {
            let copies = 1_u64.checked_shl(self.depth).unwrap_or(u64::MAX);
            self.copies = self.copies.saturating_add(copies);
        }
        if self.copies > COPIES_MAX {
            let message = "BETWEEN, CASE, coalesce and the like nested too deep: the planner writes out each twice; name parts of it in a subquery";
            return ControlFlow::Break(SqlError::at(expr.span().start, message));
        }
        // Visited in their order, and left behind before what follows this expression.
        let parts = doubled(expr);
        self.doubled
            .extend(parts.into_iter().rev().map(std::ptr::from_ref));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        if self.doubled.last() == Some(&std::ptr::from_ref(expr)) {
            self.doubled.pop();
            self.depth = self.depth.saturating_sub(1);
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
