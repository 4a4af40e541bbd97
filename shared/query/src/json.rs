//! JSON functions and the operators `->` and `->>`.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, StringArray, UnionArray},
        datatypes::{DataType, FieldRef, Float64Type, UnionFields},
    },
    common::{
        DFSchema, Result, ScalarValue,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode},
    },
    execution::{FunctionRegistry, SessionState},
    logical_expr::{
        Cast, ColumnarValue, Expr, ExpressionPlacement, LogicalPlan, ReturnFieldArgs,
        ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast, expr::ScalarFunction,
        expr_rewriter::FunctionRewrite,
    },
    optimizer::AnalyzerRule,
};
use datafusion_functions_json::udfs::json_as_text_udf;

/// Registers them.
pub(crate) fn register(state: &mut SessionState) -> Result<()> {
    // Before the library's own rewrites, which read numbers through floating point or as NULL.
    state.register_function_rewrite(Arc::new(CastThroughText))?;
    datafusion_functions_json::register_all(state)
}

/// `(j->'k')::T` becomes `(j->>'k')::T`: the number's own digits are cast, so that integers beyond 2^53 and decimals
/// stay exact and what is no T is an error instead of NULL.
#[derive(Debug)]
struct CastThroughText;

impl FunctionRewrite for CastThroughText {
    fn name(&self) -> &'static str {
        "cast_json_through_text"
    }

    fn rewrite(
        &self,
        expr: Expr,
        _schema: &DFSchema,
        _config: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::Cast(Cast { expr, field }) => match as_text(&expr) {
                Some(text) => Transformed::yes(Expr::Cast(Cast {
                    expr: Box::new(text),
                    field,
                })),
                None => Transformed::no(Expr::Cast(Cast { expr, field })),
            },
            Expr::TryCast(TryCast { expr, field }) => match as_text(&expr) {
                Some(text) => Transformed::yes(Expr::TryCast(TryCast {
                    expr: Box::new(text),
                    field,
                })),
                None => Transformed::no(Expr::TryCast(TryCast { expr, field })),
            },
            other => Transformed::no(other),
        })
    }
}

fn as_text(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == "json_get" => {
            let call = ScalarFunction {
                func: json_as_text_udf(),
                args: call.args.clone(),
            };
            Some(Expr::ScalarFunction(call))
        }
        Expr::Alias(alias) => as_text(&alias.expr),
        _ => None,
    }
}

/// `j->'k'` of a number that is neither a BIGINT nor a DOUBLE, such as one of thirty digits or 1e400, is that number and
/// not NULL or infinite. Put in when the library's rewrites, which know its own function, are done.
#[derive(Debug)]
pub(crate) struct ExactNumbers;

impl AnalyzerRule for ExactNumbers {
    fn name(&self) -> &str {
        "exact_json_numbers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let exact = |expr: Expr| {
            Ok(match expr {
                Expr::ScalarFunction(ScalarFunction { func, args })
                    if func.name() == "json_get" && !func.inner().is::<ExactGet>() =>
                {
                    let exact = ScalarUDF::from(ExactGet { inner: func });
                    Transformed::yes(exact.call(args))
                }
                other => Transformed::no(other),
            })
        };
        let plan = plan.transform_up_with_subqueries(|plan| {
            plan.map_expressions(|expr| expr.transform_up(exact))
        })?;
        Ok(plan.data)
    }
}

/// The members of a JSON value that matter here, as the library calls them. The text of an array is JSON as it stands,
/// and so is the text of a number.
const ARRAY: &str = "array";
const FLOAT: &str = "float";
const NULL: &str = "null";

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactGet {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for ExactGet {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        self.inner.return_type(kinds)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = call.clone();
        let texts = || json_as_text_udf().invoke_with_args(texts);
        match self.inner.invoke_with_args(call)? {
            ColumnarValue::Scalar(ScalarValue::Union(found, fields, mode)) => {
                let is_lost = match &found {
                    None => true,
                    Some((_, value)) => match value.as_ref() {
                        ScalarValue::Float64(Some(number)) => !number.is_finite(),
                        other => other.is_null(),
                    },
                };
                let number = match (is_lost, id(&fields, ARRAY)) {
                    (true, Some(id)) => match texts()? {
                        ColumnarValue::Scalar(text) => {
                            let text = text.try_as_str().flatten().filter(|text| is_number(text));
                            text.map(|text| (id, Box::new(ScalarValue::from(text))))
                        }
                        ColumnarValue::Array(_) => None,
                    },
                    _ => None,
                };
                let value = number.or(found);
                Ok(ColumnarValue::Scalar(ScalarValue::Union(
                    value, fields, mode,
                )))
            }
            ColumnarValue::Array(values) => {
                let Some(union) = values.as_any().downcast_ref::<UnionArray>() else {
                    return Ok(ColumnarValue::Array(values));
                };
                if !lost(union).contains(&true) {
                    return Ok(ColumnarValue::Array(values));
                }
                let texts = texts()?.to_array(union.len())?;
                Ok(ColumnarValue::Array(found(union, &texts)?))
            }
            other => Ok(other),
        }
    }
}

/// The id of a member.
fn id(fields: &UnionFields, member: &str) -> Option<i8> {
    let mut fields = fields.iter();
    let found = fields.find(|(_, field)| field.name() == member);
    found.map(|(id, _)| id)
}

/// Where the value is not there, or is a number that a DOUBLE cannot hold.
fn lost(union: &UnionArray) -> Vec<bool> {
    let DataType::Union(fields, _) = union.data_type() else {
        return Vec::new();
    };
    let (null, float) = (id(fields, NULL), id(fields, FLOAT));
    let floats = float.and_then(|id| union.child(id).as_primitive_opt::<Float64Type>());
    let is_lost = |row: usize| {
        let id = Some(union.type_id(row));
        let number = floats.map(|floats| floats.value(union.value_offset(row)));
        id == null || (id == float && number.is_some_and(|number| !number.is_finite()))
    };
    (0..union.len()).map(is_lost).collect()
}

/// The values with the numbers that were lost, from the texts of all.
fn found(union: &UnionArray, texts: &ArrayRef) -> Result<ArrayRef> {
    let lost = lost(union);
    let (fields, mut ids, offsets, mut children) = union.clone().into_parts();
    let place = fields.iter().position(|(_, field)| field.name() == ARRAY);
    let (Some(array), Some(texts)) = (id(&fields, ARRAY), texts.as_string_opt::<i32>()) else {
        return Ok(Arc::new(union.clone()));
    };
    let Some(child) = place.and_then(|place| children.get_mut(place)) else {
        return Ok(Arc::new(union.clone()));
    };
    let number = |row: usize| {
        let is_there = lost.get(row) == Some(&true) && !texts.is_null(row);
        is_there
            .then(|| texts.value(row))
            .filter(|text| is_number(text))
    };
    let kept = child.as_string::<i32>();
    ids = ids
        .iter()
        .enumerate()
        .map(|(row, id)| number(row).map_or(*id, |_| array))
        .collect();
    let filled = (0..texts.len()).map(|row| {
        let kept = (!kept.is_null(row)).then(|| kept.value(row));
        number(row).or(kept)
    });
    let filled: ArrayRef = Arc::new(filled.collect::<StringArray>());
    *child = filled;
    Ok(Arc::new(UnionArray::try_new(
        fields, ids, offsets, children,
    )?))
}

/// Whether the text of a JSON value is that of a number.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.starts_with(|first: char| first.is_ascii_digit())
}
