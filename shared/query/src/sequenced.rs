//! Rows in the order that they came in: of the query's own column `_seq`, or of its input's, carried through the plan.

use std::{collections::BTreeSet, sync::Arc};

use datafusion::{
    arrow::datatypes::DataType,
    common::{Column, DataFusionError, ExprSchema, tree_node::TreeNode},
    functions_aggregate::expr_fn::max,
    logical_expr::{
        Distinct, Expr, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Sort,
        SubqueryAlias, Window,
    },
};
use domain::{LANDING, SEQUENCE};

/// The rows of `plan` in the order of their sequences; none when it neither has a column `_seq` nor is a query of
/// which each row comes from one row of one table with that column.
///
/// Rows of one landing table are in that order already, which the planner knows: nothing is sorted then.
pub(crate) fn by_sequence(plan: &LogicalPlan) -> Result<Option<LogicalPlan>, DataFusionError> {
    let columns = plan.schema().columns();
    let own = own(plan)?;
    let carried = match own {
        Own::One(sequence) => Some((plan.clone(), sequence)),
        Own::Unfit => None,
        Own::None => carry(plan)?,
    };
    let Some((carried, sequence)) = carried else {
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

/// Whether rows tell by a column of sequences which of them is the last.
pub(crate) fn is_told(plan: &LogicalPlan) -> bool {
    let is_read = |kind: &DataType| matches!(kind, DataType::Int64 | DataType::Int32);
    let mut fields = plan.schema().fields().iter();
    fields.any(|field| field.name() == SEQUENCE && is_read(field.data_type()))
}

/// Whether rows come as those of one landing table that they are made of, several of one perhaps.
pub(crate) fn is_as_landed(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => scan.table_name.schema() == Some(LANDING),
        LogicalPlan::Projection(of) => !of.expr.iter().any(asks) && is_as_landed(&of.input),
        LogicalPlan::Filter(of) => !asks(&of.predicate) && is_as_landed(&of.input),
        LogicalPlan::SubqueryAlias(of) => is_as_landed(&of.input),
        LogicalPlan::Unnest(of) => is_as_landed(&of.input),
        _ => false,
    }
}

/// Whether an expression has a query in it, which becomes a join.
fn asks(expr: &Expr) -> bool {
    let is_query = |expr: &Expr| {
        matches!(
            expr,
            Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::ScalarSubquery(_)
                | Expr::SetComparison(_)
        )
    };
    // What cannot be looked through is taken for one.
    expr.exists(|inner| Ok(is_query(inner))).unwrap_or(true)
}

/// Columns that no two rows have in common; none when none are known.
pub(crate) fn unique(plan: &LogicalPlan) -> Option<Vec<String>> {
    match plan {
        LogicalPlan::Projection(of) => {
            let column = |inner: &String| {
                of.expr.iter().find_map(|expr| match expr {
                    Expr::Column(column) if column.name() == inner => Some(inner.clone()),
                    Expr::Alias(alias) => match &*alias.expr {
                        Expr::Column(column) if column.name() == inner => Some(alias.name.clone()),
                        _ => None,
                    },
                    _ => None,
                })
            };
            unique(&of.input)?.iter().map(column).collect()
        }
        LogicalPlan::SubqueryAlias(of) => unique(&of.input),
        LogicalPlan::Filter(of) => unique(&of.input),
        LogicalPlan::Sort(of) => unique(&of.input),
        LogicalPlan::Limit(of) => unique(&of.input),
        LogicalPlan::Distinct(Distinct::All(_)) => {
            let fields = plan.schema().fields().iter();
            Some(fields.map(|field| field.name().clone()).collect())
        }
        LogicalPlan::Aggregate(of) if !of.group_expr.iter().any(is_sets) => {
            let fields = of.schema.fields().iter().take(of.group_expr.len());
            let names: Vec<String> = fields.map(|field| field.name().clone()).collect();
            // Two of one name, of two relations, are not told apart behind this.
            let distinct: BTreeSet<&String> = names.iter().collect();
            (distinct.len() == names.len()).then_some(names)
        }
        _ => None,
    }
}

fn is_sets(expr: &Expr) -> bool {
    matches!(expr, Expr::GroupingSet(_))
}

/// The column of sequences that a plan has.
enum Own {
    None,
    One(Column),
    /// Several, or one whose values have another order than sequences.
    Unfit,
}

fn own(plan: &LogicalPlan) -> Result<Own, DataFusionError> {
    let columns = plan.schema().columns().into_iter();
    let mut own = columns.filter(|column| column.name() == SEQUENCE);
    Ok(match (own.next(), own.next()) {
        (None, _) => Own::None,
        (Some(sequence), None) if plan.schema().data_type(&sequence)?.is_numeric() => {
            Own::One(sequence)
        }
        (Some(_), _) => Own::Unfit,
    })
}

/// The plan with a column of sequences among its own, and that column.
fn carry(plan: &LogicalPlan) -> Result<Option<(LogicalPlan, Column)>, DataFusionError> {
    // What a table has or a query names; that of one side of a join says nothing about the other's rows.
    if let LogicalPlan::TableScan(_) | LogicalPlan::Projection(_) = plan {
        match own(plan)? {
            Own::One(sequence) => return Ok(Some((plan.clone(), sequence))),
            Own::Unfit => return Ok(None),
            Own::None => {}
        }
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
            let sequence = Column::new(Some(alias.alias.clone()), sequence.name());
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
        // Of rows that are alike the last one counts.
        LogicalPlan::Distinct(Distinct::All(of)) => {
            let alike = of.schema().columns().into_iter().map(Expr::Column);
            let last = LogicalPlanBuilder::from(input)
                .aggregate(alike, [max(Expr::Column(sequence))])?
                .build()?;
            let columns = last.schema().columns();
            let Some(sequence) = columns.into_iter().next_back() else {
                return Ok(None);
            };
            (last, sequence)
        }
        _ => return Ok(None),
    };
    Ok(Some((plan, sequence)))
}

/// What a node reads, if each of its rows is made of one row of it, or of some that are alike.
fn one_to_one(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) => Some(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => Some(&alias.input),
        LogicalPlan::Filter(filter) => Some(&filter.input),
        LogicalPlan::Window(window) => Some(&window.input),
        LogicalPlan::Sort(sort) => Some(&sort.input),
        LogicalPlan::Limit(limit) => Some(&limit.input),
        LogicalPlan::Distinct(Distinct::All(input)) => Some(input),
        _ => None,
    }
}
