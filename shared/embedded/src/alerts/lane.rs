//! The alerts of one channel: few wait, one is under way.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use domain::Duration;
use ports::{Clock, alerts::Alert};
use tokio::sync::Notify;

use super::{Channel, Post};

/// Alerts that may wait: models fail and recover once each, so more are a storm that nobody reads.
const WAITING_MAX: usize = 256;
/// Attempts at one alert.
const ATTEMPTS_MAX: u32 = 5;
/// Between the first attempt and the second; twice as long before each other one.
const BACKOFF: Duration = Duration::from_secs(1);
/// Longest one attempt may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One channel, and what it is to be sent.
#[derive(Debug)]
pub(super) struct Lane {
    channel: Channel,
    post: Arc<dyn Post>,
    clock: Arc<dyn Clock>,
    waiting: Mutex<Waiting>,
    emptied: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    alerts: VecDeque<Alert>,
    /// Whether somebody delivers them.
    worked: bool,
}

/// How an attempt ended.
enum Ended {
    Delivered,
    /// Asking again may help.
    Failed(String),
    /// The channel does not want it.
    Refused(String),
}

impl Lane {
    pub(super) fn new(channel: Channel, post: Arc<dyn Post>, clock: Arc<dyn Clock>) -> Self {
        Self {
            channel,
            post,
            clock,
            waiting: Mutex::default(),
            emptied: Notify::new(),
            dropped: AtomicU64::new(0),
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an alert, and has it delivered.
    pub(super) fn push(self: &Arc<Self>, alert: Alert) {
        let mut waiting = self.waiting();
        if waiting.alerts.len() >= WAITING_MAX {
            drop(waiting);
            return self.drop_alert(&alert, "too many are waiting");
        }
        waiting.alerts.push_back(alert);
        if !std::mem::replace(&mut waiting.worked, true) {
            tokio::spawn(self.clone().work());
        }
    }

    /// Resolves when nothing waits and nothing is under way.
    pub(super) async fn idle(&self) {
        loop {
            let emptied = self.emptied.notified();
            if !self.waiting().worked {
                return;
            }
            emptied.await;
        }
    }

    async fn work(self: Arc<Self>) {
        while let Some(alert) = self.next() {
            self.deliver(&alert).await;
        }
        self.emptied.notify_waiters();
    }

    fn next(&self) -> Option<Alert> {
        let mut waiting = self.waiting();
        let next = waiting.alerts.pop_front();
        waiting.worked = next.is_some();
        next
    }

    async fn deliver(&self, alert: &Alert) {
        let body = self.channel.body(alert);
        let (mut attempt, mut pause) = (1, BACKOFF);
        loop {
            let why = match self.attempt(&body).await {
                Ended::Delivered => return,
                Ended::Refused(why) => return self.drop_alert(alert, &why),
                Ended::Failed(why) => why,
            };
            if attempt == ATTEMPTS_MAX {
                return self.drop_alert(alert, &why);
            }
            self.clock.sleep_until(self.clock.now() + pause).await;
            (attempt, pause) = (attempt + 1, pause * 2);
        }
    }

    async fn attempt(&self, body: &str) -> Ended {
        let sent = self.post.post(self.channel.url(), body.to_owned());
        let over = self.clock.sleep_until(self.clock.now() + PATIENCE);
        futures::pin_mut!(sent, over);
        match futures::future::select(sent, over).await {
            futures::future::Either::Left((Ok(200..=299), _)) => Ended::Delivered,
            futures::future::Either::Left((Ok(status @ (408 | 429 | 500..)), _)) => {
                Ended::Failed(format!("it answered {status}"))
            }
            futures::future::Either::Left((Ok(status), _)) => {
                Ended::Refused(format!("it answered {status}"))
            }
            futures::future::Either::Left((Err(why), _)) => Ended::Failed(why),
            futures::future::Either::Right(_) => {
                Ended::Failed(format!("it did not answer within {PATIENCE:?}"))
            }
        }
    }

    fn drop_alert(&self, alert: &Alert, why: &str) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        let (channel, model, kind) = (self.channel.name(), &alert.model, alert.kind);
        tracing::error!(channel, %model, ?kind, why, "an alert was not delivered");
    }
}
