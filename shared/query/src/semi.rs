//! `x IN (SELECT ..)` over a subquery that repeats its values: each value is kept once before it is joined.
//!
//! A hash join keeps every row of its build side, and a probe walks all that are equal. For a semi join one is enough: with
//! a million rows of fifty regions on both sides the walk is twenty thousand steps for each of a million rows.

use datafusion::{
    common::{JoinType, tree_node::Transformed},
    error::Result,
    logical_expr::{Aggregate, Expr, Join, LogicalPlan, LogicalPlanBuilder},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};
use std::sync::Arc;

/// Puts a DISTINCT under the right side of semi and anti joins that compare columns for equality and nothing else.
#[derive(Debug)]
pub(crate) struct DistinctSemi;

impl OptimizerRule for DistinctSemi {
    fn name(&self) -> &'static str {
        "distinct_semi"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = plan else {
            return Ok(Transformed::no(plan));
        };
        let Some(keys) = keys(&join) else {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        };
        let right = LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.right))
            .aggregate(keys, Vec::<Expr>::new())?
            .build()?;
        // The columns of such a join are those of its left side: its schema stays.
        Ok(Transformed::yes(LogicalPlan::Join(Join {
            right: Arc::new(right),
            ..join
        })))
    }
}

/// The columns of the right side to keep once each; none when the join is another one or its rows differ already.
fn keys(join: &Join) -> Option<Vec<Expr>> {
    let one_is_enough = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti);
    if !one_is_enough || join.filter.is_some() || join.null_aware || join.on.is_empty() {
        return None;
    }
    let mut keys: Vec<Expr> = join.on.iter().map(|(_, right)| right.clone()).collect();
    keys.dedup();
    let plain = keys.iter().all(|key| matches!(key, Expr::Column(_)));
    (plain && !is_distinct(&join.right)).then_some(keys)
}

/// Whether no two rows of the plan are equal, as far as its topmost parts tell.
fn is_distinct(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(Aggregate { aggr_expr, .. }) => aggr_expr.is_empty(),
        LogicalPlan::Distinct(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_distinct(&alias.input),
        LogicalPlan::Projection(projection) => {
            // One that only renames or reorders columns keeps rows apart.
            projection.expr.len() == projection.input.schema().fields().len()
                && is_distinct(&projection.input)
        }
        _ => false,
    }
}
