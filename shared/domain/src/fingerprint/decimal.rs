//! Numbers of any size, in the one form that equal ones share.

use std::{fmt, str::FromStr};

/// Longest number in digits: what is longer is no argument.
const DIGITS_MAX: usize = 10_000;

/// A text that is no such number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no {1} (of at most {DIGITS_MAX} digits)")]
pub struct NumberError(String, &'static str);

fn refused(text: &str, what: &'static str) -> NumberError {
    NumberError(text.chars().take(40).collect(), what)
}

/// A whole number: a sign if it is below zero, and digits without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Integer(String);

impl From<i128> for Integer {
    fn from(value: i128) -> Self {
        Self(value.to_string())
    }
}

impl FromStr for Integer {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        let (negative, digits) = signed(text);
        if digits.is_empty() || digits.len() > DIGITS_MAX || !is_digits(digits) {
            return Err(refused(text, "whole number"));
        }
        let digits = digits.trim_start_matches('0');
        Ok(Self(match (digits, negative) {
            ("", _) => String::from("0"),
            (digits, true) => format!("-{digits}"),
            (digits, false) => digits.to_owned(),
        }))
    }
}

impl fmt::Display for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A decimal number: digits without zeros at either end, and the power of ten they are multiplied by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    digits: Integer,
    exponent: i64,
}

impl FromStr for Decimal {
    type Err = NumberError;

    /// Reads `-12.50`, `.5`, `1e-3`. There is no NaN and no infinity.
    fn from_str(text: &str) -> Result<Self, NumberError> {
        let wrong = || refused(text, "decimal number");
        let (number, power) = match text.split_once(['e', 'E']) {
            Some((number, power)) => (number, power.parse::<i32>().map_err(|_| wrong())?),
            None => (text, 0),
        };
        let (negative, number) = signed(number);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || all.len() > DIGITS_MAX || !is_digits(&all) {
            return Err(wrong());
        }
        let kept = all.trim_end_matches('0');
        let dropped = i64::try_from(all.len() - kept.len()).unwrap_or(0);
        let fraction = i64::try_from(fraction.len()).unwrap_or(0);
        let digits: Integer = match kept {
            "" => "0".parse()?,
            kept => format!("{}{kept}", if negative { "-" } else { "" }).parse()?,
        };
        let exponent = match digits.0 == "0" {
            true => 0,
            false => i64::from(power) - fraction + dropped,
        };
        Ok(Self { digits, exponent })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}e{}", self.digits, self.exponent)
    }
}

fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_have_one_form() {
        let decimal = |text: &str| text.parse::<Decimal>().map(|d| d.to_string()).ok();
        for (text, form) in [
            ("1.50", "15e-1"),
            ("1.5", "15e-1"),
            ("15e-1", "15e-1"),
            ("-0.0", "0e0"),
            ("0e9", "0e0"),
            ("-1200", "-12e2"),
            (".5", "5e-1"),
            ("007", "7e0"),
        ] {
            assert_eq!(decimal(text).as_deref(), Some(form), "{text}");
        }
        for bad in [
            "",
            ".",
            "NaN",
            "1.2.3",
            "1e",
            "1e99999999999",
            "--1",
            "Infinity",
            "0x1",
        ] {
            assert_eq!(decimal(bad), None, "{bad}");
        }
        let integer = |text: &str| text.parse::<Integer>().map(|i| i.to_string()).ok();
        assert_eq!(integer("-000"), Some(String::from("0")));
        assert_eq!(integer("+12"), Some(String::from("12")));
        assert_eq!(integer("1.0"), None);
        assert_eq!(Integer::from(-7).to_string(), "-7");
    }
}
