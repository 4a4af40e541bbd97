//! The coalescer: many announcements, few cycles. Pure.

use crate::{LiveSettings, Timestamp};

/// When the next cycle is due.
///
/// A batch opens at the first announced advance after a cycle starts; it closes after `debounce` of quiet, or
/// `max_latency` after it opened. Cycles start at least `min_interval` apart. A poll is due `poll_interval` after the
/// last cycle start, the first one after the start of the runner, for what nobody announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coalescer {
    started: Timestamp,
    last_cycle: Option<Timestamp>,
    batch: Option<Batch>,
    woken: Option<Timestamp>,
}

/// Advances that no cycle has covered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Batch {
    opened: Timestamp,
    last: Timestamp,
}

impl Coalescer {
    /// A coalescer that has seen nothing.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        Self {
            started,
            last_cycle: None,
            batch: None,
            woken: None,
        }
    }

    /// An advance was announced.
    pub fn advanced(&mut self, at: Timestamp) {
        match &mut self.batch {
            Some(batch) => batch.last = batch.last.max(at),
            None => {
                self.batch = Some(Batch {
                    opened: at,
                    last: at,
                })
            }
        }
    }

    /// Somebody asked for a cycle now: due as soon as `min_interval` allows.
    pub fn wake(&mut self, at: Timestamp) {
        self.woken.get_or_insert(at);
    }

    /// A cycle starts: it covers every advance so far.
    pub fn cycle_started(&mut self, at: Timestamp) {
        self.last_cycle = Some(at);
        self.batch = None;
        self.woken = None;
    }

    /// When the next cycle is due; may lie in the past.
    #[must_use]
    pub fn due(&self, live: &LiveSettings) -> Timestamp {
        let poll = self.last_cycle.unwrap_or(self.started) + live.poll_interval;
        let batch = self
            .batch
            .map(|b| (b.last + live.debounce).min(b.opened + live.max_latency));
        let wanted = [batch, self.woken]
            .into_iter()
            .flatten()
            .fold(poll, Timestamp::min);
        match self.last_cycle {
            Some(last) => wanted.max(last + live.min_interval),
            None => wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Duration;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::default() + Duration::from_secs_f64(seconds)
    }

    /// Replays arrivals (second, announced) and returns cycles (second, advances covered) up to a horizon.
    fn check(live: &LiveSettings, arrivals: &[(f64, bool)], horizon: f64, expect: &[(f64, usize)]) {
        let mut coalescer = Coalescer::new(at(0.0));
        let (mut next, mut covered, mut cycles) = (0, 0, Vec::new());
        loop {
            let due = coalescer.due(live);
            let arrival = arrivals
                .get(next)
                .map(|(second, announced)| (at(*second), *announced));
            match arrival {
                Some((when, announced)) if when <= due => {
                    next += 1;
                    if announced {
                        coalescer.advanced(when);
                    }
                }
                _ if due <= at(horizon) => {
                    coalescer.cycle_started(due);
                    if next > covered {
                        cycles.push((due, next - covered));
                    }
                    covered = next;
                }
                _ => break,
            }
        }
        let expect: Vec<_> = expect.iter().map(|(second, n)| (at(*second), *n)).collect();
        assert_eq!(cycles, expect);
    }

    fn live(
        min_interval: f64,
        debounce: f64,
        max_latency: f64,
        poll_interval: f64,
    ) -> LiveSettings {
        LiveSettings {
            min_interval: Duration::from_secs_f64(min_interval),
            debounce: Duration::from_secs_f64(debounce),
            max_latency: Duration::from_secs_f64(max_latency),
            poll_interval: Duration::from_secs_f64(poll_interval),
            ..LiveSettings::default()
        }
    }

    #[test]
    fn a_burst_is_one_cycle() {
        let arrivals: Vec<_> = (0..40).map(|n| (f64::from(n) / 100.0, true)).collect();
        check(&live(0.5, 0.3, 2.0, 1e3), &arrivals, 20.0, &[(0.69, 40)]);
    }

    #[test]
    fn a_stream_without_a_pause_is_cut_at_the_longest_latency() {
        let arrivals: Vec<_> = (0..30).map(|n| (f64::from(n) / 10.0, true)).collect();
        check(
            &live(0.5, 0.2, 1.0, 1e3),
            &arrivals,
            20.0,
            &[(1.0, 11), (2.1, 11), (3.1, 8)],
        );
    }

    #[test]
    fn cycles_keep_their_distance_and_gather_what_arrived() {
        check(
            &live(1.0, 0.2, 5.0, 1e3),
            &[(0.0, true), (0.5, true), (1.0, true)],
            20.0,
            &[(0.2, 1), (1.2, 2)],
        );
    }

    #[test]
    fn the_poll_finds_what_nobody_announced() {
        check(&live(1.0, 0.2, 5.0, 5.0), &[(2.3, false)], 9.0, &[(5.0, 1)]);
    }

    #[test]
    fn a_wake_is_due_at_once_but_not_before_the_least_interval() {
        let live = live(1.0, 0.2, 5.0, 5.0);
        let mut coalescer = Coalescer::new(at(0.0));
        coalescer.wake(at(0.5));
        assert_eq!(coalescer.due(&live), at(0.5));
        coalescer.cycle_started(at(0.5));
        coalescer.wake(at(0.6));
        assert_eq!(coalescer.due(&live), at(1.5));
    }
}
