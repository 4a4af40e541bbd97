//! A landing table: parts in sequence order, read only as far back as the filters on `_seq` say.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::{
    arrow::datatypes::SchemaRef,
    catalog::{Session, TableProvider},
    common::{Result, ScalarValue},
    datasource::TableType,
    logical_expr::{Between, BinaryExpr, Expr, Operator, TableProviderFilterPushDown},
    physical_plan::ExecutionPlan,
};
use domain::SEQUENCE;
use ports::tables::Pin;

use crate::{
    model::{Lake, external},
    parts::{Parts, Window},
};

/// A pinned landing table.
#[derive(Debug)]
pub(crate) struct LandingTable {
    pub(crate) pin: Pin,
    /// The last sequence that is read.
    pub(crate) through: u64,
    pub(crate) schema: SchemaRef,
    pub(crate) lake: Arc<Lake>,
}

#[async_trait]
impl TableProvider for LandingTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = Window {
            after: 0,
            through: self.through,
        };
        let window = filters.iter().map(window).fold(all, Window::both);
        let parts = if window.after < window.through {
            self.lake
                .tables
                .scan(&self.pin, window.after)
                .await
                .map_err(external)?
                .parts
        } else {
            Vec::new()
        };
        let (schema, projection) = (Arc::clone(&self.schema), projection.cloned());
        let footers = Arc::clone(&self.lake.footers);
        Parts {
            schema,
            projection,
            parts,
            window,
            ordered: true,
            footers,
        }
        .plan()
    }
}

impl Window {
    fn both(self, other: Self) -> Self {
        let after = self.after.max(other.after);
        Self {
            after,
            through: self.through.min(other.through),
        }
    }

    fn either(self, other: Self) -> Self {
        let after = self.after.min(other.after);
        Self {
            after,
            through: self.through.max(other.through),
        }
    }
}

/// The sequences a filter can select; everything when it does not say.
fn window(filter: &Expr) -> Window {
    match filter {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::And,
            right,
        }) => window(left).both(window(right)),
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => window(left).either(window(right)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (number(left), number(right)) {
            (None, Some(value)) if is_sequence(left) => compared(*op, value),
            (Some(value), None) if is_sequence(right) => {
                op.swap().map_or(Window::ALL, |op| compared(op, value))
            }
            _ => Window::ALL,
        },
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) if is_sequence(expr) => {
            let low = number(low).map_or(Window::ALL, |low| compared(Operator::GtEq, low));
            let high = number(high).map_or(Window::ALL, |high| compared(Operator::LtEq, high));
            low.both(high)
        }
        _ => Window::ALL,
    }
}

fn compared(op: Operator, value: i64) -> Window {
    let value = u64::try_from(value).unwrap_or(0);
    let Window { after, through } = Window::ALL;
    match op {
        Operator::Gt => Window {
            after: value,
            through,
        },
        Operator::GtEq => Window {
            after: value.saturating_sub(1),
            through,
        },
        Operator::Eq => Window {
            after: value.saturating_sub(1),
            through: value,
        },
        Operator::LtEq => Window {
            after,
            through: value,
        },
        Operator::Lt => Window {
            after,
            through: value.saturating_sub(1),
        },
        _ => Window::ALL,
    }
}

fn is_sequence(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name == SEQUENCE)
}

fn number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(value), _) => *value,
        Expr::Alias(alias) => number(&alias.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    #[test]
    fn filters_on_the_sequence_say_what_is_read() {
        let seq = || col("_seq");
        let check = |filter: Expr, after, through| {
            assert_eq!(window(&filter), Window { after, through }, "{filter}");
        };
        check(seq().gt(lit(5_i64)), 5, u64::MAX);
        check(seq().gt_eq(lit(5_i64)).and(seq().lt(lit(9_i64))), 4, 8);
        check(lit(5_i64).lt(seq()).and(col("x").eq(lit(1))), 5, u64::MAX);
        check(seq().eq(lit(7_i64)), 6, 7);
        check(seq().between(lit(3_i64), lit(4_i64)), 2, 4);
        check(seq().gt(lit(5_i64)).or(seq().gt(lit(3_i64))), 3, u64::MAX);
        check(seq().gt(lit(5_i64)).or(col("x").eq(lit(1))), 0, u64::MAX);
        check(seq().gt(lit(-1_i64)), 0, u64::MAX);
        check(seq().not_eq(lit(5_i64)), 0, u64::MAX);
    }
}
