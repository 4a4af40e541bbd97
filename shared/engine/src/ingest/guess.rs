//! Inference: the type that keeps every value seen of a column exactly.

use arrow::datatypes::{DataType, TimeUnit};
use domain::time::{parse_date, parse_timestamp};

use super::value::unquote;

/// What a column's values have been so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Guess(u8);

const INTEGER: u8 = 1;
/// A whole number that a double does not hold.
const LONG: u8 = 2;
/// A whole number beyond `BIGINT`, of at most 38 digits.
const HUGE: u8 = 4;
const FRACTION: u8 = 8;
const BOOLEAN: u8 = 16;
const TIMESTAMP: u8 = 32;
const DATE: u8 = 64;
const TEXT: u8 = 128;

impl Guess {
    /// Looks at the text of a valid JSON value.
    pub(super) fn see_json(&mut self, raw: &str) {
        self.0 |= match raw.as_bytes().first() {
            None | Some(b'n') => 0,
            Some(b't' | b'f') => BOOLEAN,
            Some(b'"') => unquote(raw).map_or(TEXT, |text| moment(&text).unwrap_or(TEXT)),
            Some(b'-' | b'0'..=b'9') => number(raw).unwrap_or(TEXT),
            Some(_) => TEXT,
        };
    }

    /// Looks at a CSV field that is not NULL.
    pub(super) fn see_text(&mut self, text: &str) {
        self.0 |= match text {
            "true" | "false" | "TRUE" | "FALSE" | "True" | "False" => BOOLEAN,
            "NaN" | "inf" | "-inf" | "Infinity" | "-Infinity" => FRACTION,
            _ => number(text).or_else(|| moment(text)).unwrap_or(TEXT),
        };
    }

    /// The type. Whole numbers and fractions together are `DOUBLE` only when each is one exactly.
    pub(super) fn data_type(&self) -> DataType {
        const EXACT: u8 = INTEGER | FRACTION;
        const MOMENT: u8 = TIMESTAMP | DATE;
        match self.0 {
            BOOLEAN => DataType::Boolean,
            DATE => DataType::Date32,
            seen if seen != 0 && seen & !(INTEGER | LONG) == 0 => DataType::Int64,
            seen if seen != 0 && seen & !(INTEGER | LONG | HUGE) == 0 => {
                DataType::Decimal128(38, 0)
            }
            seen if seen != 0 && seen & !EXACT == 0 => DataType::Float64,
            seen if seen != 0 && seen & !MOMENT == 0 => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            _ => DataType::Utf8,
        }
    }
}

/// None for what is better kept as text: leading zeros, a leading plus, more digits than the type keeps.
fn number(text: &str) -> Option<u8> {
    let unsigned = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let digits = unsigned
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if digits == 0 || (digits > 1 && unsigned[0] == b'0') {
        return None;
    }
    if digits == unsigned.len() {
        return match text.parse::<i64>() {
            _ if digits <= 15 => Some(INTEGER),
            Ok(number) if number.unsigned_abs() <= 1 << 53 => Some(INTEGER),
            Ok(_) => Some(LONG),
            Err(_) => (digits <= 38).then_some(HUGE),
        };
    }
    let mantissa = unsigned
        .iter()
        .take_while(|byte| !matches!(byte, b'e' | b'E'));
    let significant = mantissa
        .filter(|byte| byte.is_ascii_digit())
        .skip_while(|d| **d == b'0')
        .count();
    let written = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let double = unsigned.iter().all(written) && text.parse::<f64>().is_ok_and(f64::is_finite);
    (double && significant <= 17).then_some(FRACTION)
}

/// None also for digits past the microsecond, which a `TIMESTAMP` would lose.
fn moment(text: &str) -> Option<u8> {
    if !text.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    if parse_date(text).is_some() {
        return Some(DATE);
    }
    let fraction = text
        .get(20..)
        .unwrap_or("")
        .bytes()
        .take_while(u8::is_ascii_digit);
    let cut = text.as_bytes().get(19) == Some(&b'.') && fraction.count() > 6;
    (!cut && parse_timestamp(text).is_some()).then_some(TIMESTAMP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[&str], expected: &str) {
        let mut guess = Guess::default();
        values.iter().for_each(|value| guess.see_json(value));
        assert_eq!(
            ports::columns::kind(&guess.data_type()).as_deref(),
            Some(expected),
            "{values:?}"
        );
    }

    #[test]
    fn a_column_gets_the_type_that_keeps_all_its_values() {
        check(&["1", "null", "-9223372036854775808"], "BIGINT");
        check(&["1", "18446744073709551615"], "DECIMAL(38,0)");
        check(&["1", "2.5", "1e3"], "DOUBLE");
        check(&["9007199254740993", "2.5"], "VARCHAR");
        check(&["123456789012345678901234567890123456789"], "VARCHAR");
        check(&["0.1000000000000000055"], "VARCHAR");
        check(&["true", "false"], "BOOLEAN");
        check(&["true", "1"], "VARCHAR");
        check(&["\"2026-11-29\""], "DATE");
        check(&["\"2026-11-29\"", "\"2026-11-29T10:00:00Z\""], "TIMESTAMP");
        check(&["\"2026-11-29T10:00:00.123456789Z\""], "VARCHAR");
        check(&["\"42\""], "VARCHAR");
        check(&["null"], "VARCHAR");
        check(&["{\"a\":1}"], "VARCHAR");
    }

    #[test]
    fn leading_zeros_are_text() {
        let mut guess = Guess::default();
        guess.see_text("01234");
        assert_eq!(guess.data_type(), DataType::Utf8);
    }
}
