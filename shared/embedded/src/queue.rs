//! The queue of announcements inside one process.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use domain::{Position, TableName};
use ports::{Queue, Result, queue::Announcement};
use tokio::sync::Notify;

/// A queue that wakes its receiver at once. It keeps one announcement per table, the furthest, so
/// it never holds more than there are tables.
#[derive(Debug, Default)]
pub struct WakingQueue {
    waiting: Mutex<BTreeMap<TableName, Position>>,
    sent: Notify,
}

impl WakingQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn take(&self) -> BTreeMap<TableName, Position> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Queue for WakingQueue {
    async fn send(&self, announcements: &[Announcement]) -> Result<()> {
        if announcements.is_empty() {
            return Ok(());
        }
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for Announcement { table, position } in announcements {
                let furthest = waiting.entry(table.clone()).or_default();
                *furthest = furthest.advance(*position);
            }
        }
        self.sent.notify_one();
        Ok(())
    }

    async fn receive(&self) -> Result<Vec<Announcement>> {
        loop {
            let taken = self.take();
            if !taken.is_empty() {
                let announced = |(table, position)| Announcement { table, position };
                return Ok(taken.into_iter().map(announced).collect());
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
    async fn waking_queue_keeps_the_contract() {
        testkit::contract::queue(Arc::new(WakingQueue::new())).await;
    }
}
