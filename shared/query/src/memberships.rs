//! IN and NOT IN over subqueries where it counts whether the answer is NULL.
//!
//! DataFusion makes joins of them, which say true or false. That is right for an IN that only lets rows through, and for a
//! NOT IN that does, of a column and a subquery of its own. All others are said as `= ANY`, which it answers with NULL where
//! SQL does.

use datafusion::{
    common::{
        Result,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        BinaryExpr, Expr, LogicalPlan, Operator,
        expr::{InSubquery, SetComparison, SetQuantifier},
        expr_rewriter::NamePreserver,
    },
    optimizer::AnalyzerRule,
};

/// Says IN and NOT IN in other words where a join would lose a NULL.
#[derive(Debug)]
pub(crate) struct Memberships;

impl AnalyzerRule for Memberships {
    fn name(&self) -> &str {
        "memberships"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let place = match &plan {
                LogicalPlan::Filter(_) => Place::All,
                _ => Place::Value,
            };
            // A column that is named after its expression keeps the name.
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                Ok(within(expr, place)?.update_data(|expr| name.restore(expr)))
            })
        });
        Ok(rewritten?.data)
    }
}

/// Where an expression stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is a condition that lets rows through, or one of several that all have to.
    All,
    /// It may let rows through where others do not: NULL is as good as false.
    Any,
    /// Its value counts.
    Value,
}

fn within(expr: Expr, place: Place) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if place != Place::Value && matches!(op, Operator::And | Operator::Or) =>
        {
            let place = match op {
                Operator::And => place,
                _ => Place::Any,
            };
            let (left, right) = (within(*left, place)?, within(*right, place)?);
            let changed = left.transformed || right.transformed;
            let both = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            Ok(match changed {
                true => Transformed::yes(Expr::BinaryExpr(both)),
                false => Transformed::no(Expr::BinaryExpr(both)),
            })
        }
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(asked) => within(
                Expr::InSubquery(InSubquery {
                    negated: !asked.negated,
                    ..asked
                }),
                place,
            ),
            inner => Expr::Not(Box::new(inner)).map_children(|one| within(one, Place::Value)),
        },
        Expr::InSubquery(asked) if !is_joined(&asked, place) => {
            let InSubquery {
                expr,
                subquery,
                negated,
            } = asked;
            let any = SetComparison::new(expr, subquery, Operator::Eq, SetQuantifier::Any);
            let any = Expr::SetComparison(any);
            Ok(Transformed::yes(match negated {
                true => Expr::Not(Box::new(any)),
                false => any,
            }))
        }
        other => other.map_children(|one| within(one, Place::Value)),
    }
}

/// Whether a join answers it.
fn is_joined(asked: &InSubquery, place: Place) -> bool {
    match (asked.negated, place) {
        (_, Place::Value) => false,
        (false, _) => true,
        (true, Place::Any) => false,
        (true, Place::All) => {
            let is_own = asked.subquery.outer_ref_columns.is_empty();
            is_own && !asked.expr.column_refs().is_empty()
        }
    }
}
