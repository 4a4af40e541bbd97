//! Coercion: a JSON value or a text becomes a value of a column's type, exactly or not at all.
//!
//! | type | from a JSON number | from a text (trimmed) | from other JSON |
//! |---|---|---|---|
//! | `BIGINT`, `INTEGER` | a whole number in range, however written: `42`, `42.0`, `1e3` | an optional sign and digits: `"42"`, `" 7"` | refused |
//! | `DOUBLE` | the nearest double; a whole number only if it is one exactly | as a number; `NaN`, `Infinity`, `-Infinity` | refused |
//! | `DECIMAL(p,s)` | exactly, in `s` places and `p` digits | the same | refused |
//! | `BOOLEAN` | refused | `"true"`, `"false"` in any case | `true`, `false` |
//! | `TIMESTAMP` | refused | RFC 3339, or without an offset (UTC), or a date | refused |
//! | `DATE` | refused | `"2026-11-29"` | refused |
//! | `VARCHAR` | its text as sent | as it is, not trimmed | its JSON text as sent |
//! | `BLOB` | refused | the bytes of its UTF-8 | refused |
//!
//! `null` and a missing value are NULL; `payload` keeps the difference. An empty text is a `VARCHAR` or `BLOB` only.
//! Leap seconds are 23:59:59.999999, and digits past the microsecond are cut off.

use std::borrow::Cow;

use arrow::datatypes::DataType;
use domain::time::{parse_date, parse_timestamp};

/// A value that fits its column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Decimal(i128),
    Text(Cow<'a, str>),
    /// Microseconds since the epoch.
    Timestamp(i64),
    /// Days since the epoch.
    Date(i32),
}

/// Coerces the text of one valid JSON value.
///
/// # Errors
/// A sentence that says what does not fit.
pub(super) fn of_json<'a>(raw: &'a str, to: &DataType) -> Result<Value<'a>, String> {
    match raw.as_bytes().first() {
        Some(b'n') => Ok(Value::Null),
        Some(b'"') => of_text(unquote(raw)?, to),
        _ if *to == DataType::Utf8 => Ok(Value::Text(Cow::Borrowed(raw))),
        Some(b't') if *to == DataType::Boolean => Ok(Value::Boolean(true)),
        Some(b'f') if *to == DataType::Boolean => Ok(Value::Boolean(false)),
        Some(b'-' | b'0'..=b'9') => of_number(raw, to).ok_or_else(|| refusal(raw, to)),
        _ => Err(refusal(raw, to)),
    }
}

/// Coerces a text.
///
/// # Errors
/// A sentence that says what does not fit.
pub(super) fn of_text<'a>(text: Cow<'a, str>, to: &DataType) -> Result<Value<'a>, String> {
    if matches!(to, DataType::Utf8 | DataType::Binary) {
        return Ok(Value::Text(text));
    }
    let trimmed = text.trim_ascii();
    let value = match to {
        DataType::Int64 | DataType::Int32 => digits(trimmed).and_then(|number| whole(number, to)),
        DataType::Float64 => double(trimmed)
            .or_else(|| unreal(trimmed))
            .map(Value::Double),
        DataType::Decimal128(..) => of_number(trimmed, to),
        DataType::Boolean if trimmed.eq_ignore_ascii_case("true") => Some(Value::Boolean(true)),
        DataType::Boolean if trimmed.eq_ignore_ascii_case("false") => Some(Value::Boolean(false)),
        DataType::Timestamp(..) => parse_timestamp(trimmed).map(|at| Value::Timestamp(at.0)),
        DataType::Date32 => parse_date(trimmed).map(Value::Date),
        _ => None,
    };
    value.ok_or_else(|| refusal(&format!("\"{text}\""), to))
}

/// The text of a JSON string.
pub(super) fn unquote(raw: &str) -> Result<Cow<'_, str>, String> {
    match raw.get(1..raw.len().saturating_sub(1)) {
        Some(inner) if !inner.contains('\\') => Ok(Cow::Borrowed(inner)),
        _ => serde_json::from_str(raw)
            .map(Cow::Owned)
            .map_err(|error| format!("{} is no text: {error}", shortened(raw))),
    }
}

fn of_number<'a>(text: &str, to: &DataType) -> Option<Value<'a>> {
    match to {
        DataType::Int64 | DataType::Int32 => {
            let number = match text.parse::<i64>() {
                Ok(number) => number,
                Err(_) => i64::try_from(scaled(exact(text)?, 38, 0)?).ok()?,
            };
            whole(number, to)
        }
        DataType::Float64 => double(text).map(Value::Double),
        DataType::Decimal128(precision, scale) => {
            scaled(exact(text)?, *precision, *scale).map(Value::Decimal)
        }
        _ => None,
    }
}

fn whole<'a>(number: i64, to: &DataType) -> Option<Value<'a>> {
    (*to == DataType::Int64 || i32::try_from(number).is_ok()).then_some(Value::Integer(number))
}

fn digits(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// The nearest double; a whole number written without point and exponent must be one exactly.
fn double(text: &str) -> Option<f64> {
    let written = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    if !text.as_bytes().iter().all(written) {
        return None;
    }
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())?;
    let plain = text.len() > 15 && !text.contains(['.', 'e', 'E']);
    let same = |whole: i128| {
        // Every double of this size is a whole number that an i128 holds.
        number.abs() < 1e38 && number as i128 == whole
    };
    (!plain || text.parse().is_ok_and(same)).then_some(number)
}

fn unreal(text: &str) -> Option<f64> {
    match text {
        "NaN" | "nan" => Some(f64::NAN),
        "Infinity" | "inf" => Some(f64::INFINITY),
        "-Infinity" | "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// A decimal number as a whole one and a power of ten; none when it is no number or has over 38 digits.
fn exact(text: &str) -> Option<(i128, i32)> {
    let (negative, unsigned) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (mut number, mut zeros, mut places, mut power) = (0_i128, 0_u32, 0_i32, 0_i32);
    let (mut any, mut fraction) = (false, false);
    let mut rest = unsigned.iter();
    for byte in rest.by_ref() {
        match byte {
            b'0'..=b'9' => {
                any = true;
                places += i32::from(fraction);
                // Zeros wait for a digit behind them, so that trailing ones never overflow.
                if *byte == b'0' {
                    zeros += 1;
                } else {
                    let shift = if number == 0 {
                        1
                    } else {
                        10_i128.checked_pow(zeros + 1)?
                    };
                    number = number
                        .checked_mul(shift)?
                        .checked_add(i128::from(byte - b'0'))?;
                    zeros = 0;
                }
            }
            b'.' if !fraction => fraction = true,
            b'e' | b'E' if any => {
                power = std::str::from_utf8(rest.as_slice()).ok()?.parse().ok()?;
                break;
            }
            _ => return None,
        }
    }
    if !any {
        return None;
    }
    if number == 0 {
        return Some((0, 0));
    }
    let zeros = i32::try_from(zeros).ok()?;
    let power = power.checked_sub(places)?.checked_add(zeros)?;
    Some((if negative { -number } else { number }, power))
}

/// `number * 10^power` in units of `10^-scale`, if that is whole and has at most `precision` digits.
fn scaled((number, power): (i128, i32), precision: u8, scale: i8) -> Option<i128> {
    let shift = u32::try_from(power.checked_add(i32::from(scale))?).ok();
    let value = match shift {
        _ if number == 0 => 0,
        Some(shift) => number.checked_mul(10_i128.checked_pow(shift)?)?,
        None => return None,
    };
    let limit = 10_u128.checked_pow(u32::from(precision))?;
    (value.unsigned_abs() < limit).then_some(value)
}

fn refusal(value: &str, to: &DataType) -> String {
    let word = ports::columns::kind(to).unwrap_or_else(|| to.to_string());
    format!("{} is no {word}", shortened(value))
}

fn shortened(value: &str) -> Cow<'_, str> {
    match value.char_indices().nth(60) {
        Some((end, _)) => Cow::Owned(format!("{}..", &value[..end])),
        None => Cow::Borrowed(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: &str, raw: &str, expected: Option<Value<'_>>) {
        let to = ports::columns::data_type(kind).expect("a type");
        assert_eq!(of_json(raw, &to).ok(), expected, "{raw} as {kind}");
    }

    #[test]
    fn bigint_takes_whole_numbers_and_nothing_else() {
        for (raw, number) in [
            ("42", 42),
            ("\"42\"", 42),
            ("\" 7\"", 7),
            ("1e3", 1_000),
            ("42.0", 42),
            ("-0", 0),
            ("9007199254740993", 9_007_199_254_740_993),
            ("-9223372036854775808", i64::MIN),
            ("92233720368547758070e-1", i64::MAX),
            ("\"+5\"", 5),
            ("0.0e999", 0),
        ] {
            check("BIGINT", raw, Some(Value::Integer(number)));
        }
        for raw in [
            "5.7",
            "true",
            "\"\"",
            "\"5.7\"",
            "\"1e3\"",
            "{}",
            "[1]",
            "18446744073709551615",
            "1e400",
            "1e-1",
            "\"x\"",
            "\"- 1\"",
        ] {
            check("BIGINT", raw, None);
        }
        check("BIGINT", "null", Some(Value::Null));
        check("INTEGER", "2147483647", Some(Value::Integer(2_147_483_647)));
        check("INTEGER", "2147483648", None);
    }

    #[test]
    fn a_double_never_rounds_a_whole_number() {
        check(
            "DOUBLE",
            "9007199254740992",
            Some(Value::Double(9_007_199_254_740_992.0)),
        );
        check("DOUBLE", "9007199254740993", None);
        check("DOUBLE", "123456789012345678901234567890", None);
        check("DOUBLE", "0.1", Some(Value::Double(0.1)));
        check("DOUBLE", "\" 2.5 \"", Some(Value::Double(2.5)));
        check("DOUBLE", "\"Infinity\"", Some(Value::Double(f64::INFINITY)));
        for raw in ["1e999", "\"\"", "\"infinitive\"", "\"e\"", "false"] {
            check("DOUBLE", raw, None);
        }
    }

    #[test]
    fn a_decimal_is_exact_or_refused() {
        check(
            "DECIMAL(38,0)",
            "123456789012345678901234567890",
            Some(Value::Decimal(123_456_789_012_345_678_901_234_567_890)),
        );
        check(
            "DECIMAL(20,0)",
            "18446744073709551615",
            Some(Value::Decimal(18_446_744_073_709_551_615)),
        );
        check("DECIMAL(5,2)", "\"-12.30\"", Some(Value::Decimal(-1_230)));
        check("DECIMAL(5,2)", "1.5e2", Some(Value::Decimal(15_000)));
        for raw in [
            "12.345",
            "1000",
            "\"1..2\"",
            "\".\"",
            "true",
            "1e99999999999",
        ] {
            check("DECIMAL(5,2)", raw, None);
        }
    }

    #[test]
    fn moments_and_dates_are_read_in_utc() {
        check(
            "TIMESTAMP",
            "\"2016-12-31T15:59:60-08:00\"",
            Some(Value::Timestamp(1_483_228_799_999_999)),
        );
        check(
            "TIMESTAMP",
            "\"1970-01-01t00:00:01z\"",
            Some(Value::Timestamp(1_000_000)),
        );
        check("TIMESTAMP", "\"2023-12-11T11:31:60Z\"", None);
        check("TIMESTAMP", "1700000000", None);
        check("DATE", "\"1970-01-02\"", Some(Value::Date(1)));
        check("DATE", "\"1970-01-02T00:00:00Z\"", None);
    }

    #[test]
    fn text_keeps_what_was_sent() {
        check("VARCHAR", "\" a\\u00e9\"", Some(Value::Text(" aé".into())));
        check("VARCHAR", "1.50", Some(Value::Text("1.50".into())));
        check(
            "VARCHAR",
            "{\"a\": [1]}",
            Some(Value::Text("{\"a\": [1]}".into())),
        );
        check("VARCHAR", "\"\\ud800\"", None);
        check("BOOLEAN", "\"TRUE\"", Some(Value::Boolean(true)));
        check("BOOLEAN", "1", None);
    }
}
