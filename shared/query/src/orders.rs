//! `ORDER BY a, b, a` within an aggregate, which is also how `DISTINCT ON` is run: a term that comes again orders nothing.
//!
//! DataFusion drops the repeated term where it sorts and keeps it where it counts, and panics over the difference. Columns
//! that were written differently (`t.a`, `1`) are the same by now.

use datafusion::{
    common::tree_node::{Transformed, TreeNode},
    error::Result,
    logical_expr::{
        Expr, LogicalPlan,
        expr::{AggregateFunction, Sort},
        expr_rewriter::NamePreserver,
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

/// Leaves each term of an aggregate's ORDER BY where it comes first.
#[derive(Debug)]
pub(crate) struct OrderOnce;

impl OptimizerRule for OrderOnce {
    fn name(&self) -> &'static str {
        "order_once"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)) {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let ordered = expr.transform_up(|expr| Ok(once(expr)))?;
            Ok(match ordered.transformed {
                true => ordered.update_data(|expr| name.restore(expr)),
                false => ordered,
            })
        })
    }
}

fn once(expr: Expr) -> Transformed<Expr> {
    let mut expr = expr;
    let terms = match &mut expr {
        Expr::AggregateFunction(AggregateFunction { params, .. }) => &mut params.order_by,
        Expr::WindowFunction(window) => &mut window.params.order_by,
        _ => return Transformed::no(expr),
    };
    let before = terms.len();
    let mut kept: Vec<Sort> = Vec::with_capacity(before);
    for term in terms.drain(..) {
        if !kept
            .iter()
            .any(|earlier| bare(&earlier.expr) == bare(&term.expr))
        {
            kept.push(term);
        }
    }
    let shorter = kept.len() < before;
    *terms = kept;
    match shorter {
        true => Transformed::yes(expr),
        false => Transformed::no(expr),
    }
}

fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => bare(&alias.expr),
        other => other,
    }
}
