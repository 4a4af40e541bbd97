//! A circuit breaker: an outage costs the time limit a few times, and not every call.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Failures in a row after which the registry is left alone.
const FAILURES: u32 = 3;

/// Whether the registry is asked at all.
#[derive(Debug)]
pub(crate) struct Breaker {
    rest: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Nobody asks before; then one does, for all.
    closed_until: Option<Instant>,
}

impl Breaker {
    pub(crate) fn new(rest: Duration) -> Self {
        Self {
            rest,
            state: Mutex::default(),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this caller may ask. After a rest one caller may, and the others wait for what it finds.
    pub(crate) fn allows(&self) -> bool {
        let now = Instant::now();
        self.with(|state| match state.closed_until {
            Some(until) if now < until => false,
            Some(_) => {
                state.closed_until = Some(now + self.rest);
                true
            }
            None => true,
        })
    }

    /// The registry answered.
    pub(crate) fn answered(&self) {
        self.with(|state| *state = State::default());
    }

    /// The registry did not answer.
    pub(crate) fn failed(&self) {
        let now = Instant::now();
        self.with(|state| {
            state.failures = state.failures.saturating_add(1);
            if state.failures >= FAILURES {
                state.closed_until = Some(now + self.rest);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_failures_in_a_row_close_it_and_an_answer_opens_it() {
        let breaker = Breaker::new(Duration::from_secs(3_600));
        breaker.failed();
        breaker.failed();
        breaker.answered();
        for _ in 0..FAILURES {
            assert!(breaker.allows());
            breaker.failed();
        }
        assert!(!breaker.allows());
        breaker.answered();
        assert!(breaker.allows());
    }

    #[test]
    fn after_a_rest_one_caller_tries() {
        let breaker = Breaker::new(Duration::ZERO);
        (0..FAILURES).for_each(|_| breaker.failed());
        assert!(breaker.allows(), "its rest is over");
        let breaker = Breaker::new(Duration::from_secs(3_600));
        breaker.with(|state| {
            state.failures = FAILURES;
            state.closed_until = Some(Instant::now());
        });
        assert!(breaker.allows());
        assert!(!breaker.allows(), "somebody is trying");
    }
}
