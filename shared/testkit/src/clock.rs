//! Time that stands still until a test moves it.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    task::{Poll, Waker},
};

use async_trait::async_trait;
use domain::{Duration, Timestamp};
use ports::Clock;

use crate::lock::lock;

/// A clock that only [`advance`](Self::advance) and [`set`](Self::set) move. Who slept is woken in the order of the
/// moments, and of those of one moment in the order they fell asleep: the same every time.
#[derive(Debug)]
pub struct SimulatedClock {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    now: Timestamp,
    /// Sleepers so far.
    count: u64,
    /// Who sleeps, by moment and number.
    sleepers: BTreeMap<(Timestamp, u64), Option<Waker>>,
}

impl SimulatedClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let inner = Inner {
            now,
            count: 0,
            sleepers: BTreeMap::new(),
        };
        Self {
            inner: Mutex::new(inner),
        }
    }

    /// Lets time pass, and wakes who slept until then.
    pub fn advance(&self, span: Duration) {
        self.turn(|now| now + span);
    }

    /// Jumps to a moment, which may be an earlier one: real clocks are set back too.
    pub fn set(&self, moment: Timestamp) {
        self.turn(|_| moment);
    }

    fn turn(&self, to: impl FnOnce(Timestamp) -> Timestamp) {
        let mut inner = lock(&self.inner);
        inner.now = to(inner.now);
        let until = (inner.now, u64::MAX);
        let woken = inner.sleepers.range_mut(..=until);
        let wakers: Vec<Waker> = woken.filter_map(|(_, waker)| waker.take()).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The earliest moment that somebody sleeps until: where a simulation with nothing else to do
    /// jumps to.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        let inner = lock(&self.inner);
        // One that was woken and has not looked yet does not wait for time.
        let mut asleep = inner.sleepers.iter().filter(|(_, waker)| waker.is_some());
        asleep.next().map(|((moment, _), _)| *moment)
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
    key: (Timestamp, u64),
}

impl<'a> Sleeper<'a> {
    fn new(clock: &'a SimulatedClock, until: Timestamp) -> Self {
        let mut inner = lock(&clock.inner);
        inner.count += 1;
        let key = (until, inner.count);
        inner.sleepers.insert(key, None);
        drop(inner);
        Self { clock, key }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        lock(&self.clock.inner).sleepers.remove(&self.key);
    }
}

#[async_trait]
impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        lock(&self.inner).now
    }

    async fn sleep_until(&self, moment: Timestamp) {
        let sleeper = Sleeper::new(self, moment);
        std::future::poll_fn(|context| {
            let mut inner = lock(&self.inner);
            if inner.now >= moment {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            inner.sleepers.insert(sleeper.key, Some(waker));
            Poll::Pending
        })
        .await;
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
