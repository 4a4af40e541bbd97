//! Filters over columns that are expressions of expressions.
//!
//! The optimizer moves a filter down to the tables and writes out in it what its columns stand for. Where each of sixteen
//! subqueries adds a column of the one inside to itself, the filter becomes 65,536 additions. What it would become is
//! worked out before, from the plan as it stands.

use datafusion::{
    common::{
        DFSchema, Result, plan_err,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, LogicalPlan},
};

/// Most expressions that one filter may become.
const FILTER_MAX: u64 = 50_000;

/// Refuses a plan with a filter that would become too large.
///
/// # Errors
/// There is such a filter.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    weights(plan).map(drop)
}

/// How many expressions each column of a plan stands for, once written out.
fn weights(plan: &LogicalPlan) -> Result<Vec<u64>> {
    let columns = plan.schema().fields().len();
    plan.apply_subqueries(|inside| {
        weights(inside)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    let inputs = plan
        .inputs()
        .into_iter()
        .map(weights)
        .collect::<Result<Vec<_>>>()?;
    let first = inputs.first().map(Vec::as_slice).unwrap_or_default();
    let mut known = match plan {
        LogicalPlan::Projection(projection) => {
            written(&projection.expr, projection.input.schema(), first)?
        }
        // Filters on what is grouped by go on below.
        LogicalPlan::Aggregate(aggregate) => {
            written(&aggregate.group_expr, aggregate.input.schema(), first)?
        }
        LogicalPlan::Filter(filter) => {
            let becomes = weight(&filter.predicate, filter.input.schema(), first)?;
            if becomes > FILTER_MAX {
                return plan_err!(
                    "a filter becomes more than {FILTER_MAX} expressions once its columns are written out: \
                     let the subqueries below it name their columns fewer times"
                );
            }
            first.to_vec()
        }
        LogicalPlan::Join(_) => inputs.concat(),
        LogicalPlan::Union(_) => {
            let widest = |column: usize| inputs.iter().filter_map(move |of| of.get(column)).max();
            (0..columns).filter_map(widest).copied().collect()
        }
        LogicalPlan::TableScan(scan) => match scan.source.get_logical_plan() {
            Some(view) if scan.projection.is_none() => weights(&view)?,
            _ => Vec::new(),
        },
        LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Window(_) => first.to_vec(),
        _ => Vec::new(),
    };
    // What is not known of is a column of its own.
    known.resize(columns, 1);
    Ok(known)
}

fn written(exprs: &[Expr], schema: &DFSchema, inputs: &[u64]) -> Result<Vec<u64>> {
    exprs
        .iter()
        .map(|expr| weight(expr, schema, inputs))
        .collect()
}

fn weight(expr: &Expr, schema: &DFSchema, inputs: &[u64]) -> Result<u64> {
    let mut weight = 0_u64;
    expr.apply(|expr| {
        let of = match expr {
            Expr::Column(column) => {
                let at = schema.maybe_index_of_column(column);
                at.and_then(|at| inputs.get(at)).copied().unwrap_or(1)
            }
            Expr::Alias(_) => 0,
            _ => 1,
        };
        weight = weight.saturating_add(of);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(weight)
}
