//! Which row came in last: by the query's own column `_seq`, or by that of its input, carried through the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use datafusion::{
    arrow::datatypes::DataType,
    common::{
        Column, DataFusionError, ExprSchema, ScalarValue,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    functions_aggregate::expr_fn::max,
    logical_expr::{
        Distinct, Expr, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Sort,
        SubqueryAlias, TableScan, Window, cast,
    },
};
use domain::{LANDING, SEQUENCE, TableName, sql::fed_by};
use ports::query::ARRIVAL;

/// A plan with a column that tells which of its rows came last.
pub(crate) struct Told {
    plan: LogicalPlan,
    sequence: Column,
    /// Whether the column is one of those that were asked for.
    own: bool,
    columns: Vec<Column>,
}

impl Told {
    /// `plan` by its column `_seq` or, when that is made of no table's, by that of what its rows are made of; none when it
    /// neither has one nor is a query of which each row comes from one row of one table with that column.
    pub(crate) fn of(plan: &LogicalPlan) -> Result<Option<Self>, DataFusionError> {
        let columns = plan.schema().columns();
        let own = own(plan)?;
        let carried = match &own {
            Own::One(sequence) => Some((plan.clone(), sequence.clone())),
            Own::Foreign(_) | Own::None => carry(plan)?,
            Own::Unfit => None,
        };
        let told = match (carried, own) {
            (None, Own::Foreign(sequence)) => Some((plan.clone(), sequence)),
            (carried, _) => carried,
        };
        Ok(told.map(|(plan, sequence)| Self {
            plan,
            own: columns.contains(&sequence),
            sequence,
            columns,
        }))
    }

    /// The one table whose sequences the column holds.
    pub(crate) fn table(&self) -> Option<TableName> {
        let at = place(&self.plan, &self.sequence)?;
        origins(&self.plan, at).only().cloned()
    }

    /// Whether the column holds sequences, of several tables perhaps.
    pub(crate) fn is_pure(&self) -> bool {
        place(&self.plan, &self.sequence).is_some_and(|at| origins(&self.plan, at).pure)
    }

    /// Whether there is a column `_seq` that says something else.
    pub(crate) fn is_misled(&self) -> bool {
        !self.own && self.columns.iter().any(|column| is_sequence(column.name()))
    }

    /// The rows in the order of the column.
    ///
    /// Rows of one landing table are in that order already, which the planner knows: nothing is sorted then.
    pub(crate) fn sorted(mut self) -> Result<Self, DataFusionError> {
        let sort = Expr::Column(self.sequence.clone()).sort(true, false);
        self.plan = LogicalPlanBuilder::from(self.plan).sort([sort])?.build()?;
        Ok(self)
    }

    /// The columns that were asked for, and no others.
    pub(crate) fn asked(self) -> Result<LogicalPlan, DataFusionError> {
        match self.own {
            true => Ok(self.plan),
            false => LogicalPlanBuilder::from(self.plan)
                .project(self.columns.into_iter().map(Expr::Column))?
                .build(),
        }
    }

    /// The columns that were asked for, and the one that tells behind them, as [`ARRIVAL`].
    pub(crate) fn with_arrival(self) -> Result<LogicalPlan, DataFusionError> {
        let arrival = cast(Expr::Column(self.sequence), DataType::Int64).alias(ARRIVAL);
        let columns = self.columns.into_iter().map(Expr::Column);
        LogicalPlanBuilder::from(self.plan)
            .project(columns.chain([arrival]))?
            .build()
    }
}

/// What the values of a column are made of.
#[derive(Default)]
struct Origins {
    /// Tables whose sequences they are made of.
    tables: BTreeSet<TableName>,
    /// Whether they are those sequences, and nothing else.
    pure: bool,
}

impl Origins {
    /// The one table whose sequences they are. Those of two tables have no order among them.
    fn only(&self) -> Option<&TableName> {
        let mut tables = self.tables.iter();
        match (tables.next(), tables.next()) {
            (Some(table), None) if self.pure => Some(table),
            _ => None,
        }
    }

    fn and(mut self, others: Self) -> Self {
        self.tables.extend(others.tables);
        self.pure &= others.pure;
        self
    }
}

fn is_sequence(name: &str) -> bool {
    name.eq_ignore_ascii_case(SEQUENCE)
}

fn place(plan: &LogicalPlan, column: &Column) -> Option<usize> {
    plan.schema().maybe_index_of_column(column)
}

/// Of the column of a plan at this place.
fn origins(plan: &LogicalPlan, at: usize) -> Origins {
    match plan {
        LogicalPlan::TableScan(scan) => scanned(scan, at).unwrap_or_default(),
        LogicalPlan::Projection(of) => made_of(of.expr.get(at), &of.input),
        LogicalPlan::Distinct(Distinct::On(of)) => made_of(of.select_expr.get(at), &of.input),
        LogicalPlan::Aggregate(of) => {
            let groups = of.schema.fields().len() - of.aggr_expr.len();
            match at.checked_sub(groups) {
                None => made_of(of.group_expr.get(at), &of.input),
                Some(at) => made_of(of.aggr_expr.get(at), &of.input),
            }
        }
        LogicalPlan::Window(of) => match at.checked_sub(of.input.schema().fields().len()) {
            None => origins(&of.input, at),
            Some(at) => made_of(of.window_expr.get(at), &of.input),
        },
        LogicalPlan::Join(of) => {
            let (left, right) = (of.left.schema(), of.right.schema());
            let is_right = of.schema.fields().len() == right.fields().len();
            // Of a join that keeps one side only, its columns are all there are.
            if is_right && of.schema.columns() == right.columns() {
                return origins(&of.right, at);
            }
            match at.checked_sub(left.fields().len()) {
                None => origins(&of.left, at),
                Some(at) if at < right.fields().len() => origins(&of.right, at),
                Some(_) => Origins::default(),
            }
        }
        LogicalPlan::Union(of) => {
            let inputs = of.inputs.iter().map(|input| origins(input, at));
            inputs.reduce(Origins::and).unwrap_or_default()
        }
        LogicalPlan::Unnest(of) => match of.dependency_indices.get(at) {
            Some(at) => origins(&of.input, *at),
            None => Origins::default(),
        },
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => {
            (plan.inputs().first()).map_or_else(Origins::default, |input| origins(input, at))
        }
        _ => Origins::default(),
    }
}

fn scanned(scan: &TableScan, at: usize) -> Option<Origins> {
    let is_own = is_sequence(scan.projected_schema.fields().get(at)?.name());
    let name = &scan.table_name;
    let table = TableName::new(name.schema()?, name.table()).ok()?;
    // A feed has the rows of its table.
    let table = fed_by(&table).unwrap_or(table);
    is_own.then(|| Origins {
        tables: BTreeSet::from([table]),
        pure: true,
    })
}

/// Of what an expression is made of, over what it reads.
fn made_of(expr: Option<&Expr>, input: &LogicalPlan) -> Origins {
    let Some(expr) = expr else {
        return Origins::default();
    };
    let of = |column: &Column| place(input, column).map(|at| origins(input, at));
    if let Some(column) = carried(expr) {
        return of(column).unwrap_or_default();
    }
    let columns = expr.column_refs().into_iter().filter_map(of);
    Origins {
        pure: false,
        ..columns.reduce(Origins::and).unwrap_or_default()
    }
}

/// The column whose values an expression has, or the last of a group of them.
fn carried(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(of) => carried(&of.expr),
        Expr::Cast(of) => carried(&of.expr),
        Expr::AggregateFunction(of) if of.func.name() == "max" && of.params.filter.is_none() => {
            match of.params.args.as_slice() {
                [only] => carried(only),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a plan has a column of sequences that is not the sequence of one table.
pub(crate) fn is_foreign(plan: &LogicalPlan) -> bool {
    let fields = plan.schema().fields().iter().enumerate();
    let mut own = fields.filter(|(_, field)| is_sequence(field.name()));
    own.any(|(at, _)| origins(plan, at).only().is_none())
}

/// A comparison of sequences with the watermark of a table whose sequences they are not: rows that it loses nobody misses.
/// `watermarks` by table, where a statement has one.
pub(crate) fn misread(
    plan: &LogicalPlan,
    watermarks: &BTreeMap<TableName, Option<u64>>,
) -> Result<Option<String>, DataFusionError> {
    let mut misread = None;
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::Filter(filter) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        filter.predicate.apply(|expr| {
            let Some((column, value)) = compared(expr) else {
                return Ok(TreeNodeRecursion::Continue);
            };
            let mut of = (watermarks.iter())
                .filter(|(_, watermark)| **watermark == Some(value))
                .map(|(table, _)| table)
                .peekable();
            let made = place(&filter.input, column).map(|at| origins(&filter.input, at));
            if let (Some(one), Some(made)) = (of.peek().copied(), made)
                && !of.any(|table| made.only() == Some(table))
            {
                misread = Some(format!(
                    "{} > {{watermark:{one}}} compares what is not the {SEQUENCE} of {one}: filter the rows of {one} by \
                     their own {SEQUENCE}, inside of the query, and give what is something else another name",
                    column.name()
                ));
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(misread)
}

/// A column of sequences that an expression says to be above a number.
fn compared(expr: &Expr) -> Option<(&Column, u64)> {
    let Expr::BinaryExpr(of) = expr else {
        return None;
    };
    let sides = match of.op {
        Operator::Gt | Operator::GtEq => (&*of.left, &*of.right),
        Operator::Lt | Operator::LtEq => (&*of.right, &*of.left),
        _ => return None,
    };
    match sides {
        (Expr::Column(column), Expr::Literal(ScalarValue::Int64(Some(value)), _))
            if is_sequence(column.name()) =>
        {
            Some((column, u64::try_from(*value).ok()?))
        }
        _ => None,
    }
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
    /// One of something else than sequences.
    Foreign(Column),
    /// Several, or one whose values have another order than sequences.
    Unfit,
}

fn own(plan: &LogicalPlan) -> Result<Own, DataFusionError> {
    let columns = plan.schema().columns().into_iter();
    let mut own = columns.filter(|column| is_sequence(column.name()));
    Ok(match (own.next(), own.next()) {
        (None, _) => Own::None,
        (Some(sequence), None) if plan.schema().data_type(&sequence)?.is_numeric() => {
            let made = place(plan, &sequence).map(|at| origins(plan, at));
            match made.is_some_and(|made| made.pure) {
                true => Own::One(sequence),
                false => Own::Foreign(sequence),
            }
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
            Own::Foreign(_) | Own::None => {}
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
            expressions.push(Expr::Column(sequence).alias(ARRIVAL));
            let projection = Projection::try_new(expressions, input)?;
            let sequence = Column::new_unqualified(ARRIVAL);
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
