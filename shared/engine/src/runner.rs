//! The runner: wakes on advances, lets a burst settle, runs cycles.

use std::sync::Arc;

use domain::TableName;
use ports::Result;
use serde::Serialize;
use tokio::sync::broadcast;

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
struct Inner {}

impl Runner {
    /// A runner that does not run yet.
    #[must_use]
    pub fn new(world: World) -> Self {
        let _ = world;
        Self { inner: Arc::new(Inner {}) }
    }

    /// Starts the loop if it is not running.
    pub fn start(&self) {
        unimplemented!()
    }

    /// Stops the loop after the cycle in progress; returns when it has stopped.
    pub async fn stop(&self) {
        unimplemented!()
    }

    /// Whether the loop runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        unimplemented!()
    }

    /// Makes the next cycle start as soon as `min_interval` allows.
    pub fn wake(&self) {
        unimplemented!()
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> RunnerStatus {
        unimplemented!()
    }

    /// Events after number `after` that are still remembered (the last 1,000), and the feed of those to come.
    #[must_use]
    pub fn events(&self, after: u64) -> (Vec<Numbered>, broadcast::Receiver<Numbered>) {
        let _ = after;
        unimplemented!()
    }

    /// Puts an event on the feed.
    pub fn record(&self, event: Event) {
        let _ = event;
        unimplemented!()
    }
}

/// Runs the loop until `stop` resolves, in the foreground.
///
/// # Errors
/// Never for a failing cycle, which is retried; only when the queue is closed.
pub async fn run_until(runner: &Runner, stop: impl Future<Output = ()> + Send) -> Result<()> {
    let _ = (runner, stop);
    unimplemented!()
}
