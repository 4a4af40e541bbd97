//! Posts events as a webhook sender would.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, header::CONTENT_TYPE};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::Deserialize;

use super::{
    freshness::Freshness,
    orders::{Drawn, Orders},
};
use crate::{cli, failure::Failure};

/// Between two POSTs.
const PACE: Duration = Duration::from_millis(10);
/// POSTs a demonstration that counts events is spread over, about.
const POSTS: u64 = 1_500;

/// Sends the stream of a seed.
pub(super) struct Poster {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    orders: Orders,
    until: Until,
    progress: Progress,
}

/// When to end.
#[derive(Clone, Copy)]
enum Until {
    Time(Duration),
    Events(u64),
}

/// How far the poster is, for whoever shows it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    posts: Arc<AtomicU64>,
    drawn: Arc<Mutex<Drawn>>,
}

impl Progress {
    /// POSTs answered.
    pub(super) fn posts(&self) -> u64 {
        self.posts.load(Ordering::Relaxed)
    }

    /// Events in them, by kind.
    pub(super) fn drawn(&self) -> Drawn {
        *self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
struct Accepted {
    sequence_to: u64,
}

impl Poster {
    /// A poster of the server at `url`.
    pub(super) fn new(url: &str, how: cli::Demo) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: format!("{url}/api/ingest/webhook/orders"),
            orders: Orders::new(how.seed),
            until: how.events.map_or(Until::Time(how.seconds), Until::Events),
            progress: Progress::default(),
        }
    }

    /// How far it is.
    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Posts to the end of the stream, one request after the other.
    ///
    /// # Errors
    /// When the server does not accept an event.
    pub(super) async fn run(&mut self, freshness: &Freshness) -> Result<(), Failure> {
        let started = Instant::now();
        let mut due = tokio::time::interval(PACE);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let batch = match self.until {
                Until::Time(time) if started.elapsed() >= time => return Ok(()),
                Until::Time(_) => 1,
                Until::Events(events) => (events / POSTS)
                    .max(1)
                    .min(events.saturating_sub(self.orders.drawn.total())),
            };
            if batch == 0 {
                return Ok(());
            }
            due.tick().await;
            let events: Vec<String> = (0..batch).map(|_| self.orders.next_event()).collect();
            let sent = Instant::now();
            freshness.posted(self.post(events.join("\n")).await?, sent);
            self.progress.posts.fetch_add(1, Ordering::Relaxed);
            *self
                .progress
                .drawn
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = self.orders.drawn;
        }
    }

    /// Posts lines and returns the last sequence they were committed under.
    async fn post(&self, lines: String) -> Result<u64, Failure> {
        let failed = |what: String| Failure::unavailable(format!("post to `{}`: {what}", self.url));
        let request = Request::post(&self.url)
            .header(CONTENT_TYPE, "application/x-ndjson")
            .body(Full::from(lines))
            .map_err(|error| failed(error.to_string()))?;
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| failed(ports::error::chain(&error)))?;
        let status = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| failed(ports::error::chain(&error)))?
            .to_bytes();
        if !status.is_success() {
            return Err(failed(String::from_utf8_lossy(&body).into_owned()));
        }
        let accepted: Accepted =
            serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))?;
        Ok(accepted.sequence_to)
    }
}
