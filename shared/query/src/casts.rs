//! Text read as a moment or a date, by the one rule of the product (`domain::rfc3339`): offsets are converted to UTC, a
//! leap second is the last microsecond of its minute, and what has no offset is UTC whatever the machine's zone is.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{
            Array, ArrayRef, AsArray, PrimitiveArray, TimestampMicrosecondArray, timezone::Tz,
        },
        compute::{cast, kernels::cast_utils::string_to_datetime},
        datatypes::{DataType, Date32Type, TimeUnit, TimestampMicrosecondType},
    },
    common::{
        DFSchema, DataFusionError, Result, ScalarValue,
        config::ConfigOptions,
        exec_err,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF,
        ScalarUDFImpl, Signature, TryCast, Volatility, expr_rewriter::NamePreserver,
    },
    optimizer::AnalyzerRule,
};
use domain::rfc3339::{parse_date, parse_timestamp};

use crate::scope;

/// Replaces casts of text to moments and dates, also those that type coercion put in.
#[derive(Debug)]
pub(crate) struct TextToTime;

impl AnalyzerRule for TextToTime {
    fn name(&self) -> &str {
        "text_to_time"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_plan)?.data)
    }
}

fn rewrite_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = scope::columns(&plan)?;
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| rewrite(expr, &schema))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (text, target, strict) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), true),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), false),
        _ => return Ok(Transformed::no(expr)),
    };
    if !matches!(target, DataType::Timestamp(..) | DataType::Date32) || !is_text(text, schema) {
        return Ok(Transformed::no(expr));
    }
    let call = ScalarUDF::from(ReadTime::new(target.clone(), strict));
    Ok(Transformed::yes(call.call(vec![text.as_ref().clone()])))
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(
        expr.get_type(schema),
        Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    )
}

/// The function that takes a cast's place.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadTime {
    target: DataType,
    strict: bool,
    signature: Signature,
}

impl ReadTime {
    fn new(target: DataType, strict: bool) -> Self {
        Self {
            target,
            strict,
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ReadTime {
    fn name(&self) -> &str {
        if self.strict {
            "text_to_time"
        } else {
            "try_text_to_time"
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.target.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(texts)] => Ok(ColumnarValue::Array(self.read(texts)?)),
            [ColumnarValue::Scalar(text)] => {
                let read = self.read(&text.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                    &read, 0,
                )?))
            }
            _ => exec_err!("a cast has one argument"),
        }
    }
}

impl ReadTime {
    fn read(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        match texts.data_type() {
            DataType::Utf8 => self.each(texts.as_string::<i32>().iter()),
            DataType::LargeUtf8 => self.each(texts.as_string::<i64>().iter()),
            DataType::Utf8View => self.each(texts.as_string_view().iter()),
            other => Ok(cast(texts, other).and_then(|texts| cast(&texts, &self.target))?),
        }
    }

    fn each<'a>(&self, texts: impl Iterator<Item = Option<&'a str>>) -> Result<ArrayRef> {
        let unreadable = |text: &str| -> Result<Option<i64>> {
            if self.strict {
                let kind = if self.target == DataType::Date32 {
                    "date"
                } else {
                    "timestamp"
                };
                return Err(DataFusionError::Execution(format!(
                    "'{text}' is not a {kind}"
                )));
            }
            Ok(None)
        };
        if self.target == DataType::Date32 {
            let days = texts.map(|text| match text {
                Some(text) => match date(text) {
                    Some(days) => Ok(Some(days)),
                    None => unreadable(text).map(|_| None),
                },
                None => Ok(None),
            });
            return Ok(Arc::new(
                days.collect::<Result<PrimitiveArray<Date32Type>>>()?,
            ));
        }
        let micros = texts.map(|text| match text {
            Some(text) => match moment(text) {
                Some(micros) => Ok(Some(micros)),
                None => unreadable(text),
            },
            None => Ok(None),
        });
        let micros = micros.collect::<Result<TimestampMicrosecondArray>>()?;
        self.in_unit(micros)
    }

    /// Microseconds in the unit and with the zone asked for.
    fn in_unit(&self, micros: PrimitiveArray<TimestampMicrosecondType>) -> Result<ArrayRef> {
        let DataType::Timestamp(unit, zone) = &self.target else {
            return Ok(Arc::new(micros));
        };
        let micros: ArrayRef = Arc::new(micros.with_timezone_opt(zone.clone()));
        match unit {
            TimeUnit::Microsecond => Ok(micros),
            _ => Ok(cast(&micros, &self.target)?),
        }
    }
}

fn moment(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(moment) = parse_timestamp(text) {
        return Some(moment.0);
    }
    // Forms beyond RFC 3339 that Arrow reads, such as `2026-11-29 16:44`: without an offset they are UTC too. It would
    // take a sixtieth second anywhere for the next minute.
    if text.contains(":60") {
        return None;
    }
    let utc: Tz = "+00:00".parse().ok()?;
    string_to_datetime(&utc, text)
        .ok()
        .map(|moment| moment.timestamp_micros())
}

fn date(text: &str) -> Option<i32> {
    parse_date(text.trim()).or_else(|| {
        let days = moment(text)?.div_euclid(86_400_000_000);
        i32::try_from(days).ok()
    })
}
