//! Alerts about models: handed over at once when that is possible, else behind the refresh's back.

use std::task::Poll;

use domain::{TableName, Timestamp};
use ports::alerts::{Alert, AlertKind};

use crate::World;

/// Tells that a model failed for the first time.
pub(crate) async fn failed(world: &World, model: &TableName, at: Timestamp, why: &str) {
    let (kind, detail) = (AlertKind::LiveModelFailed, Some(why.to_owned()));
    send(
        world,
        Alert {
            kind,
            model: model.clone(),
            at,
            detail,
        },
    )
    .await;
}

/// Tells that a failing model refreshed again.
pub(crate) async fn recovered(world: &World, model: &TableName, at: Timestamp) {
    let kind = AlertKind::LiveModelRecovered;
    send(
        world,
        Alert {
            kind,
            model: model.clone(),
            at,
            detail: None,
        },
    )
    .await;
}

/// Nothing waits for a slow receiver, and nothing fails because of a failing one.
async fn send(world: &World, alert: Alert) {
    let alerts = world.alerts.clone();
    let mut sending = Box::pin(async move {
        if let Err(error) = alerts.send(alert).await {
            tracing::warn!(error = error.chain(), "an alert was not delivered");
        }
    });
    let sent = std::future::poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
    if sent.is_pending() {
        tokio::spawn(sending);
    }
}
