//! Sums of integers that fail where DataFusion's wrap around.
//!
//! They are gathered as decimals of 38 digits, which no number of rows fills, and are integers again when they are told:
//! whatever order the rows come in, a sum that fits is told and one that does not is an error.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::ArrayRef,
        compute::{CastOptions, cast, cast_with_options},
        datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef},
    },
    common::{
        DFSchema, Result,
        config::ConfigOptions,
        exec_err,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, GroupsAccumulator,
        LogicalPlan, ReversedUDAF, Signature, WindowFunctionDefinition,
        expr::{AggregateFunctionParams, WindowFunctionParams},
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::{AggregateOrderSensitivity, merge_schema},
    },
    optimizer::AnalyzerRule,
};

use crate::converted::Conversion;

/// What sums are gathered as.
const WIDE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// Puts [`Sum`] in the place of DataFusion's where the argument is an integer.
#[derive(Debug)]
pub(crate) struct CheckedSums;

impl AnalyzerRule for CheckedSums {
    fn name(&self) -> &str {
        "checked_sums"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_plan)?.data)
    }
}

fn rewrite_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)) {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    plan.map_expressions(|expr| expr.transform_up(|expr| Ok(rewrite(expr, &schema))))
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let mut expr = expr;
    let checked = match &mut expr {
        Expr::AggregateFunction(call) => {
            let sum = checked(&call.func, &call.params.args, schema);
            sum.map(|sum| call.func = sum)
        }
        // Distinct values in a frame that moves are summed by DataFusion as BIGINT and nothing else.
        Expr::WindowFunction(call) if !call.params.distinct => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(func) => {
                let sum = checked(func, &call.params.args, schema);
                sum.map(|sum| call.fun = WindowFunctionDefinition::AggregateUDF(sum))
            }
            WindowFunctionDefinition::WindowUDF(_) => None,
        },
        _ => None,
    };
    match checked {
        Some(()) => Transformed::yes(expr),
        None => Transformed::no(expr),
    }
}

/// The function in the place of `func`, when it is a sum of integers.
fn checked(
    func: &Arc<AggregateUDF>,
    args: &[Expr],
    schema: &DFSchema,
) -> Option<Arc<AggregateUDF>> {
    let [arg] = args else { return None };
    if func.name() != "sum" || !arg.get_type(schema).ok()?.is_integer() {
        return None;
    }
    let inner = Arc::clone(func);
    Some(Arc::new(AggregateUDF::from(Sum { inner })))
}

/// SUM of integers. Its name is another: DataFusion does more with the name than it can here, such as to sum partial sums.
/// Columns are called as ever.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    inner: Arc<AggregateUDF>,
}

fn wide(args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
    AccumulatorArgs {
        return_field: Arc::new(Field::new(args.name, WIDE, true)),
        ..args
    }
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &'static str {
        "checked_sum"
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(StateFieldsArgs {
            return_field: Arc::new(Field::new(args.name, WIDE, true)),
            ..args
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type().clone();
        Ok(WIDENING.one(kind, self.inner.accumulator(wide(args))?))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type().clone();
        Ok(WIDENING.one(kind, self.inner.create_sliding_accumulator(wide(args))?))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(wide(args))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let kind = args.return_field.data_type().clone();
        Ok(WIDENING.groups(kind, self.inner.create_groups_accumulator(wide(args))?))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// From integers to decimals and back.
const WIDENING: Conversion = Conversion {
    into: widened,
    back: told,
};

fn widened(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let one = |values: &ArrayRef| Ok(cast(values, &WIDE)?);
    values.iter().map(one).collect()
}

/// Sums as the integers they are.
fn told(sums: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    match cast_with_options(sums, kind, &strict) {
        Ok(sums) => Ok(sums),
        Err(_) => exec_err!(
            "a sum is beyond what its type holds, {}: sum a wider one, as in `sum(n::DECIMAL(38, 0))`",
            ports::columns::word(kind)
        ),
    }
}
