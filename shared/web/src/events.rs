//! `GET /api/live/events`: what happens, as it happens (server-sent events).
//!
//! `Last-Event-ID` (which browsers send by themselves) or `?after=N` resumes after an event;
//! `?after=0` starts with everything still remembered. Without either the feed starts now. Numbers
//! count from 1 in each process: an id this process has not reached comes from an earlier one, and
//! is answered with everything remembered.
//!
//! A feed keeps its connection for as long as somebody listens, so there are at most [`FEEDS_MAX`]: whoever else asks is told
//! to come again, and those who send events or ask how the server is find connections. The functions of a deployment keep
//! none: an answer that never ends would be waited for until the function is killed, and nothing would ever come in it.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::{
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    response::{
        Sse,
        sse::{self, KeepAlive},
    },
};
use engine::runner::{Numbered, Runner};
use futures::{Stream, stream};
use serde::Deserialize;
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    broadcast::{Receiver, error::RecvError},
};

use crate::{
    Shared,
    problem::{Answer, Problem},
};

/// Most feeds at one time: a quarter of the connections that `serve` has.
pub const FEEDS_MAX: usize = 128;

/// The right of feeds to be there.
pub(crate) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(FEEDS_MAX))
}

/// Query parameters.
#[derive(Debug, Deserialize)]
pub(crate) struct From {
    after: Option<u64>,
}

/// The feed.
pub(crate) async fn events(
    State(shared): State<Shared>,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Answer<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>> {
    let after = match headers.get("last-event-id") {
        None => from.after,
        Some(id) => {
            let id = id.to_str().ok().and_then(|id| id.trim().parse().ok());
            Some(id.ok_or_else(|| Problem::invalid("Last-Event-ID is not the number of an event"))?)
        }
    };
    if shared.driven {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "a deployment keeps no feed, since its functions come and go; ask for `/api/live/status` now and then",
        ));
    }
    let place = shared.feeds.clone().try_acquire_owned().map_err(|_| {
        let why = format!(
            "{FEEDS_MAX} feeds are open, which is as many as there may be: close one, or come again"
        );
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)
    })?;
    let feed = Feed::new(shared.app.runner, after, place);
    Ok(Sse::new(stream::unfold(feed, Feed::next)).keep_alive(KeepAlive::default()))
}

struct Feed {
    runner: Runner,
    pending: VecDeque<Numbered>,
    receiver: Receiver<Numbered>,
    /// Number of the last event sent or skipped.
    last: u64,
    /// Given back when nobody listens any more.
    _place: OwnedSemaphorePermit,
}

impl Feed {
    fn new(runner: Runner, after: Option<u64>, place: OwnedSemaphorePermit) -> Self {
        let (remembered, receiver) = runner.events(0);
        let newest = remembered.last().map_or(0, |event| event.id);
        let last = match after {
            None => newest,
            Some(after) if after > newest => 0,
            Some(after) => after,
        };
        let pending = remembered
            .into_iter()
            .filter(|event| event.id > last)
            .collect();
        Self {
            runner,
            pending,
            receiver,
            last,
            _place: place,
        }
    }

    async fn next(mut self) -> Option<(Result<sse::Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                self.last = event.id;
                return Some((Ok(render(&event)), self));
            }
            match self.receiver.recv().await {
                Ok(event) if event.id > self.last => self.pending.push_back(event),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => {
                    let (missed, receiver) = self.runner.events(self.last);
                    self.pending.extend(missed);
                    self.receiver = receiver;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

fn render(numbered: &Numbered) -> sse::Event {
    let event = sse::Event::default().id(numbered.id.to_string());
    // Events are plain structs of text and numbers, which always serialise.
    event
        .json_data(&numbered.event)
        .unwrap_or_else(|_| sse::Event::default().comment("unreadable event"))
}
