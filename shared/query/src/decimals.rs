//! Decimals that a statement writes out: `12345678901234567.89::DECIMAL(20, 2)` keeps its digits.
//!
//! The planner reads a number with a point, or of more digits than integers have, as a DOUBLE, and what is cast then is no
//! longer what was written. The text of the number is cast in its place.

use std::ops::ControlFlow;

use domain::sql::visit_mut;
use sqlparser::ast::{DataType, Expr, Statement, UnaryOperator, Value, VisitorMut};

/// Casts the text of numbers that are cast to DECIMAL.
pub(crate) fn keep_digits(statement: &mut Statement) {
    let _ = visit_mut(statement, &mut Digits);
}

struct Digits;

impl VisitorMut for Digits {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Cast {
            expr, data_type, ..
        } = expr
            && is_decimal(data_type)
            && let Some(text) = number(expr)
        {
            **expr = Expr::value(Value::SingleQuotedString(text));
        }
        ControlFlow::Continue(())
    }
}

fn is_decimal(word: &DataType) -> bool {
    matches!(
        word,
        DataType::Decimal(_) | DataType::Dec(_) | DataType::Numeric(_)
    )
}

/// The digits of a number that a DOUBLE would be read from; none for integers, which are exact, and for those with an
/// exponent, which no text of a decimal has.
fn number(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) => number(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match number(expr)? {
            text if text.starts_with('-') => None,
            text => Some(format!("-{text}")),
        },
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => digits(text),
            _ => None,
        },
        _ => None,
    }
}

fn digits(text: &str) -> Option<String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(fraction) || text.parse::<u64>().is_ok() {
        return None;
    }
    Some(match (whole, fraction) {
        ("", "") => return None,
        (whole, "") => whole.to_owned(),
        ("", fraction) => format!("0.{fraction}"),
        (whole, fraction) => format!("{whole}.{fraction}"),
    })
}
