//! Rows in the order that they came in: of the query's own column `_seq`, or of its input's, carried through the plan.

use std::sync::Arc;

use datafusion::{
    common::{Column, DataFusionError},
    logical_expr::{
        Expr, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Sort, SubqueryAlias,
        Window,
    },
};
use domain::SEQUENCE;

/// The rows of `plan` in the order of their sequences; none when it neither has a column `_seq` nor is a query of
/// which each row comes from one row of one table with that column.
///
/// Rows of one landing table are in that order already, which the planner knows: nothing is sorted then.
pub(crate) fn by_sequence(plan: &LogicalPlan) -> Result<Option<LogicalPlan>, DataFusionError> {
    let columns = plan.schema().columns();
    let Some((carried, sequence)) = carry(plan)? else {
        return Ok(None);
    };
    let is_own = columns.contains(&sequence);
    let sort = Expr::Column(sequence).sort(true, false);
    let sorted = LogicalPlanBuilder::from(carried).sort([sort])?;
    let sorted = match is_own {
        true => sorted,
        // Whoever asked sees the columns that were asked for.
        false => sorted.project(columns.into_iter().map(Expr::Column))?,
    };
    sorted.build().map(Some)
}

/// Whether a query tells which of its rows is the last: by an order, or a column of sequences.
pub(crate) fn is_told(plan: &LogicalPlan) -> bool {
    let mut fields = plan.schema().fields().iter();
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Limit(limit) => is_told(&limit.input),
        // What is sorted by need not be among the columns.
        LogicalPlan::Projection(of) if matches!(*of.input, LogicalPlan::Sort(_)) => true,
        _ => fields.any(|field| field.name() == SEQUENCE),
    }
}

/// The plan with a column of sequences among its own, and that column.
fn carry(plan: &LogicalPlan) -> Result<Option<(LogicalPlan, Column)>, DataFusionError> {
    let columns = plan.schema().columns().into_iter();
    let mut own = columns.filter(|column| column.name() == SEQUENCE);
    match (own.next(), own.next()) {
        (Some(sequence), None) => return Ok(Some((plan.clone(), sequence))),
        (Some(_), Some(_)) => return Ok(None),
        (None, _) => {}
    }
    let Some(input) = one_to_one(plan) else {
        return Ok(None);
    };
    let Some((input, sequence)) = carry(input)? else {
        return Ok(None);
    };
    let input = Arc::new(input);
    let (plan, sequence) = match plan {
        LogicalPlan::Projection(projection) => {
            let mut expressions = projection.expr.clone();
            expressions.push(Expr::Column(sequence.clone()));
            let projection = Projection::try_new(expressions, input)?;
            (LogicalPlan::Projection(projection), sequence)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let sequence = Column::new(Some(alias.alias.clone()), SEQUENCE);
            let alias = SubqueryAlias::try_new(input, alias.alias.clone())?;
            (LogicalPlan::SubqueryAlias(alias), sequence)
        }
        LogicalPlan::Filter(filter) => {
            let filter = Filter::try_new(filter.predicate.clone(), input)?;
            (LogicalPlan::Filter(filter), sequence)
        }
        LogicalPlan::Window(window) => {
            let window = Window::try_new(window.window_expr.clone(), input)?;
            (LogicalPlan::Window(window), sequence)
        }
        LogicalPlan::Sort(sort) => {
            let sort = Sort {
                input,
                ..sort.clone()
            };
            (LogicalPlan::Sort(sort), sequence)
        }
        LogicalPlan::Limit(limit) => {
            let limit = Limit {
                input,
                ..limit.clone()
            };
            (LogicalPlan::Limit(limit), sequence)
        }
        _ => return Ok(None),
    };
    Ok(Some((plan, sequence)))
}

/// What a node reads, if each of its rows is made of one row of it and a further column changes nothing.
fn one_to_one(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) => Some(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => Some(&alias.input),
        LogicalPlan::Filter(filter) => Some(&filter.input),
        LogicalPlan::Window(window) => Some(&window.input),
        LogicalPlan::Sort(sort) => Some(&sort.input),
        LogicalPlan::Limit(limit) => Some(&limit.input),
        _ => None,
    }
}
