//! Alerts into the log, a webhook and Slack.
//!
//! Whoever tells something goes on at once: an alert waits in a lane of its channel, and is delivered behind everybody's
//! back. A channel that fails is asked again a few times, one that is slow or dead holds up nobody, and what cannot be
//! delivered is counted and logged.

mod channel;
mod http;
mod lane;
mod log;

use std::sync::Arc;

use async_trait::async_trait;
use domain::Duration;
use ports::{Alerts, Clock, Result, alerts::Alert};

pub use channel::Channel;
pub use http::{HttpPost, Post};
pub use log::LogAlerts;

use lane::Lane;

/// Alerts into the log, and into channels beside it.
#[derive(Debug)]
pub struct ChannelAlerts {
    log: bool,
    lanes: Vec<Arc<Lane>>,
    clock: Arc<dyn Clock>,
}

impl ChannelAlerts {
    /// Into these channels by `post`, and into the log if so wanted.
    #[must_use]
    pub fn new(
        log: bool,
        channels: Vec<Channel>,
        post: Arc<dyn Post>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let lane = |channel| Arc::new(Lane::new(channel, post.clone(), clock.clone()));
        Self {
            log,
            lanes: channels.into_iter().map(lane).collect(),
            clock,
        }
    }

    /// Alerts that could not be delivered, or had no room to wait in.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.dropped()).sum()
    }
}

/// Alerts of a project into its channels, over HTTP.
#[must_use]
pub fn channels(
    log: bool,
    project: &str,
    webhook: Option<String>,
    slack: Option<String>,
    clock: Arc<dyn Clock>,
) -> ChannelAlerts {
    let project = || project.to_owned();
    let webhook = webhook.map(|url| Channel::Webhook {
        url,
        project: project(),
    });
    let slack = slack.map(|url| Channel::Slack {
        url,
        project: project(),
    });
    let channels = webhook.into_iter().chain(slack).collect();
    ChannelAlerts::new(log, channels, HttpPost::new(), clock)
}

#[async_trait]
impl Alerts for ChannelAlerts {
    async fn send(&self, alert: Alert) -> Result<()> {
        for lane in &self.lanes {
            lane.push(alert.clone());
        }
        match self.log {
            true => LogAlerts.send(alert).await,
            false => Ok(()),
        }
    }

    async fn flush(&self, within: Duration) {
        let all = futures::future::join_all(self.lanes.iter().map(|lane| lane.idle()));
        let over = self.clock.sleep_until(self.clock.now() + within);
        futures::pin_mut!(all, over);
        futures::future::select(all, over).await;
    }
}
