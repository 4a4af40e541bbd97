//! Waiting before the same is tried again, where the client's own retries do not reach.

use std::sync::Arc;

use domain::{Duration, Timestamp};
use ports::{Chance, Clock};

/// Attempts of what the client does not retry itself: failed entries of a batch, conflicting writes.
pub(crate) const ATTEMPTS: u32 = 6;
/// Longest wait before the first repetition; it doubles with each.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Time and chance of an adapter.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
}

impl Patience {
    pub(crate) fn new(clock: Arc<dyn Clock>, chance: Arc<dyn Chance>) -> Self {
        Self { clock, chance }
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A fresh id.
    pub(crate) fn id(&self) -> String {
        self.chance.id(self.clock.now())
    }

    /// Waits before a repetition, the first being 1: any part of a span that doubles, so that those who failed together
    /// do not come back together.
    pub(crate) async fn wait(&self, repetition: u32) {
        let doubled = 1_u32 << repetition.saturating_sub(1).min(10);
        let span = FIRST.saturating_mul(doubled).min(LONGEST);
        let moment = self.clock.now() + span.mul_f64(self.chance.fraction());
        self.clock.sleep_until(moment).await;
    }
}
