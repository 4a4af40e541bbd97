//! Lag history: how old data was when models applied it, per interval, in a sketch of a few hundred bytes. Pure.
//!
//! A [`Sketch`] counts lags in fixed buckets: one per millisecond below 32 ms, from there on sixteen per doubling. So
//! sketches merge exactly, and a quantile read from one is never below the true quantile of its lags and less than a
//! sixteenth above it; count, sum and maximum are exact.
//!
//! The sketches of the intervals under way ride in the model's state. One that is over moves to a slot of its own, which
//! the interval of the next round overwrites: history is bounded without ever being pruned.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Duration, Timestamp};

/// Below this, every millisecond has a bucket of its own.
const EXACT: u64 = 32;
/// Buckets per doubling above it, as a power of two.
const FINENESS: u32 = 4;
/// The last bucket there is: that of `u64::MAX`.
const BUCKET_MAX: u16 = 975;

/// Lags of one interval, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Sketch {
    counts: BTreeMap<u16, u64>,
    total_ms: u64,
    max_ms: u64,
}

/// A sketch as it is written: `[gap to the bucket before, count, ..]`, which is shorter than names of buckets.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    counts: Vec<u64>,
    total_ms: u64,
    max_ms: u64,
}

/// What a sketch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Lags counted.
    pub count: u64,
    /// The median, at most a sixteenth too high.
    pub p50_ms: u64,
    /// The 95th percentile, likewise.
    pub p95_ms: u64,
    /// The highest, exactly.
    pub max_ms: u64,
}

impl Sketch {
    /// Counts a lag.
    pub fn note(&mut self, lag: Duration) {
        let ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
        let count = self.counts.entry(bucket(ms)).or_default();
        *count = count.saturating_add(1);
        self.total_ms = self.total_ms.saturating_add(ms);
        self.max_ms = self.max_ms.max(ms);
    }

    /// Counts all lags of another sketch too.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, more) in &other.counts {
            let count = self.counts.entry(*bucket).or_default();
            *count = count.saturating_add(*more);
        }
        self.total_ms = self.total_ms.saturating_add(other.total_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    /// Lags counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts
            .values()
            .fold(0, |all, n| all.saturating_add(*n))
    }

    /// The lag that `percent` of all do not exceed; none without lags. Never too low, less than a sixteenth too high.
    #[must_use]
    pub fn quantile_ms(&self, percent: u64) -> Option<u64> {
        let count = u128::from(self.count());
        let rank = (count * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut below = 0;
        self.counts.iter().find_map(|(bucket, n)| {
            below += u128::from(*n);
            (below >= rank).then(|| highest(*bucket).min(self.max_ms))
        })
    }

    /// All of it in four numbers; none without lags.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        Some(Summary {
            count: self.count(),
            p50_ms: self.quantile_ms(50)?,
            p95_ms: self.quantile_ms(95)?,
            max_ms: self.max_ms,
        })
    }
}

/// The bucket of a lag.
fn bucket(ms: u64) -> u16 {
    if ms < EXACT {
        return u16::try_from(ms).unwrap_or(BUCKET_MAX);
    }
    let exponent = ms.ilog2();
    let step = (ms >> (exponent - FINENESS)) & ((1 << FINENESS) - 1);
    let doubling = u64::from(exponent - EXACT.ilog2());
    u16::try_from(EXACT + (doubling << FINENESS) + step).unwrap_or(BUCKET_MAX)
}

/// The highest lag of a bucket.
fn highest(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    let Some(above) = bucket.checked_sub(EXACT) else {
        return bucket;
    };
    let (doubling, step) = (above >> FINENESS, above & ((1 << FINENESS) - 1));
    let next = u128::from((1 << FINENESS) + step + 1) << (doubling + 1);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

impl From<Sketch> for Stored {
    fn from(sketch: Sketch) -> Self {
        let mut last = 0;
        let pair = |(bucket, count): (u16, u64)| {
            let gap = bucket - last;
            last = bucket;
            [u64::from(gap), count]
        };
        Self {
            counts: sketch.counts.into_iter().flat_map(pair).collect(),
            total_ms: sketch.total_ms,
            max_ms: sketch.max_ms,
        }
    }
}

impl TryFrom<Stored> for Sketch {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        let (pairs, rest) = stored.counts.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("a bucket of a lag sketch without its count".to_owned());
        }
        let (mut counts, mut last) = (BTreeMap::new(), 0_u64);
        for [gap, count] in pairs {
            last = last.saturating_add(*gap);
            let bucket = u16::try_from(last).ok().filter(|b| *b <= BUCKET_MAX);
            let bucket = bucket.ok_or_else(|| format!("a lag sketch has no bucket {last}"))?;
            counts.insert(bucket, *count);
        }
        Ok(Self {
            counts,
            total_ms: stored.total_ms,
            max_ms: stored.max_ms,
        })
    }
}

/// How finely history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grain {
    /// Minutes, of the last hour.
    Minute,
    /// Quarters of an hour, of the last day.
    Quarter,
}

impl Grain {
    /// Length of an interval.
    #[must_use]
    pub fn width(self) -> Duration {
        match self {
            Self::Minute => Duration::from_secs(60),
            Self::Quarter => Duration::from_secs(900),
        }
    }

    /// Intervals that are over and kept.
    #[must_use]
    pub fn slots(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Quarter => 96,
        }
    }

    /// The word of its keys.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Quarter => "quarter",
        }
    }

    /// The beginning of the interval that a moment lies in.
    #[must_use]
    pub fn start(self, at: Timestamp) -> Timestamp {
        let width = self.micros();
        Timestamp(at.0.div_euclid(width).saturating_mul(width))
    }

    /// The slot of an interval, from 0.
    #[must_use]
    pub fn slot(self, start: Timestamp) -> i64 {
        start.0.div_euclid(self.micros()).rem_euclid(self.slots())
    }

    /// The first moment that history reaches back to: whole intervals, and the one under way.
    #[must_use]
    pub fn since(self, now: Timestamp) -> Timestamp {
        let back = self.micros().saturating_mul(self.slots());
        Timestamp(self.start(now).0.saturating_sub(back))
    }

    fn micros(self) -> i64 {
        i64::try_from(self.width().as_micros()).unwrap_or(i64::MAX)
    }
}

/// Lags of one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Its beginning.
    pub start: Timestamp,
    /// Lags of refreshes that committed in it.
    pub lags: Sketch,
}

/// What of a model's lag history rides in its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// The minute under way, or the last one in which anything was applied.
    pub minute: Interval,
    /// The quarter of an hour likewise.
    pub quarter: Interval,
    /// Lags counted ever.
    pub count: u64,
    /// Their sum.
    pub total_ms: u64,
}

impl Recent {
    /// The history after a commit at `now` that removed a lag, and the intervals that are over by it.
    #[must_use]
    pub fn after(
        before: Option<&Self>,
        now: Timestamp,
        lag: Duration,
    ) -> (Self, Vec<(Grain, Interval)>) {
        let mut over = Vec::new();
        let mut turn = |grain: Grain, interval: Option<&Interval>| {
            let start = grain.start(now);
            match interval {
                // A clock that is a little behind that of the process before does not turn history back.
                Some(interval) if start <= interval.start => interval.clone(),
                interval => {
                    over.extend(interval.map(|interval| (grain, interval.clone())));
                    Interval {
                        start,
                        lags: Sketch::default(),
                    }
                }
            }
        };
        let mut after = Self {
            minute: turn(Grain::Minute, before.map(|before| &before.minute)),
            quarter: turn(Grain::Quarter, before.map(|before| &before.quarter)),
            count: before.map_or(0, |before| before.count).saturating_add(1),
            total_ms: before.map_or(0, |before| before.total_ms),
        };
        after.minute.lags.note(lag);
        after.quarter.lags.note(lag);
        let ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
        after.total_ms = after.total_ms.saturating_add(ms);
        (after, over)
    }

    /// The interval that rides along.
    #[must_use]
    pub fn interval(&self, grain: Grain) -> &Interval {
        match grain {
            Grain::Minute => &self.minute,
            Grain::Quarter => &self.quarter,
        }
    }
}

/// The intervals of a history that begin within reach of `now`, oldest first, from those kept and the one that rides along.
#[must_use]
pub fn history(
    grain: Grain,
    kept: impl IntoIterator<Item = Interval>,
    recent: Option<&Recent>,
    now: Timestamp,
) -> Vec<Interval> {
    let since = grain.since(now);
    let riding = recent.map(|recent| recent.interval(grain).clone());
    let mut found: BTreeMap<Timestamp, Interval> = BTreeMap::new();
    for interval in kept.into_iter().chain(riding) {
        if interval.start >= since {
            found.insert(interval.start, interval);
        }
    }
    found.into_values().collect()
}

/// How long a refresh may well take, from how long the last ones took: the slowest, forgotten by an eighth with every
/// refresh that was quicker.
#[must_use]
pub fn slow_ms(before: Option<u64>, took_ms: u64) -> u64 {
    let faded = before.map_or(0, |before| before - before / 8 - u64::from(before % 8 > 0));
    took_ms.max(faded)
}

#[cfg(test)]
mod tests;
