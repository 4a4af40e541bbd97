//! The queue of announcements in memory.

use std::{collections::VecDeque, sync::Mutex};

use async_trait::async_trait;
use ports::{Queue, Result, queue::Announcement};
use tokio::sync::Notify;

use crate::lock::lock;

/// A queue that keeps every announcement as it was sent, so that a test sees each of them.
#[derive(Debug, Default)]
pub struct MemoryQueue {
    waiting: Mutex<VecDeque<Announcement>>,
    sent: Notify,
}

impl MemoryQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what is waiting, without waiting: empty when nothing is.
    pub fn take(&self) -> Vec<Announcement> {
        lock(&self.waiting).drain(..).collect()
    }

    /// What is waiting, left there.
    #[must_use]
    pub fn waiting(&self) -> Vec<Announcement> {
        lock(&self.waiting).iter().cloned().collect()
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn send(&self, announcements: &[Announcement]) -> Result<()> {
        if !announcements.is_empty() {
            lock(&self.waiting).extend(announcements.iter().cloned());
            self.sent.notify_one();
        }
        Ok(())
    }

    async fn receive(&self) -> Result<Vec<Announcement>> {
        loop {
            let taken = self.take();
            if !taken.is_empty() {
                return Ok(taken);
            }
            // A send between the look above and this wait has left a permit, so it is not missed.
            self.sent.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn memory_queue_keeps_the_contract() {
        crate::contract::queue(Arc::new(MemoryQueue::new())).await;
    }
}
