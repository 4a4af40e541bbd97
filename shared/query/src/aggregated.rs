//! Subqueries of EXISTS, IN, ANY and ALL that are one aggregate of everything, as in `EXISTS (SELECT count(*) ..)`.
//!
//! Such a subquery has a row where nothing matches, too. DataFusion makes joins of these words, for which it groups the
//! aggregate by the columns of the outer query, and a row without a match is lost. As a scalar subquery it is counted right.

use datafusion::{
    common::{
        Result,
        config::ConfigOptions,
        plan_err,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        Distinct, Expr, LogicalPlan, Operator, binary_expr, expr_rewriter::NamePreserver, lit,
        logical_plan::Subquery,
    },
    optimizer::AnalyzerRule,
};

/// Says EXISTS, IN, ANY and ALL over one aggregate in other words, and refuses what has none.
#[derive(Debug)]
pub(crate) struct LoneAggregates;

impl AnalyzerRule for LoneAggregates {
    fn name(&self) -> &str {
        "lone_aggregates"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            // A column that is named after its expression keeps the name.
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                Ok(expr
                    .transform_up(rewrite)?
                    .update_data(|expr| name.restore(expr)))
            })
        });
        Ok(rewritten?.data)
    }
}

fn rewrite(expr: Expr) -> Result<Transformed<Expr>> {
    let asked = match &expr {
        Expr::ScalarSubquery(asked) => asked,
        Expr::Exists(exists) => &exists.subquery,
        Expr::InSubquery(within) => &within.subquery,
        Expr::SetComparison(compared) => &compared.subquery,
        _ => return Ok(Transformed::no(expr)),
    };
    match rows(asked) {
        Rows::Any => Ok(Transformed::no(expr)),
        Rows::Distinct => plan_err!(
            "a subquery that uses columns of the outer query and has DISTINCT over an aggregate without GROUP BY, which is \
             one row: leave out DISTINCT"
        ),
        Rows::One | Rows::Unknown if matches!(expr, Expr::ScalarSubquery(_)) => {
            Ok(Transformed::no(expr))
        }
        Rows::Unknown => plan_err!(
            "a subquery of EXISTS, IN, ANY or ALL that uses columns of the outer query and filters or limits an aggregate \
             without GROUP BY, or has ROLLUP, CUBE or GROUPING SETS: compare with a scalar subquery instead, as in \
             `(SELECT count(*) ..) = 0`"
        ),
        Rows::One => Ok(Transformed::yes(match expr {
            Expr::Exists(exists) => lit(!exists.negated),
            Expr::InSubquery(within) => {
                let op = match within.negated {
                    true => Operator::NotEq,
                    false => Operator::Eq,
                };
                binary_expr(*within.expr, op, Expr::ScalarSubquery(within.subquery))
            }
            Expr::SetComparison(compared) => binary_expr(
                *compared.expr,
                compared.op,
                Expr::ScalarSubquery(compared.subquery),
            ),
            other => other,
        })),
    }
}

/// How many rows a subquery has for a row of the outer query.
enum Rows {
    /// One, whatever matches.
    One,
    /// One or none, as its filter or limit says, of an aggregate of what matches; or one more than what matches.
    Unknown,
    /// One, which is taken for as many as match.
    Distinct,
    /// As many as match: what a join finds.
    Any,
}

fn rows(subquery: &Subquery) -> Rows {
    if subquery.outer_ref_columns.is_empty() {
        return Rows::Any;
    }
    let (mut plan, mut filtered, mut distinct) = (subquery.subquery.as_ref(), false, false);
    loop {
        plan = match plan {
            LogicalPlan::Projection(of) => &of.input,
            LogicalPlan::SubqueryAlias(of) => &of.input,
            LogicalPlan::Sort(of) if of.fetch.is_none() => &of.input,
            LogicalPlan::Aggregate(of) if of.group_expr.is_empty() => {
                return match filtered {
                    _ if distinct => Rows::Distinct,
                    true => Rows::Unknown,
                    false => Rows::One,
                };
            }
            LogicalPlan::Aggregate(of) if matches!(of.group_expr[..], [Expr::GroupingSet(_)]) => {
                return Rows::Unknown;
            }
            LogicalPlan::Distinct(Distinct::All(of)) => {
                distinct = true;
                of
            }
            LogicalPlan::Filter(of) => {
                filtered = true;
                &of.input
            }
            LogicalPlan::Limit(of) => {
                filtered = true;
                &of.input
            }
            _ => return Rows::Any,
        };
    }
}
