//! MIN and MAX of floating-point numbers, whatever order the rows come in.
//!
//! DataFusion compares groups with `<` and `>`, for which NaN is neither: what a group answers depends on the row that came
//! first, and a table that is kept up to date on what came last. Here numbers have a total order, as PostgreSQL has it:
//! NaN is greater than all others, whatever its sign; -0.0 equals 0.0 everywhere else and comes before it here, so that
//! there is one answer.
//!
//! The numbers are turned into integers of the same order, and DataFusion's own accumulators of integers do the work. Other
//! types keep its functions.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, Float64Array, Int64Array},
        compute::cast,
        datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type},
    },
    common::{
        DFSchema, DataFusionError, Result,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, GroupsAccumulator,
        LogicalPlan, ReversedUDAF, Signature, WindowFunctionDefinition,
        expr::{AggregateFunctionParams, WindowFunctionParams},
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::{AggregateOrderSensitivity, format_state_name, merge_schema},
    },
    optimizer::AnalyzerRule,
};

use crate::converted::Conversion;

/// Puts the functions of this module in the place of DataFusion's where the argument is a floating-point number.
#[derive(Debug)]
pub(crate) struct TotalFloats;

impl AnalyzerRule for TotalFloats {
    fn name(&self) -> &str {
        "total_floats"
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
    let total = match &expr {
        Expr::AggregateFunction(call) => total(&call.func, &call.params.args, schema),
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(func) => total(func, &call.params.args, schema),
            WindowFunctionDefinition::WindowUDF(_) => None,
        },
        _ => None,
    };
    let Some(total) = total else {
        return Transformed::no(expr);
    };
    match &mut expr {
        Expr::AggregateFunction(call) => call.func = total,
        Expr::WindowFunction(call) => call.fun = WindowFunctionDefinition::AggregateUDF(total),
        _ => {}
    }
    Transformed::yes(expr)
}

/// The function in the place of `func`, when it is one of the two and its argument a floating-point number.
fn total(func: &Arc<AggregateUDF>, args: &[Expr], schema: &DFSchema) -> Option<Arc<AggregateUDF>> {
    let name = match func.name() {
        "max" => "total_max",
        "min" => "total_min",
        _ => return None,
    };
    let [arg] = args else { return None };
    let kind = arg.get_type(schema).ok()?;
    kind.is_floating().then(|| {
        Arc::new(AggregateUDF::from(Total {
            name,
            inner: Arc::clone(func),
        }))
    })
}

/// MIN or MAX in a total order. Its name is another: DataFusion does more with the name than it can here, such as to leave
/// out rows by the numbers' own order. Columns are called as ever.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Total {
    name: &'static str,
    inner: Arc<AggregateUDF>,
}

impl Total {
    fn long(args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
        AccumulatorArgs {
            return_field: Arc::new(Field::new(args.name, DataType::Int64, true)),
            ..args
        }
    }
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        self.name
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
        let name = format_state_name(args.name, self.name);
        Ok(vec![Arc::new(Field::new(name, DataType::Int64, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type().clone();
        Ok(RANKING.one(kind, self.inner.accumulator(Self::long(args))?))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type().clone();
        Ok(RANKING.one(
            kind,
            self.inner.create_sliding_accumulator(Self::long(args))?,
        ))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(Self::long(args))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let kind = args.return_field.data_type().clone();
        Ok(RANKING.groups(
            kind,
            self.inner.create_groups_accumulator(Self::long(args))?,
        ))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// From numbers to ranks and back.
const RANKING: Conversion = Conversion {
    into: ranks,
    back: numbers,
};

/// The one NaN that all become.
const NAN: u64 = 0x7ff8_0000_0000_0000;

/// An integer that is less than another when its number is. Narrower numbers are exact in 64 bits.
fn rank(number: f64) -> i64 {
    let bits = match number.is_nan() {
        true => NAN,
        false => number.to_bits(),
    };
    turned(bits.cast_signed())
}

/// The number of a rank.
fn number(rank: i64) -> f64 {
    f64::from_bits(turned(rank).cast_unsigned())
}

/// Negative numbers in the other direction. Done twice, it is undone.
fn turned(bits: i64) -> i64 {
    bits ^ ((bits >> 63) & i64::MAX)
}

fn ranks(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let one = |values: &ArrayRef| -> Result<ArrayRef> {
        let wide = cast(values, &DataType::Float64)?;
        let numbers = wide.as_primitive_opt::<Float64Type>();
        let numbers = numbers.ok_or_else(|| unexpected(values))?;
        let ranks: Int64Array = numbers.unary(rank);
        Ok(Arc::new(ranks))
    };
    values.iter().map(one).collect()
}

fn numbers(ranks: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let ranks = ranks
        .as_primitive_opt::<Int64Type>()
        .ok_or_else(|| unexpected(ranks))?;
    let numbers: Float64Array = ranks.unary(number);
    Ok(match kind {
        DataType::Float64 => Arc::new(numbers),
        // It was one of fewer bits, and is one again.
        other => cast(&numbers, other)?,
    })
}

fn unexpected(values: &ArrayRef) -> DataFusionError {
    DataFusionError::Internal(format!("MIN or MAX of {}", values.data_type()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_the_order_of_their_numbers() {
        let numbers = [
            f64::NEG_INFINITY,
            -1.5,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            f64::MIN_POSITIVE,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        for pair in numbers.windows(2) {
            assert!(rank(pair[0]) < rank(pair[1]), "{pair:?}");
        }
        for given in numbers {
            assert_eq!(number(rank(given)).to_bits(), given.to_bits());
            assert!(rank(given) < rank(f64::NAN) && rank(given) < rank(-f64::NAN));
        }
        assert_eq!(rank(f64::NAN), rank(-f64::NAN));
    }
}
