//! Names of columns that a statement does not name: a cast keeps the name of the column it casts.

use std::ops::ControlFlow;

use domain::sql::visit_mut;
use sqlparser::ast::{Expr, Ident, Select, SelectItem, Statement, VisitorMut};

/// Gives `at::timestamp` the label `at` where it is selected without one.
pub(crate) fn label_casts(statement: &mut Statement) {
    let _ = visit_mut(statement, &mut Labels);
}

struct Labels;

impl VisitorMut for Labels {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr @ Expr::Cast { .. }) = item
                && let Some(alias) = column(expr).cloned()
            {
                *item = SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias,
                };
            }
        }
        ControlFlow::Continue(())
    }
}

/// The column an expression takes its name from.
pub(crate) fn column(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Cast { expr, .. } | Expr::Nested(expr) => column(expr),
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    }
}
