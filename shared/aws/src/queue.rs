//! The queue on SQS: announcements on a standard queue, [`refreshes`] on a FIFO one.
//!
//! Announcements may be lost, doubled and reordered, so they are deleted when they are handed out, and what could not be
//! deleted simply comes again. A message that is no announcement is left where it is: the queue's receive limit moves it
//! to the dead-letter queue, where a person sees it (**Q-1**).

mod errors;
mod inlet;
mod outlet;
pub mod refreshes;
#[cfg(test)]
mod tests;
mod trace;

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use domain::{Duration, Position, TableName};
use futures::{FutureExt, future::BoxFuture};
use ports::{Chance, Clock, Kind, Queue, Result, queue::Announcement};
use tokio::sync::Mutex;

use crate::patience::Patience;
use inlet::Inlet;
use outlet::{Outgoing, Outlet};
pub use trace::Trace;

tokio::task_local! {
    /// What the messages sent by this task come from.
    static TRACE: Trace;
}

/// Runs work whose messages, announcements and orders alike, say where they come from.
pub async fn traced<F: Future>(trace: Trace, work: F) -> F::Output {
    TRACE.scope(trace, work).await
}

/// The trace of the running task; an empty one outside of [`traced`].
pub(crate) fn current() -> Trace {
    TRACE.try_with(Clone::clone).unwrap_or_default()
}

/// A receive under way.
type Taking = BoxFuture<'static, Result<Vec<Announcement>>>;

/// Announcements over a standard queue.
///
/// One receive is under way at a time. It belongs to the queue and not to who waits for it: when that one is cancelled,
/// the next goes on waiting for the same answer, so nothing is taken from the queue for nobody.
pub struct SqsQueue {
    outlet: Outlet,
    inlet: Arc<Inlet>,
    taking: Mutex<Option<Taking>>,
}

impl SqsQueue {
    /// The queue at a URL.
    pub fn new(
        client: aws_sdk_sqs::Client,
        url: impl Into<String>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Self {
        let url = url.into();
        Self {
            inlet: Arc::new(Inlet::new(client.clone(), url.clone())),
            outlet: Outlet::new(client, url, Patience::new(clock, chance)),
            taking: Mutex::default(),
        }
    }

    /// Sends announcements that say where they come from. Those of one table are merged into the furthest.
    ///
    /// # Errors
    /// `Unavailable` when some could not be sent, though they were sent again and again; others may have been.
    pub async fn send_traced(&self, announcements: &[Announcement], trace: &Trace) -> Result<()> {
        let mut furthest: BTreeMap<&TableName, Position> = BTreeMap::new();
        for Announcement { table, position } in announcements {
            let known = furthest.entry(table).or_default();
            *known = known.advance(*position);
        }
        let message = |(table, position): (&TableName, Position)| Outgoing {
            body: encode(&Announcement {
                table: table.clone(),
                position,
            }),
            attributes: trace.attributes(),
            order: None,
            delay: 0,
        };
        self.outlet
            .send(furthest.into_iter().map(message).collect())
            .await
    }
}

/// Longest that SQS holds a message back.
const DELAY_MAX: Duration = Duration::from_secs(15 * 60);
/// The body of a message that announces nothing: whoever takes it looks at the state.
const WAKE: &str = r#"{"wake":true}"#;

impl SqsQueue {
    /// Has whoever takes messages look again after `delay`, in whole seconds and at most 15 minutes.
    ///
    /// # Errors
    /// `Unavailable` when it could not be sent, though it was sent again and again.
    pub async fn wake(&self, delay: Duration) -> Result<()> {
        let seconds = delay.min(DELAY_MAX).as_millis().div_ceil(1_000);
        let message = Outgoing {
            body: WAKE.to_owned(),
            attributes: Vec::new(),
            order: None,
            delay: i32::try_from(seconds).unwrap_or(i32::MAX),
        };
        self.outlet.send(vec![message]).await
    }
}

impl fmt::Debug for SqsQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsQueue")
            .field("inlet", &self.inlet)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Queue for SqsQueue {
    async fn send(&self, announcements: &[Announcement]) -> Result<()> {
        self.send_traced(announcements, &current()).await
    }

    async fn receive(&self) -> Result<Vec<Announcement>> {
        let mut taking = self.taking.lock().await;
        let taken = taking
            .get_or_insert_with(|| self.inlet.clone().take().boxed())
            .await;
        *taking = None;
        taken
    }
}

/// The body of a message.
fn encode(announcement: &Announcement) -> String {
    serde_json::to_string(announcement).expect("an announcement is plain JSON")
}

/// Reads the body of a message: for who is handed messages, such as a function.
///
/// # Errors
/// `Corrupt` when it is no announcement: such a message belongs in the dead-letter queue.
pub fn decode(body: &str) -> Result<Announcement> {
    serde_json::from_str(body).map_err(|e| {
        ports::Error::new(Kind::Corrupt, "read announcement", shortened(body)).because(e)
    })
}

/// The beginning of a body, for people.
fn shortened(body: &str) -> String {
    const SHOWN: usize = 200;
    match body.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}..", &body[..end]),
        None => body.to_owned(),
    }
}
