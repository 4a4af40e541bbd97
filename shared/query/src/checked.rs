//! Arithmetic of integers that fails where DataFusion's wraps around, and text that is joined within bounds.
//!
//! `9223372036854775807 + 1` is an error and no negative number, as division and `abs` have it. `||` is looked at before
//! it is done, as other functions that make much are (`growth`).

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{ArrayRef, Datum},
        compute::kernels::{
            concat_elements::concat_elements_dyn,
            numeric::{add, mul, sub},
        },
        datatypes::{DataType, Field, FieldRef},
        error::ArrowError,
    },
    common::{
        DFSchema, DataFusionError, Result, ScalarValue,
        config::ConfigOptions,
        internal_err,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
        ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
        expr_rewriter::NamePreserver,
    },
    optimizer::AnalyzerRule,
};

use crate::{growth, scope};

/// Puts functions in the place of `+`, `-` and `*` of integers and of `||` of text.
#[derive(Debug)]
pub(crate) struct CheckedOperators;

impl AnalyzerRule for CheckedOperators {
    fn name(&self) -> &str {
        "checked_operators"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_plan)?.data)
    }
}

fn rewrite_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = scope::columns(&plan)?;
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        // Its columns are called as what they are made of.
        if matches!(expr, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| Ok(rewrite(expr, &schema)))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return Transformed::no(expr);
    };
    let operation = match op {
        Operator::Plus => Some(Operation::Add),
        Operator::Minus => Some(Operation::Subtract),
        Operator::Multiply => Some(Operation::Multiply),
        Operator::StringConcat => Some(Operation::Join),
        _ => None,
    };
    let kind = operation.and_then(|operation| operation.kind(&left, &right, schema));
    let (Some(operation), Some(kind)) = (operation, kind) else {
        return Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }));
    };
    let call = ScalarUDF::from(Checked {
        operation,
        kind,
        signature: Signature::any(2, Volatility::Immutable),
    });
    Transformed::yes(call.call(vec![*left, *right]))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Join,
}

impl Operation {
    /// The type of both sides, when it is one that this is for: coercion has made them one where it could.
    fn kind(self, left: &Expr, right: &Expr, schema: &DFSchema) -> Option<DataType> {
        let (left, right) = (kind(left, schema)?, kind(right, schema)?);
        let fits = match self {
            Self::Join => matches!(
                left,
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
            ),
            // Differences of unsigned numbers, such as of row numbers, are left to wrap around.
            Self::Add | Self::Subtract | Self::Multiply => left.is_signed_integer(),
        };
        (fits && left == right).then_some(left)
    }
}

/// The type of an expression; that of a long chain without walking down all of it again at each of its steps.
fn kind(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    if let Expr::ScalarFunction(call) = expr
        && let Some(checked) = call.func.inner().downcast_ref::<Checked>()
    {
        return Some(checked.kind.clone());
    }
    expr.get_type(schema).ok()
}

/// One of the operators as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operation: Operation,
    kind: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &'static str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Join => "checked_join",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            self.kind.clone(),
            nullable,
        )))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = call.args.as_slice() else {
            return internal_err!("an operator has two sides");
        };
        let rows = call.number_rows;
        if self.operation == Operation::Join {
            return join(left, right, rows);
        }
        let compute = match self.operation {
            Operation::Subtract => sub,
            Operation::Multiply => mul,
            Operation::Add | Operation::Join => add,
        };
        Ok(match (left, right) {
            (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
                let result = computed(compute, &left.to_scalar()?, &right.to_scalar()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => {
                ColumnarValue::Array(computed(compute, &left.to_scalar()?, right)?)
            }
            (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => {
                ColumnarValue::Array(computed(compute, left, &right.to_scalar()?)?)
            }
            (ColumnarValue::Array(left), ColumnarValue::Array(right)) => {
                ColumnarValue::Array(computed(compute, left, right)?)
            }
        })
    }
}

type Compute = fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>;

fn computed(compute: Compute, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
    compute(left, right).map_err(DataFusionError::from)
}

fn join(left: &ColumnarValue, right: &ColumnarValue, rows: usize) -> Result<ColumnarValue> {
    let constant = matches!(
        (left, right),
        (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))
    );
    let rows = if constant { 1 } else { rows };
    let bytes = growth::total(left, rows).saturating_add(growth::total(right, rows));
    growth::allow(bytes)?;
    let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
    let joined = concat_elements_dyn(&left, &right)?;
    Ok(match constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?),
        false => ColumnarValue::Array(joined),
    })
}
