//! Time, by the door.

use async_trait::async_trait;
use domain::Timestamp;

/// The clock.
#[async_trait]
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Returns once [`now`](Self::now) is at or past `moment`.
    async fn sleep_until(&self, moment: Timestamp);
}
