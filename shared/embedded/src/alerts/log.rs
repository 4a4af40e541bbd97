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
                let alert = "live_model_failed";
                tracing::warn!(alert, %model, %at, "live model `{model}` failed: {detail}");
            }
            AlertKind::LiveModelRecovered => {
                let alert = "live_model_recovered";
                tracing::info!(alert, %model, %at, "live model `{model}` recovered");
            }
        }
        Ok(())
    }
}
