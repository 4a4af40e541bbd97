//! Alerts that a test can read.

use std::sync::Mutex;

use async_trait::async_trait;
use ports::{Alerts, Result, alerts::Alert};

use crate::lock::lock;

/// Keeps every alert in the order sent.
#[derive(Debug, Default)]
pub struct RecordedAlerts {
    sent: Mutex<Vec<Alert>>,
}

impl RecordedAlerts {
    /// Nothing sent yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Every alert so far.
    #[must_use]
    pub fn all(&self) -> Vec<Alert> {
        lock(&self.sent).clone()
    }

    /// Every alert since the last call of this.
    pub fn take(&self) -> Vec<Alert> {
        std::mem::take(&mut lock(&self.sent))
    }
}

#[async_trait]
impl Alerts for RecordedAlerts {
    async fn send(&self, alert: Alert) -> Result<()> {
        lock(&self.sent).push(alert);
        Ok(())
    }
}
