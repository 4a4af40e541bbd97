//! The queues between functions, as a service works them: messages are handed out, and come again unless they are
//! deleted. Ten lines of memory, or SQS at the emulator.

mod memory;
mod sqs;

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use ports::{Queue, Refreshes};

pub use memory::MemoryWire;
pub use sqs::SqsWire;

/// Deliveries of one message before it ends among the dead letters, as deployed for refreshes.
pub const DELIVERIES_MAX: u32 = 5;

/// One of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Announcements; any order.
    Advances,
    /// Orders; those of one model one after the other.
    Refreshes,
}

/// A message in somebody's hands.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What was sent.
    pub body: String,
    /// How often it was handed out, this time included.
    pub deliveries: u32,
    /// What deletes it or gives it back.
    handle: String,
}

/// Messages that nobody deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Announcements, waiting or in somebody's hands.
    pub advances: usize,
    /// Orders, waiting or in somebody's hands.
    pub refreshes: usize,
    /// Dead letters of both.
    pub dead: usize,
}

/// Both queues.
#[async_trait]
pub trait Wire: Send + Sync + std::fmt::Debug {
    /// Where announcements are sent.
    fn advances(&self) -> Arc<dyn Queue>;

    /// Where orders are sent.
    fn refreshes(&self) -> Arc<dyn Refreshes>;

    /// Takes up to `most` messages; after a short wait none, when none is there.
    ///
    /// # Errors
    /// When the service does not answer.
    async fn take(&self, lane: Lane, most: usize) -> Result<Vec<Taken>>;

    /// Deletes a message, whoever holds it now.
    ///
    /// # Errors
    /// When the service does not answer.
    async fn delete(&self, lane: Lane, taken: &Taken) -> Result<()>;

    /// Lets others have a message at once, as if the time to work on it were over.
    ///
    /// # Errors
    /// When the service does not answer.
    async fn give_back(&self, lane: Lane, taken: &Taken) -> Result<()>;

    /// What nobody deleted.
    ///
    /// # Errors
    /// When the service does not answer.
    async fn left(&self) -> Result<Left>;
}
