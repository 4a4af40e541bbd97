//! The runner: wakes on advances, lets a burst settle, runs cycles.

mod feed;
mod journal;
mod restart;
mod turn;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::TableName;
use ports::Result;
use serde::Serialize;
use tokio::{
    sync::{Notify, broadcast, watch},
    task::JoinHandle,
};

use self::feed::Feed;
use crate::{World, refresh::Refreshed, status::RunnerStatus};

/// Something that happened, for the live feed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A table advanced.
    Advanced {
        /// The table.
        table: TableName,
        /// Its head's sequence.
        sequence: u64,
        /// RFC 3339.
        at: String,
    },
    /// A cycle began.
    CycleStarted {
        /// Its number.
        number: u64,
        /// RFC 3339.
        at: String,
    },
    /// A model's refresh ended.
    Refreshed {
        /// The model.
        model: TableName,
        /// How.
        #[serde(flatten)]
        how: Refreshed,
        /// RFC 3339.
        at: String,
    },
    /// A control was used: `pause`, `resume`, `refresh`.
    Control {
        /// The model.
        model: TableName,
        /// Which.
        action: &'static str,
        /// RFC 3339.
        at: String,
    },
}

/// An event with its number, from 1, for resuming the feed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Numbered {
    /// Number of the event in this process.
    pub id: u64,
    /// What happened.
    pub event: Event,
}

/// The runner of one process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runner {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    world: World,
    feed: Mutex<Feed>,
    status: Mutex<RunnerStatus>,
    /// Files of the project that changed since it was read.
    changed: Mutex<Vec<String>>,
    /// Somebody wants a cycle soon.
    wake: Notify,
    /// Whether a loop runs, in the background or in the foreground.
    running: watch::Sender<bool>,
    /// The loop in the background.
    background: Mutex<Option<Background>>,
    /// Why that loop went down; none once it has got through a cycle again.
    down: Mutex<Option<String>>,
}

#[derive(Debug)]
struct Background {
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Runner {
    /// A runner that does not run yet.
    #[must_use]
    pub fn new(world: World) -> Self {
        let inner = Inner {
            world,
            feed: Mutex::new(Feed::new()),
            status: Mutex::default(),
            changed: Mutex::default(),
            wake: Notify::new(),
            running: watch::Sender::new(false),
            background: Mutex::default(),
            down: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Starts the loop if it is not running. One that goes down starts again after a pause, until it is stopped.
    pub fn start(&self) {
        let mut background = lock(&self.inner.background);
        if !self.claim() {
            return;
        }
        self.inner.begin();
        let stop = Arc::new(Notify::new());
        let (runner, stopped) = (self.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let _claim = Claim(&runner.inner);
            restart::keep_running(&runner.inner, &stopped).await;
        });
        *background = Some(Background { stop, task });
    }

    /// Stops the loop after the cycle in progress; returns when it has stopped. A loop in the foreground is stopped by
    /// whoever runs it.
    pub async fn stop(&self) {
        let background = lock(&self.inner.background).take();
        if let Some(Background { stop, task }) = background {
            stop.notify_one();
            // A loop that panicked has stopped too.
            let _ = task.await;
        }
    }

    /// Whether the loop runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        *self.inner.running.borrow()
    }

    /// Why the loop does not run although it was started and not stopped; none when all is as it was asked for.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let background = lock(&self.inner.background);
        background.as_ref()?;
        let down = lock(&self.inner.down).clone();
        down.or_else(|| (!self.is_running()).then(|| String::from("the runner ended")))
    }

    /// Makes the next cycle start as soon as `min_interval` allows.
    pub fn wake(&self) {
        self.inner.wake.notify_one();
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> RunnerStatus {
        RunnerStatus {
            running: self.is_running() && lock(&self.inner.down).is_none(),
            changed_files: lock(&self.inner.changed).clone(),
            ..lock(&self.inner.status).clone()
        }
    }

    /// Tells which files of the project changed since it was read.
    pub fn set_changed(&self, files: Vec<String>) {
        *lock(&self.inner.changed) = files;
    }

    /// Events after number `after` that are still remembered (the last 1,000), and the feed of those to come.
    #[must_use]
    pub fn events(&self, after: u64) -> (Vec<Numbered>, broadcast::Receiver<Numbered>) {
        lock(&self.inner.feed).after(after)
    }

    /// Puts an event on the feed.
    pub fn record(&self, event: Event) {
        if let Event::Control { model, action, .. } = &event {
            tracing::info!(%model, action, "a control was used");
        }
        self.inner.record(event);
    }

    /// Takes the right to run the loop; false when somebody has it.
    fn claim(&self) -> bool {
        self.inner
            .running
            .send_if_modified(|running| !std::mem::replace(running, true))
    }
}

impl Inner {
    /// Forgets what was of the loop before.
    fn begin(&self) {
        *lock(&self.status) = RunnerStatus::default();
        *lock(&self.down) = None;
    }

    fn record(&self, event: Event) {
        lock(&self.feed).record(event);
    }
}

/// The right to run the loop, given back when dropped.
struct Claim<'a>(&'a Inner);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.running.send_replace(false);
    }
}

/// Locks what a panicking holder left consistent: every critical section is one assignment or push.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the loop until `stop` resolves, in the foreground. When it already runs in the background, only waits.
///
/// # Errors
/// Never for a failing cycle, which is retried; only when the queue is closed.
pub async fn run_until(runner: &Runner, stop: impl Future<Output = ()> + Send) -> Result<()> {
    if !runner.claim() {
        stop.await;
        return Ok(());
    }
    let _claim = Claim(&runner.inner);
    runner.inner.begin();
    turn::run(&runner.inner, stop).await
}
