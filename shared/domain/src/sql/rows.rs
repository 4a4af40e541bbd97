//! What a query's output columns are made of.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Function, Ident, ObjectNamePart, Query, Select, SelectItem, Visitor};

use super::visit;

/// Whether an output column is an aggregate or a window function: removing a row changes what others give.
pub(super) fn computes_over_rows(select: &Select) -> bool {
    let mut walk = OverRows { depth: 0 };
    visit(&select.projection, &mut walk).is_break()
}

/// Finds an aggregate or a window function outside subqueries.
struct OverRows {
    depth: usize,
}

impl Visitor for OverRows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if self.depth == 0 && is_over_rows(function) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn is_over_rows(function: &Function) -> bool {
    let name = function.name.0.last().and_then(ObjectNamePart::as_ident);
    let is_aggregate =
        |ident: &Ident| AGGREGATES.contains(&ident.value.to_ascii_lowercase().as_str());
    function.over.is_some()
        || function.filter.is_some()
        || !function.within_group.is_empty()
        || name.is_some_and(is_aggregate)
}

/// Whether a function of this name, in lower case, is an aggregate.
pub(super) fn is_aggregate_name(name: &str) -> bool {
    AGGREGATES.contains(&name)
}

/// Whether the query gives this name to something that is not the column of this name.
pub(super) fn is_output_alias(select: &Select, name: &str) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            alias.value.eq_ignore_ascii_case(name) && !is_column(expr, &alias.value)
        }
        SelectItem::ExprWithAliases { aliases, .. } => {
            aliases.iter().any(|a| a.value.eq_ignore_ascii_case(name))
        }
        _ => false,
    })
}

fn is_column(expr: &Expr, name: &str) -> bool {
    let last = match expr {
        Expr::Identifier(ident) => Some(ident),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    };
    last.is_some_and(|ident: &Ident| ident.value.eq_ignore_ascii_case(name))
}

/// Aggregate functions that may stand without OVER, FILTER or WITHIN GROUP.
const AGGREGATES: &[&str] = &[
    "any_value",
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "arg_max",
    "arg_min",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "count_if",
    "covar",
    "covar_pop",
    "covar_samp",
    "first",
    "first_value",
    "grouping",
    "last",
    "last_value",
    "listagg",
    "max",
    "max_by",
    "mean",
    "median",
    "min",
    "min_by",
    "mode",
    "nth_value",
    "percentile_cont",
    "quantile_cont",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var",
    "var_pop",
    "var_population",
    "var_samp",
    "var_sample",
    "variance",
];
