//! Moments and dates read from text.
//!
//! Rules that hold everywhere: a moment without an offset is UTC; digits past the microsecond (of [`parse_nanos`] the
//! nanosecond) are cut off, not rounded; a leap second (`23:59:60` UTC on the last day of a month) is the last of its
//! minute, so that order is kept.

use crate::Timestamp;

/// Reads an RFC 3339 moment: `2026-11-29T16:44:49.5+02:00`. `t`, `z` and a space for `T` are accepted; an offset is
/// required.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let (days, rest) = date(bytes)?;
    let (clock, offset) = time(rest)?;
    moment(days, clock, self::offset(offset)?).map(micros)
}

/// Reads a moment as [`parse_rfc3339`] does, or without an offset (UTC by rule), or a bare date (its midnight).
#[must_use]
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    parse_nanos(text).map(micros)
}

/// Reads what [`parse_timestamp`] reads, as nanoseconds since 1970-01-01T00:00:00Z: what orders changes keeps every digit
/// that databases send.
#[must_use]
pub fn parse_nanos(text: &str) -> Option<i128> {
    let (days, rest) = date(text.as_bytes())?;
    if rest.is_empty() {
        return moment(days, Clock::default(), 0);
    }
    let (clock, rest) = time(rest)?;
    moment(days, clock, if rest.is_empty() { 0 } else { offset(rest)? })
}

/// Reads a date, `2026-11-29`, as days since 1970-01-01.
#[must_use]
pub fn parse_date(text: &str) -> Option<i32> {
    let (days, rest) = date(text.as_bytes())?;
    if rest.is_empty() {
        i32::try_from(days).ok()
    } else {
        None
    }
}

#[derive(Clone, Copy, Default)]
struct Clock {
    seconds: i64,
    nanos: i64,
    leap: bool,
}

const DAY: i64 = 86_400;

fn micros(nanos: i128) -> Timestamp {
    // Years have four digits.
    Timestamp(i64::try_from(nanos.div_euclid(1_000)).unwrap_or(i64::MAX))
}

fn moment(days: i64, clock: Clock, offset: i64) -> Option<i128> {
    let seconds = days * DAY + clock.seconds - offset;
    let second = i128::from(seconds) * 1_000_000_000;
    if !clock.leap {
        return Some(second + i128::from(clock.nanos));
    }
    // `clock.seconds` is that of second 59: a leap second is only ever the one before midnight at a month's end.
    let midnight = seconds + 1;
    let first_of_month = civil(midnight.div_euclid(DAY)).2 == 1;
    (midnight.rem_euclid(DAY) == 0 && first_of_month).then_some(second + 999_999_999)
}

fn date(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (text, rest) = bytes.split_at_checked(10)?;
    if text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let (year, month, day) = (
        digits(&text[..4])?,
        digits(&text[5..7])?,
        digits(&text[8..])?,
    );
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => return None,
    };
    (1..=length)
        .contains(&day)
        .then(|| (days(year, month, day), rest))
}

fn time(bytes: &[u8]) -> Option<(Clock, &[u8])> {
    let (text, mut rest) = bytes.split_at_checked(9)?;
    if !matches!(text[0], b'T' | b't' | b' ') || text[3] != b':' || text[6] != b':' {
        return None;
    }
    let (hour, minute) = (digits(&text[1..3])?, digits(&text[4..6])?);
    let second = digits(&text[7..])?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut nanos = 0;
    if let [b'.', fraction @ ..] = rest {
        let length = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if length == 0 {
            return None;
        }
        for digit in fraction[..length].iter().chain(b"000000000").take(9) {
            nanos = nanos * 10 + i64::from(digit - b'0');
        }
        rest = &fraction[length..];
    }
    let seconds = hour * 3_600 + minute * 60 + second.min(59);
    Some((
        Clock {
            seconds,
            nanos,
            leap: second == 60,
        },
        rest,
    ))
}

/// Seconds east of UTC.
fn offset(bytes: &[u8]) -> Option<i64> {
    match bytes {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?);
            let seconds = hours * 3_600 + minutes * 60;
            (hours < 24 && minutes < 60).then_some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + i64::from(byte - b'0'))
    })
}

/// Days since 1970-01-01 of a civil date, and back: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (
        yoe + era * 400 + i64::from(month <= 2),
        month,
        doy - (153 * mp + 2) / 5 + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let found = parse_rfc3339(text).map(|t| t.to_string());
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn moments_of_rfc_3339_are_read_in_utc() {
        check("1970-01-01T00:00:00Z", Some("1970-01-01T00:00:00.000000Z"));
        check(
            "2026-11-29t16:44:49.5z",
            Some("2026-11-29T16:44:49.500000Z"),
        );
        check(
            "2026-11-29 16:44:49+02:30",
            Some("2026-11-29T14:14:49.000000Z"),
        );
        check(
            "2024-02-29T23:00:00.1234569-05:00",
            Some("2024-03-01T04:00:00.123456Z"),
        );
        check(
            "0001-01-01T00:00:00-00:00",
            Some("0001-01-01T00:00:00.000000Z"),
        );
        check(
            "1900-03-01T00:00:00+00:00",
            Some("1900-03-01T00:00:00.000000Z"),
        );
    }

    #[test]
    fn a_leap_second_is_the_last_microsecond_of_its_minute() {
        check("2016-12-31T23:59:60Z", Some("2016-12-31T23:59:59.999999Z"));
        check(
            "2016-12-31T15:59:60.25-08:00",
            Some("2016-12-31T23:59:59.999999Z"),
        );
        check("2015-06-30T23:59:60Z", Some("2015-06-30T23:59:59.999999Z"));
        check("2023-12-11T11:31:60Z", None);
        check("2023-12-11T23:59:60Z", None);
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for bad in [
            "",
            "2026",
            "2026-11-29",
            "2026-11-29T16:44:49",
            "2026-13-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T16:60:00Z",
            "2026-11-29T16:44:61Z",
            "2026-11-29T16:44:49.Z",
            "2026-11-29T16:44:49+0200",
            "2026-11-29T16:44:49Zx",
            "+026-11-29T16:44:49Z",
            "２０２６-11-29T16:44:49Z",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn a_moment_without_an_offset_is_utc() {
        assert_eq!(
            parse_timestamp("1970-01-01 00:00:01"),
            Some(Timestamp(1_000_000))
        );
        assert_eq!(
            parse_timestamp("1970-01-02"),
            Some(Timestamp(86_400_000_000))
        );
        assert_eq!(
            parse_timestamp("1970-01-01T00:00:00+01:00"),
            Some(Timestamp(-3_600_000_000))
        );
        assert_eq!(parse_timestamp("1970-01-02 "), None);
    }

    #[test]
    fn nanoseconds_are_kept_where_they_order() {
        for (text, expected) in [
            ("1970-01-01T00:00:00.1234567891Z", Some(123_456_789)),
            ("1969-12-31 23:59:59.5", Some(-500_000_000)),
            ("1970-01-01T01:00:00.000000001+01:00", Some(1)),
            ("1970-01-02", Some(86_400_000_000_000)),
            ("1972-06-30T23:59:60.1Z", Some(78_796_799_999_999_999)),
            ("1970-1-2", None),
            ("0/16B3748", None),
        ] {
            assert_eq!(parse_nanos(text), expected, "{text}");
        }
        assert_eq!(
            parse_timestamp("1969-12-31T23:59:59.9999999Z"),
            Some(Timestamp(-1))
        );
    }

    #[test]
    fn every_date_of_four_centuries_is_read_back() {
        for day in -146_097..146_097_i32 {
            let (year, month, of_month) = civil(i64::from(day));
            let text = format!("{year:04}-{month:02}-{of_month:02}");
            assert_eq!(parse_date(&text), Some(day), "{text}");
        }
    }
}
