//! What a caller gets: a pure function of the row, the lease and the time.

use std::collections::BTreeMap;

use super::{Content, Lease, Mode, Summary};
use crate::{Duration, Position, TableName, Timestamp};

/// How good a ready entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// As good as new.
    Fresh,
    /// It may be served while it is rebuilt.
    Stale,
    /// It may not be served.
    Gone,
}

/// What a caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The entry.
    Hit,
    /// The entry, which is expired. Whoever is told to `build` is the one who does.
    Stale {
        /// Whether nobody builds it yet.
        build: bool,
    },
    /// Nothing, and nobody builds it: the caller may.
    Build,
    /// Nothing, and somebody builds it.
    Wait {
        /// When they are taken over.
        until: Timestamp,
    },
}

/// How good a content is at `now`: expired at its very expiry, or at the caller's own `ttl` if that is sooner, or when one
/// of the tables it was computed from has moved (`heads`, when that counts).
#[must_use]
pub fn freshness(
    content: &Content,
    ttl: Option<Duration>,
    heads: Option<&BTreeMap<TableName, Position>>,
    stale_max: Duration,
    now: Timestamp,
) -> Freshness {
    let asked = ttl.map(|ttl| content.created_at + ttl);
    let expiry = match (content.expires_at, asked) {
        (Some(expiry), Some(asked)) => Some(expiry.min(asked)),
        (expiry, asked) => expiry.or(asked),
    };
    match expiry {
        Some(expiry) if now >= expiry + stale_max => Freshness::Gone,
        Some(expiry) if now >= expiry => Freshness::Stale,
        _ if heads.is_some_and(|heads| *heads != content.watermarks) => Freshness::Stale,
        _ => Freshness::Fresh,
    }
}

/// Decides what a caller gets.
#[must_use]
pub fn decide(
    freshness: Option<Freshness>,
    lease: Option<&Lease>,
    mode: Mode,
    now: Timestamp,
) -> Decision {
    let held = lease.filter(|lease| lease.is_held(now));
    match (freshness, mode) {
        (Some(Freshness::Fresh), _) => Decision::Hit,
        (Some(Freshness::Stale), Mode::Swr) => Decision::Stale {
            // After a build that failed there is a pause, or every reader would try again.
            build: lease.is_none_or(|lease| now >= lease.deadline),
        },
        (Some(Freshness::Stale), Mode::Strict) | (Some(Freshness::Gone) | None, _) => match held {
            Some(lease) => Decision::Wait {
                until: lease.deadline,
            },
            None => Decision::Build,
        },
    }
}

/// Whether the sweep removes an entry: expired, and of no use as stale data either. What is built is its lease's business.
#[must_use]
pub fn is_due(summary: &Summary, stale_max: Duration, now: Timestamp) -> bool {
    let kept = match summary.mode {
        Mode::Swr => stale_max,
        Mode::Strict => Duration::ZERO,
    };
    summary.ready
        && summary
            .expires_at
            .is_some_and(|expiry| now >= expiry + kept)
}
