//! What an expression is made of.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query,
    Statement, Value, Visit, VisitMut, Visitor, VisitorMut, WindowType,
};

use super::Untraceable;
use crate::{
    TableName,
    sql::{rows::is_aggregate_name, visit, visit_mut},
};

/// Functions that give something else each time.
const VOLATILE: &[&str] = &[
    "current_date",
    "current_time",
    "current_timestamp",
    "gen_random_uuid",
    "localtime",
    "localtimestamp",
    "now",
    "rand",
    "random",
    "today",
    "uuid",
];

/// Refuses a statement that gives something else each time it is run over the same rows.
pub(super) fn is_repeatable(statement: &Statement) -> Result<(), Untraceable> {
    struct Walk;
    impl Visitor for Walk {
        type Break = String;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
            let name = match expr {
                Expr::Function(function) => name(function),
                _ => None,
            };
            match name.filter(|name| VOLATILE.contains(&name.as_str())) {
                Some(name) => ControlFlow::Break(name),
                None => ControlFlow::Continue(()),
            }
        }
    }
    match visit(statement, &mut Walk) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(name) => Err(Untraceable::because(format!(
            "`{name}` gives something else each time"
        ))),
    }
}

fn name(function: &Function) -> Option<String> {
    let name = function.name.0.last().and_then(ObjectNamePart::as_ident)?;
    Some(name.value.to_ascii_lowercase())
}

/// What an expression is made of, subqueries apart.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Columns as written: `a`, `t.a`, `s.t.a`.
    pub columns: Vec<Vec<Ident>>,
    /// An aggregate that is no window function.
    pub aggregates: bool,
    /// Window functions.
    pub windows: Vec<WindowType>,
    /// Whether it has a subquery.
    pub subquery: bool,
    depth: usize,
}

/// What an expression, or anything else that holds some, is made of.
pub(super) fn uses(of: &impl Visit) -> Uses {
    let mut uses = Uses::default();
    let _ = visit(of, &mut uses);
    uses
}

impl Visitor for Uses {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.subquery = true;
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Identifier(name) => self.columns.push(vec![name.clone()]),
            Expr::CompoundIdentifier(parts) => self.columns.push(parts.clone()),
            Expr::Function(function) => match &function.over {
                Some(window) => self.windows.push(window.clone()),
                None => self.aggregates |= is_aggregate(function),
            },
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Whether subqueries in expressions name any table or CTE, and the first table.
pub(super) fn reads(of: &impl Visit) -> (bool, Option<TableName>) {
    #[derive(Default)]
    struct Walk(bool, Option<TableName>);
    impl Visitor for Walk {
        type Break = ();

        fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
            self.0 = true;
            let parts: Vec<_> = name.0.iter().filter_map(ObjectNamePart::as_ident).collect();
            if let ([schema, table], None) = (&parts[..], &self.1) {
                self.1 = TableName::new(&schema.value, &table.value).ok();
            }
            ControlFlow::Continue(())
        }
    }
    let mut walk = Walk::default();
    let _ = visit(of, &mut walk);
    (walk.0, walk.1)
}

fn is_aggregate(function: &Function) -> bool {
    let distinct = match &function.args {
        FunctionArguments::List(list) => {
            list.duplicate_treatment.is_some() || !list.clauses.is_empty()
        }
        FunctionArguments::None | FunctionArguments::Subquery(_) => false,
    };
    distinct
        || function.filter.is_some()
        || !function.within_group.is_empty()
        || name(function).is_some_and(|name| is_aggregate_name(&name))
}

/// The parts of a condition all of which must hold.
pub(super) fn conjuncts(condition: &Expr) -> Vec<&Expr> {
    match condition {
        Expr::Nested(inner) => conjuncts(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            let mut all = conjuncts(left);
            all.extend(conjuncts(right));
            all
        }
        other => vec![other],
    }
}

/// An expression in the one spelling that it is compared by: names in lower case, and without their relation where there
/// is only one.
pub(super) fn canonical(expr: &Expr, alone: bool) -> String {
    struct Fold(bool);
    impl VisitorMut for Fold {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.0
                && let Expr::CompoundIdentifier(parts) = expr
                && let [_, column] = parts.as_slice()
            {
                *expr = Expr::Identifier(column.clone());
            }
            let fold = |name: &mut Ident| {
                if name.quote_style.is_none() {
                    name.value.make_ascii_lowercase();
                }
            };
            match expr {
                Expr::Identifier(name) => fold(name),
                Expr::CompoundIdentifier(parts) => parts.iter_mut().for_each(fold),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut folded = expr.clone();
    while let Expr::Nested(inner) = folded {
        folded = *inner;
    }
    let _ = visit_mut(&mut folded, &mut Fold(alone));
    folded.to_string()
}

/// Whether an expression has one value wherever some others do: nothing else of the row is in it.
pub(super) fn is_determined(expr: &Expr, by: &[String], alone: bool) -> bool {
    struct Cut<'a>(&'a [String], bool);
    impl VisitorMut for Cut<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.0.contains(&canonical(expr, self.1)) {
                *expr = Expr::Value(Value::Null.into());
            }
            ControlFlow::Continue(())
        }
    }
    let mut rest = expr.clone();
    let _ = visit_mut(&mut rest, &mut Cut(by, alone));
    uses(&rest).columns.is_empty()
}

/// Takes the schema off names such as `silver.orders.id`, where `orders` goes by no other name.
pub(super) fn shorten(tree: &mut impl VisitMut, tables: &[(Ident, Ident)]) {
    struct Walk<'a>(&'a [(Ident, Ident)]);
    impl VisitorMut for Walk<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr
                && let [schema, table, _, ..] = parts.as_slice()
                && self.0.iter().any(|(s, t)| {
                    s.value.eq_ignore_ascii_case(&schema.value)
                        && t.value.eq_ignore_ascii_case(&table.value)
                })
            {
                parts.remove(0);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = visit_mut(tree, &mut Walk(tables));
}
