//! The queue of refreshes in memory.

use std::{collections::VecDeque, sync::Mutex};

use async_trait::async_trait;
use ports::{Refreshes, Result, refreshes::Order};

use crate::lock::lock;

/// Orders in the order they were sent, none merged.
#[derive(Debug, Default)]
pub struct MemoryRefreshes {
    waiting: Mutex<VecDeque<Order>>,
}

impl MemoryRefreshes {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the first order; none when none is waiting.
    pub fn take(&self) -> Option<Order> {
        lock(&self.waiting).pop_front()
    }
}

#[async_trait]
impl Refreshes for MemoryRefreshes {
    async fn send(&self, orders: &[Order]) -> Result<()> {
        lock(&self.waiting).extend(orders.iter().cloned());
        Ok(())
    }
}
