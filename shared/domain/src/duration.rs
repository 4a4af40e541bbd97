//! Durations as people write them: `10s`, `5m`, `200ms`.

use crate::Duration;

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a duration: write a number with ms, s, m, h or d, such as `10s`, `5m` or `200ms`, or plain 0"
)]
pub struct DurationError(pub String);

/// Longest accepted: 36,500 days, far below what arithmetic on timestamps can hold.
const SECONDS_MAX: f64 = 36_500.0 * 86_400.0;

/// Reads `10s`, `5m`, `200ms`, `1h`, `2d`, `1.5s` or a plain `0`.
///
/// # Errors
/// Anything else: no unit, a sign, a word, more than 36,500 days.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let refused = || DurationError(text.trim().to_owned());
    let plain = text.trim();
    if plain == "0" {
        return Ok(Duration::ZERO);
    }
    let split = plain
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(refused)?;
    let (number, unit) = plain.split_at(split);
    let number = number.trim_end();
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(refused());
    }
    let seconds_per_unit = match unit.to_ascii_lowercase().as_str() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(refused()),
    };
    let seconds = number.parse::<f64>().map_err(|_| refused())? * seconds_per_unit;
    if seconds > SECONDS_MAX {
        return Err(refused());
    }
    // Microseconds are what timestamps count; rounding keeps `0.1s` at exactly 100 ms.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and SECONDS_MAX"
    )]
    let micros = (seconds * 1e6).round() as u64;
    Ok(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, micros: Option<u64>) {
        assert_eq!(
            parse_duration(text).ok(),
            micros.map(Duration::from_micros),
            "{text}"
        );
    }

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, micros) in [
            ("10s", 10_000_000),
            ("5m", 300_000_000),
            ("200ms", 200_000),
            ("1h", 3_600_000_000),
            ("2d", 172_800_000_000),
            ("1.5s", 1_500_000),
            ("0.1s", 100_000),
            (" 7 S ", 7_000_000),
            ("0", 0),
            ("0s", 0),
        ] {
            check(text, Some(micros));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "soon",
            "",
            "5",
            "-5s",
            "s",
            "1.2.3s",
            "1e9s",
            "5 weeks",
            "99999999999d",
            "1..s",
            "5s5m",
        ] {
            check(text, None);
        }
    }
}
