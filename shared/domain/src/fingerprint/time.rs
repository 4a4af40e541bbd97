//! Dates and times of arguments, to the nanosecond: nothing is rounded, since what is rounded could collide.

use super::Moment;
use crate::time::parse_date;

const NANOS: i128 = 1_000_000_000;

/// Days of `2026-07-22`.
pub(super) fn date(text: &str) -> Option<i64> {
    let whole = text.len() == 10 && text.is_ascii();
    whole.then(|| parse_date(text).map(i64::from)).flatten()
}

/// Nanoseconds of `23:59:59.5`.
pub(super) fn time(text: &str) -> Option<u64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = clock.split(':');
    let mut next = |limit: u64| {
        let part = parts.next()?;
        let number = digits(part, 2..=2)?;
        (number < limit).then_some(number)
    };
    let (hours, minutes, seconds) = (next(24)?, next(60)?, next(60)?);
    if parts.next().is_some() {
        return None;
    }
    let scale = 10_u64.pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    let fraction = digits(fraction, 1..=9)? * scale;
    Some((hours * 3_600 + minutes * 60 + seconds) * 1_000_000_000 + fraction)
}

/// A date and a time, and whether they were written with a zone: then the moment is in UTC.
pub(super) fn datetime(text: &str) -> Option<(Moment, bool)> {
    let (day, rest) = (text.get(..10)?, text.get(11..)?);
    if !text.is_char_boundary(10) || !["T", "t", " "].contains(&text.get(10..11)?) {
        return None;
    }
    let (clock, offset) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => (&rest[..at], Some(offset(&rest[at..])?)),
        None => (rest, None),
    };
    let nanos = i128::from(date(day)?) * 86_400 * NANOS + i128::from(time(clock)?);
    let nanos = nanos - i128::from(offset.unwrap_or(0)) * 60 * NANOS;
    Some((moment(nanos)?, offset.is_some()))
}

/// A span of `-1.5` seconds.
pub(super) fn seconds(text: &str) -> Option<Moment> {
    let (negative, number) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let scale = 10_u64.pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    let nanos =
        i128::from(digits(whole, 1..=18)?) * NANOS + i128::from(digits(fraction, 1..=9)? * scale);
    moment(if negative { -nanos } else { nanos })
}

/// Minutes of `Z`, `+02:00`, `-0530`.
fn offset(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = (text.get(..1)?, text.get(1..)?.replace(':', ""));
    let minutes = digits(rest.get(..2)?, 2..=2)? * 60 + digits(rest.get(2..)?, 2..=2)?;
    let minutes = i64::try_from(minutes).ok()?;
    (minutes < 24 * 60).then_some(if sign == "-" { -minutes } else { minutes })
}

fn moment(nanos: i128) -> Option<Moment> {
    Some(Moment {
        seconds: i64::try_from(nanos.div_euclid(NANOS)).ok()?,
        nanos: u32::try_from(nanos.rem_euclid(NANOS)).ok()?,
    })
}

fn digits(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<u64> {
    let plain = length.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_nanosecond() {
        assert_eq!(date("1970-01-02"), Some(1));
        assert_eq!(date("1970-02-30"), None);
        assert_eq!(time("00:00:01.000000001"), Some(1_000_000_001));
        assert_eq!(time("24:00:00"), None);
        assert_eq!(time("00:00:00.1234567890"), None);
        let at = |text: &str| datetime(text).map(|(at, zoned)| (at.seconds, at.nanos, zoned));
        assert_eq!(at("1970-01-01T01:00:00+01:00"), Some((0, 0, true)));
        assert_eq!(at("1969-12-31T23:59:59.5Z"), Some((-1, 500_000_000, true)));
        assert_eq!(at("1970-01-01 00:00:01"), Some((1, 0, false)));
        for bad in [
            "1970-01-01",
            "1970-01-01T",
            "1970-01-01T00:00:00+25:00",
            "é970-01-01T00:00:00",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
        let span = |text: &str| seconds(text).map(|span| (span.seconds, span.nanos));
        assert_eq!(span("-1.5"), Some((-2, 500_000_000)));
        assert_eq!(span("3"), Some((3, 0)));
        assert_eq!(span("1e3"), None);
    }
}
