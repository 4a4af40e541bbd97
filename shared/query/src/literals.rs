//! Long literals: a column of one is as many copies of it as a batch has rows.
//!
//! A text of a megabyte, written in a statement or made by a function of constants, becomes 8 GB in one batch, which no
//! memory pool counts before it is there. So a statement with long literals has batches of fewer rows.

use datafusion::{
    common::{
        Result, ScalarValue,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, LogicalPlan},
};

/// Most bytes that copies of literals take in one batch.
const BATCH_BYTES: usize = 64 << 20;

/// Rows a batch of this optimized plan may have, `most` or fewer.
///
/// # Errors
/// Whatever walking the plan brings.
pub(crate) fn batch_rows(plan: &LogicalPlan, most: usize) -> Result<usize> {
    let mut bytes = 0_usize;
    plan.apply_with_subqueries(|node| {
        // Their literals are rows as they stand.
        if !matches!(node, LogicalPlan::Values(_)) {
            node.apply_expressions(|expr| {
                bytes = bytes.saturating_add(copied(expr)?);
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((BATCH_BYTES / bytes.max(1)).clamp(1, most.max(1)))
}

/// Bytes of the literals of an expression that are evaluated for each row. The members of a list of `IN` are not.
fn copied(expr: &Expr) -> Result<usize> {
    let mut bytes = 0_usize;
    expr.apply(|expr| {
        match expr {
            Expr::Literal(value, _) => bytes = bytes.saturating_add(size(value)),
            Expr::InList(list) => {
                bytes = bytes.saturating_add(copied(&list.expr)?);
                return Ok(TreeNodeRecursion::Jump);
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

fn size(value: &ScalarValue) -> usize {
    match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => text.len(),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => bytes.len(),
        other if other.is_null() => 0,
        other if other.data_type().is_nested() => other.size(),
        _ => size_of::<i64>(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, lit};

    use super::*;

    fn rows(columns: Vec<Expr>) -> usize {
        let plan = LogicalPlanBuilder::empty(true)
            .project(columns)
            .and_then(LogicalPlanBuilder::build)
            .expect("a plan");
        batch_rows(&plan, 8192).expect("walked")
    }

    #[test]
    fn longer_literals_make_smaller_batches() {
        let text = |bytes: usize| lit("x".repeat(bytes));
        assert_eq!(rows(vec![lit(1_i64), text(1_000)]), 8192);
        assert_eq!(rows(vec![text(1 << 20)]), 64);
        assert_eq!(rows(vec![text(1 << 20), text(1 << 20).alias("b")]), 32);
        assert_eq!(rows(vec![text(65 << 20)]), 1);
        // Looked up, not copied.
        let members = (0..100).map(|n| lit(format!("{n}{}", "x".repeat(1 << 18))));
        assert_eq!(rows(vec![text(1).in_list(members.collect(), false)]), 8192);
    }
}
