//! The clock on the wall.

use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use domain::{Duration, Timestamp};
use ports::Clock;

/// Longest sleep before the wall is looked at again: it may have been set forward meanwhile.
const STRETCH_MAX: Duration = Duration::from_secs(10);

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock set before 1970 reads as 1970.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    async fn sleep_until(&self, moment: Timestamp) {
        loop {
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(STRETCH_MAX)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_sleeper_wakes_at_its_moment_or_later() {
        let moment = SystemClock.now() + Duration::from_millis(3);
        SystemClock.sleep_until(moment).await;
        assert!(SystemClock.now() >= moment);
        assert!(
            SystemClock.sleep_until(moment).now_or_never().is_some(),
            "it has passed"
        );
    }
}
