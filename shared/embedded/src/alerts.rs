//! Alerts into the log.

use async_trait::async_trait;
use ports::{
    Alerts, Result,
    alerts::{Alert, AlertKind},
};

/// Writes alerts to the log: failures as warnings, recoveries as information.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogAlerts;

#[async_trait]
impl Alerts for LogAlerts {
    async fn send(&self, alert: Alert) -> Result<()> {
        let Alert {
            kind,
            model,
            at,
            detail,
        } = alert;
        let detail = detail.unwrap_or_default();
        match kind {
            AlertKind::LiveModelFailed => {
                tracing::warn!(alert = "live_model_failed", %model, %at, "live model `{model}` failed: {detail}");
            }
            AlertKind::LiveModelRecovered => {
                tracing::info!(alert = "live_model_recovered", %model, %at, "live model `{model}` recovered");
            }
        }
        Ok(())
    }
}
