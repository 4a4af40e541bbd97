//! Arms of set operations whose columns have no name of their own.
//!
//! `SELECT a AS n, b AS v .. UNION ALL SELECT k, k ..` is good SQL: columns meet by position, and their names are those of
//! the first arm. The planner wants the columns of every SELECT to have different names, so that a later arm says what
//! nobody reads: the columns it would name twice get names of their own here. `BY NAME` needs the names, and keeps them.

use std::{collections::BTreeSet, ops::ControlFlow};

use domain::sql::visit_mut;
use sqlparser::ast::{
    Ident, Query, Select, SelectItem, SetExpr, SetQuantifier, Statement, TableAlias, TableFactor,
    VisitorMut,
};

use crate::{labels, names};

/// Names apart the columns of later arms.
pub(crate) fn name_apart(statement: &mut Statement) {
    let _ = visit_mut(statement, &mut Arms);
}

struct Arms;

impl VisitorMut for Arms {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        first(&mut query.body);
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            listed(&cte.alias, &mut cte.query);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived {
            subquery,
            alias: Some(alias),
            ..
        } = table
        {
            listed(alias, subquery);
        }
        ControlFlow::Continue(())
    }
}

/// A query whose columns are named around it, `(SELECT k, k ..) AS t (a, b)`: nobody reads its own names either.
fn listed(alias: &TableAlias, query: &mut Query) {
    let mut body = query.body.as_ref();
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    if let SetExpr::Select(select) = body
        && !select.projection.iter().any(is_wild)
        && select.projection.len() == alias.columns.len()
    {
        later(&mut query.body);
    }
}

/// An arm whose names are read. A query in brackets is visited by itself.
fn first(body: &mut SetExpr) {
    if let SetExpr::SetOperation {
        left,
        right,
        set_quantifier,
        ..
    } = body
    {
        first(left);
        match is_by_name(*set_quantifier) {
            true => first(right),
            false => later(right),
        }
    }
}

/// An arm whose names nobody reads.
fn later(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => rename(select),
        SetExpr::Query(query) => later(&mut query.body),
        SetExpr::SetOperation {
            set_quantifier,
            left,
            right,
            ..
        } if !is_by_name(*set_quantifier) => {
            later(left);
            later(right);
        }
        SetExpr::SetOperation { .. } => first(body),
        _ => {}
    }
}

fn is_by_name(quantifier: SetQuantifier) -> bool {
    matches!(
        quantifier,
        SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName
    )
}

/// Gives other names to columns that have one an earlier column has, and to all without an alias beside a wildcard, whose
/// names are not known here. An alias that comes once stays: the rest of the SELECT may use it.
fn rename(select: &mut Select) {
    let wild = select.projection.iter().any(is_wild);
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let Some(name) = name(item) else { continue };
        let named = matches!(item, SelectItem::ExprWithAlias { .. });
        if taken.insert(name) && (named || !wild) {
            continue;
        }
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::with_quote('"', format!("_arm_{}", at + 1)),
            };
        }
    }
}

fn is_wild(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
    )
}

/// What the planner calls a column: for an expression, as good as that.
fn name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(names::ident(alias)),
        SelectItem::UnnamedExpr(expr) => Some(match labels::column(expr) {
            Some(column) => names::ident(column),
            None => expr.to_string().to_ascii_lowercase(),
        }),
        _ => None,
    }
}
