//! The log of refreshes: one line per model and interval instead of one per refresh.

use std::collections::{BTreeMap, BTreeSet};

use domain::{Duration, TableName, Timestamp};

use crate::refresh::Refreshed;

/// Refreshes since the last lines.
#[derive(Debug)]
pub(super) struct Journal {
    since: Timestamp,
    models: BTreeMap<TableName, Line>,
    /// Models whose last attempt failed.
    failing: BTreeSet<TableName>,
    /// What assertions of severity warn said of a model last.
    warned: BTreeMap<TableName, Vec<String>>,
}

/// What one model did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Refreshes that succeeded.
    pub(super) refreshes: u64,
    /// Rows they added.
    pub(super) added: u64,
    /// Sum of the lags they removed, in milliseconds.
    pub(super) lag_ms: u64,
    /// The highest of them.
    pub(super) lag_ms_max: u64,
}

impl Journal {
    /// An empty journal.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            since: now,
            models: BTreeMap::new(),
            failing: BTreeSet::new(),
            warned: BTreeMap::new(),
        }
    }

    /// Notes how a refresh ended. Failures and recoveries are logged as they happen.
    pub(super) fn note(&mut self, model: &TableName, how: &Refreshed) {
        match how {
            Refreshed::Built {
                added,
                lag_ms,
                warnings,
                ..
            } => {
                let line = self.models.entry(model.clone()).or_default();
                line.refreshes += 1;
                line.added += added;
                line.lag_ms += lag_ms;
                line.lag_ms_max = line.lag_ms_max.max(*lag_ms);
                if self.failing.remove(model) {
                    tracing::info!(%model, "refreshes again");
                }
                // Once for as long as they are the same.
                if self.warned.get(model).is_none_or(|told| told != warnings) {
                    for warning in warnings {
                        tracing::warn!(%model, warning, "an assertion does not hold");
                    }
                    self.warned.insert(model.clone(), warnings.clone());
                }
            }
            Refreshed::Error { message } | Refreshed::AssertionFailed { message } => {
                self.failing.insert(model.clone());
                tracing::warn!(%model, error = message, "refresh failed");
            }
            Refreshed::Idle | Refreshed::Conflict | Refreshed::Held { .. } => {}
        }
    }

    /// The lines of an interval that is over.
    pub(super) fn take(&mut self, now: Timestamp, interval: Duration) -> BTreeMap<TableName, Line> {
        if now.since(self.since) < interval {
            return BTreeMap::new();
        }
        self.since = now;
        std::mem::take(&mut self.models)
    }
}

/// Writes lines to the log.
pub(super) fn write(lines: &BTreeMap<TableName, Line>) {
    for (model, line) in lines {
        let average = line.lag_ms / line.refreshes.max(1);
        tracing::info!(
            %model,
            refreshes = line.refreshes,
            rows = line.added,
            lag_ms_average = average,
            lag_ms_max = line.lag_ms_max,
            "refreshed"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refreshes_of_one_interval_make_one_line() {
        let model = TableName::new("silver", "orders").expect("a name");
        let built = |added, lag_ms| Refreshed::Built {
            added,
            deleted: 0,
            rows: 0,
            lag_ms,
            duration_ms: 1,
            warnings: Vec::new(),
            quarantined: 0,
            recomputed: None,
        };
        let mut journal = Journal::new(Timestamp(0));
        journal.note(&model, &built(2, 100));
        journal.note(&model, &built(3, 300));
        let minute = Duration::from_secs(60);
        assert!(journal.take(Timestamp(59_999_999), minute).is_empty());
        let lines = journal.take(Timestamp(60_000_000), minute);
        let line = Line {
            refreshes: 2,
            added: 5,
            lag_ms: 400,
            lag_ms_max: 300,
        };
        assert_eq!(lines.get(&model), Some(&line));
        assert!(journal.take(Timestamp(999_000_000), minute).is_empty());
    }
}
