//! What a subquery takes from the relations around it.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Ident, ObjectNamePart, TableAlias, TableFactor, Visit, Visitor};

use super::columns::is_same;
use crate::sql::visit;

/// Columns with their relation, and relations, of an expression and all its subqueries.
#[derive(Default)]
struct Names {
    columns: Vec<Vec<Ident>>,
    relations: Vec<Ident>,
}

/// The columns, such as `c.id`, that are of no relation of the subqueries themselves. A name without a relation may be
/// their own, and is none of them.
pub(super) fn outer(of: &impl Visit) -> Vec<Vec<Ident>> {
    let mut names = Names::default();
    let _ = visit(of, &mut names);
    let Names {
        mut columns,
        relations,
    } = names;
    let is_own = |name: &Ident| relations.iter().any(|own| is_same(own, name));
    columns.retain(|parts| parts.first().is_some_and(|first| !is_own(first)));
    columns
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        let named = |alias: &Option<TableAlias>| alias.as_ref().map(|alias| alias.name.clone());
        self.relations.extend(match factor {
            TableFactor::Table { name, alias, .. } => named(alias).or_else(|| {
                let last = name.0.last().and_then(ObjectNamePart::as_ident);
                last.cloned()
            }),
            TableFactor::Derived { alias, .. } => named(alias),
            _ => None,
        });
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr {
            self.columns.push(parts.clone());
        }
        ControlFlow::Continue(())
    }
}
