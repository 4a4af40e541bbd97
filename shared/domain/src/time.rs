//! Moments and spans as values; the clock itself is a port.

use std::{fmt, ops};

use serde::{Deserialize, Serialize};

pub use std::time::Duration;

pub use crate::rfc3339::{parse_date, parse_nanos, parse_rfc3339, parse_timestamp};

/// A moment in UTC: microseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The span from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Milliseconds since the epoch, rounded down.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }
}

impl ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)),
        )
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with microseconds: `2026-11-29T16:44:49.000000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Civil date from days: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
        let (days, micros) = (
            self.0.div_euclid(86_400_000_000),
            self.0.rem_euclid(86_400_000_000),
        );
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_prints_as_rfc_3339() {
        let text = |micros| Timestamp(micros).to_string();
        assert_eq!(text(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(text(1_709_164_800_000_001), "2024-02-29T00:00:00.000001Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59.999999Z");
    }
}
