//! Refreshes that are due, on a FIFO queue: one group per model, so that no two functions refresh one model at a time. Jobs
//! take the same way to the same function: those of entries in a group per index and one per entry, upkeep in one of its own,
//! replays in that of their model's refreshes.

use std::sync::Arc;

use async_trait::async_trait;
use domain::Duration;
use ports::{
    Chance, Clock, Error, Jobs, Kind, Refreshes, Result,
    jobs::{IndexJob, RebuildJob, ReplayJob, UpkeepJob},
    refreshes::Order,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{
    Trace, current,
    errors::error,
    outlet::{Outgoing, Outlet},
    shortened,
};
use crate::{answer::Answer, patience::Patience};

/// Longest group and deduplication id that SQS takes.
const ID_BYTES_MAX: usize = 128;
/// Longest time that a message can stay invisible.
const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// The group of upkeep: one job of it runs at a time. Names of models have a dot, other groups are digests.
const UPKEEP: &str = "upkeep";

/// An order's group, and what tells it from other orders: whoever sends the same one again within five minutes sends
/// nothing. Two that open a cycle at other targets are two: only one of the cycles comes to be.
fn ids(order: &Order) -> (String, String) {
    let Order {
        model,
        cycle,
        attempt,
        opens,
    } = order;
    let group = fitting(model.to_string());
    let mut id = format!("{model}/{cycle}/{attempt}");
    if let Some(targets) = opens {
        let targets = serde_json::to_vec(targets).expect("targets are plain JSON");
        id.push('/');
        id.push_str(&blake3::hash(&targets).to_hex()[..16]);
    }
    (group, fitting(id))
}

/// What a message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// A refresh.
    Refresh(Order),
    /// An index of an entry.
    Index(IndexJob),
    /// An entry computed anew.
    Rebuild(RebuildJob),
    /// Rows in quarantine put through their model again.
    Replay(ReplayJob),
    /// Tables maintained and entries swept.
    Upkeep(UpkeepJob),
}

/// The body of a message that asks for something else than a refresh: one word, and no order has as few.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Job {
    BuildIndex(IndexJob),
    RebuildEntry(RebuildJob),
    Replay(ReplayJob),
    Upkeep(UpkeepJob),
}

/// Reads the body of a message.
///
/// # Errors
/// `Corrupt` when it asks for nothing we know: such a message belongs in the dead-letter queue.
pub fn decode(body: &str) -> Result<Due> {
    let corrupt = |what, error| Error::new(Kind::Corrupt, what, shortened(body)).because(error);
    let read: Value = serde_json::from_str(body).map_err(|error| corrupt("read message", error))?;
    if read.as_object().is_none_or(|fields| fields.len() != 1) {
        let order = serde_json::from_value(read).map_err(|error| corrupt("read refresh", error));
        return order.map(Due::Refresh);
    }
    let job = serde_json::from_value(read).map_err(|error| corrupt("read job", error))?;
    Ok(match job {
        Job::BuildIndex(job) => Due::Index(job),
        Job::RebuildEntry(job) => Due::Rebuild(job),
        Job::Replay(job) => Due::Replay(job),
        Job::Upkeep(job) => Due::Upkeep(job),
    })
}

/// The text, or a digest in its place when it is too long. Names of models are plain, so every character is allowed.
fn fitting(text: String) -> String {
    if text.len() <= ID_BYTES_MAX {
        text
    } else {
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }
}

/// The queue of refreshes. Functions are handed its messages; nobody polls it.
#[derive(Debug)]
pub struct SqsRefreshes {
    outlet: Outlet,
}

impl SqsRefreshes {
    /// The queue at a URL, which ends in `.fifo`.
    pub fn new(
        client: aws_sdk_sqs::Client,
        url: impl Into<String>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Self {
        Self {
            outlet: Outlet::new(client, url.into(), Patience::new(clock, chance)),
        }
    }

    /// Asks for refreshes.
    ///
    /// # Errors
    /// `Unavailable` when some could not be sent, though they were sent again and again; others may have been.
    pub async fn send_traced(&self, orders: &[Order], trace: &Trace) -> Result<()> {
        let message = |order: &Order| Outgoing {
            body: serde_json::to_string(order).expect("an order is plain JSON"),
            attributes: trace.attributes(),
            order: Some(ids(order)),
            delay: 0,
        };
        self.outlet.send(orders.iter().map(message).collect()).await
    }

    /// Keeps a message invisible to others for so long from now on, and no longer.
    ///
    /// # Errors
    /// What the queue answers; the message then stays as it was.
    pub async fn hide(&self, receipt: &str, time: Duration) -> Result<()> {
        let hidden = self.hold(receipt.to_owned(), time).prolong().await;
        hidden.map_err(|answer| error("hide message of", self.outlet.url(), answer))
    }

    fn hold(&self, receipt: String, timeout: Duration) -> Hold {
        Hold {
            client: self.outlet.client().clone(),
            url: self.outlet.url().to_owned(),
            receipt,
            timeout: timeout.clamp(Duration::from_secs(1), VISIBILITY_MAX),
            clock: self.outlet.patience().clock(),
        }
    }

    /// Keeps a message invisible to others for as long as the answer lives, however long its refresh runs. `timeout` is
    /// the queue's visibility timeout.
    pub fn extend(&self, receipt: impl Into<String>, timeout: Duration) -> Extend {
        let hold = self.hold(receipt.into(), timeout);
        let (stop, stopped) = oneshot::channel();
        Extend {
            holding: tokio::spawn(hold.keep(stopped)),
            stop,
        }
    }
}

#[async_trait]
impl Refreshes for SqsRefreshes {
    async fn send(&self, orders: &[Order]) -> Result<()> {
        self.send_traced(orders, &current()).await
    }
}

impl SqsRefreshes {
    async fn send_job(&self, job: Job, group: String, id: &str) -> Result<()> {
        let message = Outgoing {
            body: serde_json::to_string(&job).expect("a job is plain JSON"),
            attributes: current().attributes(),
            order: Some((group, fitting(id.to_owned()))),
            delay: 0,
        };
        self.outlet.send(vec![message]).await
    }
}

/// The group of what is done for an entry.
fn of_entry(name: &str) -> String {
    blake3::hash(name.as_bytes()).to_hex().to_string()
}

#[async_trait]
impl Jobs for SqsRefreshes {
    async fn index(&self, job: &IndexJob) -> Result<()> {
        let group = of_entry(&format!("{}/{}", job.entry, job.index));
        let of = Job::BuildIndex(job.clone());
        self.send_job(of, group, &job.job).await
    }

    async fn rebuild(&self, job: &RebuildJob) -> Result<()> {
        let group = of_entry(&job.entry.to_string());
        let of = Job::RebuildEntry(job.clone());
        self.send_job(of, group, &job.token).await
    }

    async fn replay(&self, job: &ReplayJob) -> Result<()> {
        // Among the refreshes of its model, so that the two do not take the model from each other.
        let group = fitting(job.model.to_string());
        self.send_job(Job::Replay(job.clone()), group, &job.job)
            .await
    }

    async fn upkeep(&self, job: &UpkeepJob) -> Result<()> {
        // Whoever finds the same mark within five minutes sends nothing: the job waits, or is at work. Of a mark that is not
        // there nothing tells whether it is still the same one.
        let id = match job.mark {
            Some(version) => version.to_string(),
            None => format!("none-{}", job.at.0),
        };
        let of = Job::Upkeep(job.clone());
        self.send_job(of, UPKEEP.to_owned(), &id).await
    }
}

/// Prolongs the invisibility of a message every third of its timeout; stops when dropped. The message then becomes visible
/// again after the timeout, unless it was deleted.
#[derive(Debug)]
#[must_use = "dropped, it prolongs nothing"]
pub struct Extend {
    holding: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Extend {
    /// Stops once a call under way is answered, so that none comes after what the queue is told next.
    pub async fn end(mut self) {
        let (stopped, _) = oneshot::channel();
        // Nobody hears it when it has stopped by itself.
        let _ = std::mem::replace(&mut self.stop, stopped).send(());
        let _ = (&mut self.holding).await;
    }
}

impl Drop for Extend {
    fn drop(&mut self) {
        self.holding.abort();
    }
}

/// A message that is held.
struct Hold {
    client: aws_sdk_sqs::Client,
    url: String,
    receipt: String,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Hold {
    async fn keep(self, mut stopped: oneshot::Receiver<()>) {
        let third = self.timeout / 3;
        // At once: what the queue hides a message for is the longest an invocation may run, and a refresh that fails soon
        // is to be delivered again soon.
        let mut next = self.clock.now();
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => return,
                () = self.clock.sleep_until(next) => {}
            }
            // From here and not from the moment missed: a late call must not be followed by a hurry of others.
            next = self.clock.now() + third;
            let Err(answer) = self.prolong().await else {
                continue;
            };
            let error = error("prolong message of", &self.url, answer);
            if matches!(error.kind, Kind::Invalid | Kind::NotFound) {
                tracing::warn!(error = error.chain(), "the message is not ours any more");
                return;
            }
            tracing::warn!(error = error.chain(), "could not prolong yet");
        }
    }

    async fn prolong(&self) -> Result<(), Answer> {
        let seconds = self.timeout.as_millis().div_ceil(1_000);
        let request = self
            .client
            .change_message_visibility()
            .queue_url(&self.url)
            .receipt_handle(&self.receipt)
            .visibility_timeout(i32::try_from(seconds).unwrap_or(i32::MAX));
        let sent = request.send().await;
        sent.map(|_| ()).map_err(|e| Answer::of(&e))
    }
}
