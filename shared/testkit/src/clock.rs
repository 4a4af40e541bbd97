//! Time that stands still until a test moves it.

use std::{collections::BTreeMap, sync::Mutex};

use async_trait::async_trait;
use domain::{Duration, Timestamp};
use ports::Clock;
use tokio::sync::watch;

use crate::lock::lock;

/// A clock that only [`advance`](Self::advance) and [`set`](Self::set) move.
#[derive(Debug)]
pub struct SimulatedClock {
    now: watch::Sender<Timestamp>,
    /// How many sleep until each moment.
    sleepers: Mutex<BTreeMap<Timestamp, usize>>,
}

impl SimulatedClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            now: watch::Sender::new(now),
            sleepers: Mutex::default(),
        }
    }

    /// Lets time pass, and wakes who slept until then.
    pub fn advance(&self, span: Duration) {
        self.now.send_modify(|now| *now = *now + span);
    }

    /// Jumps to a moment, which may be an earlier one: real clocks are set back too.
    pub fn set(&self, moment: Timestamp) {
        self.now.send_replace(moment);
    }

    /// The earliest moment that somebody sleeps until: where a simulation with nothing else to do
    /// jumps to.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        lock(&self.sleepers).keys().next().copied()
    }
}

impl Default for SimulatedClock {
    /// A clock that stands at 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self::new(Timestamp(1_767_225_600_000_000))
    }
}

/// One who sleeps; leaves the list when woken or cancelled.
struct Sleeper<'a> {
    clock: &'a SimulatedClock,
    until: Timestamp,
}

impl<'a> Sleeper<'a> {
    fn new(clock: &'a SimulatedClock, until: Timestamp) -> Self {
        *lock(&clock.sleepers).entry(until).or_default() += 1;
        Self { clock, until }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let mut sleepers = lock(&self.clock.sleepers);
        if let Some(count) = sleepers.get_mut(&self.until) {
            *count -= 1;
            if *count == 0 {
                sleepers.remove(&self.until);
            }
        }
    }
}

#[async_trait]
impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    async fn sleep_until(&self, moment: Timestamp) {
        let mut times = self.now.subscribe();
        let _sleeper = Sleeper::new(self, moment);
        // The sender lives as long as `self`, so this ends only when the moment has come.
        let _ = times.wait_for(|now| *now >= moment).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, pin_mut};

    use super::*;

    #[tokio::test]
    async fn a_sleeper_wakes_when_its_moment_has_come_and_not_before() {
        let clock = SimulatedClock::default();
        let moment = clock.now() + Duration::from_secs(10);
        let sleep = clock.sleep_until(moment);
        pin_mut!(sleep);
        assert!(sleep.as_mut().now_or_never().is_none());
        assert_eq!(clock.next_wake(), Some(moment));
        clock.advance(Duration::from_secs(9));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        sleep.await;
        assert_eq!(clock.next_wake(), None);
    }

    #[tokio::test]
    async fn a_moment_that_has_passed_is_not_waited_for() {
        let clock = SimulatedClock::default();
        assert!(clock.sleep_until(clock.now()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_cancelled_sleeper_is_forgotten() {
        let clock = SimulatedClock::default();
        let moment = clock.now() + Duration::from_secs(1);
        assert!(clock.sleep_until(moment).now_or_never().is_none());
        assert_eq!(clock.next_wake(), None);
    }
}
