//! Both queues in memory.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use async_trait::async_trait;
use ports::{Queue, Refreshes, queue::Announcement, refreshes::Order};

use super::{DELIVERIES_MAX, Lane, Left, Taken, Wire};

/// Pause of who finds nothing.
const EMPTY: std::time::Duration = std::time::Duration::from_millis(1);

/// Both queues in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryWire {
    advances: Line,
    refreshes: Line,
}

/// One queue.
#[derive(Clone, Debug, Default)]
struct Line(Arc<Mutex<Messages>>);

#[derive(Debug, Default)]
struct Messages {
    next: u64,
    waiting: Vec<Message>,
    /// What was sent before is not sent again.
    known: BTreeSet<String>,
    dead: usize,
}

#[derive(Debug)]
struct Message {
    handle: String,
    body: String,
    group: Option<String>,
    deliveries: u32,
    held: bool,
}

impl Line {
    fn with<T>(&self, work: impl FnOnce(&mut Messages) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `ids` are a FIFO queue's group and deduplication id.
    fn push(&self, body: String, ids: Option<(String, String)>) {
        self.with(|messages| {
            if let Some((_, once)) = &ids
                && !messages.known.insert(once.clone())
            {
                return;
            }
            messages.next += 1;
            let message = Message {
                handle: messages.next.to_string(),
                body,
                group: ids.map(|(group, _)| group),
                deliveries: 0,
                held: false,
            };
            messages.waiting.push(message);
        });
    }
}

impl Messages {
    fn take(&mut self, most: usize) -> Vec<Taken> {
        let (mut taken, mut busy) = (Vec::new(), BTreeSet::new());
        busy.extend(
            self.waiting
                .iter()
                .filter(|message| message.held)
                .filter_map(|message| message.group.clone()),
        );
        let before = self.waiting.len();
        self.waiting.retain_mut(|message| {
            let blocked = message
                .group
                .as_ref()
                .is_some_and(|group| busy.contains(group));
            if taken.len() == most || message.held || blocked {
                return true;
            }
            message.deliveries += 1;
            if message.deliveries > DELIVERIES_MAX {
                return false;
            }
            message.held = true;
            busy.extend(message.group.clone());
            taken.push(Taken {
                body: message.body.clone(),
                deliveries: message.deliveries,
                handle: message.handle.clone(),
            });
            true
        });
        self.dead += before - self.waiting.len();
        taken
    }
}

impl MemoryWire {
    fn line(&self, lane: Lane) -> &Line {
        match lane {
            Lane::Advances => &self.advances,
            Lane::Refreshes => &self.refreshes,
        }
    }
}

#[async_trait]
impl Wire for MemoryWire {
    fn advances(&self) -> Arc<dyn Queue> {
        Arc::new(self.clone())
    }

    fn refreshes(&self) -> Arc<dyn Refreshes> {
        Arc::new(self.clone())
    }

    async fn take(&self, lane: Lane, most: usize) -> Result<Vec<Taken>> {
        let taken = self.line(lane).with(|messages| messages.take(most));
        if taken.is_empty() {
            tokio::time::sleep(EMPTY).await;
        }
        Ok(taken)
    }

    async fn delete(&self, lane: Lane, taken: &Taken) -> Result<()> {
        let other = |message: &Message| message.handle != taken.handle;
        self.line(lane)
            .with(|messages| messages.waiting.retain(other));
        Ok(())
    }

    async fn give_back(&self, lane: Lane, taken: &Taken) -> Result<()> {
        self.line(lane).with(|messages| {
            for message in &mut messages.waiting {
                message.held &= message.handle != taken.handle;
            }
        });
        Ok(())
    }

    async fn left(&self) -> Result<Left> {
        let count = |messages: &mut Messages| (messages.waiting.len(), messages.dead);
        let (advances, refreshes) = (self.advances.with(count), self.refreshes.with(count));
        Ok(Left {
            advances: advances.0,
            refreshes: refreshes.0,
            dead: advances.1 + refreshes.1,
        })
    }
}

#[async_trait]
impl Queue for MemoryWire {
    async fn send(&self, announcements: &[Announcement]) -> ports::Result<()> {
        for announcement in announcements {
            self.advances.push(text(announcement), None);
        }
        Ok(())
    }

    async fn receive(&self) -> ports::Result<Vec<Announcement>> {
        // Functions are handed messages; none of them polls.
        std::future::pending().await
    }
}

#[async_trait]
impl Refreshes for MemoryWire {
    async fn send(&self, orders: &[Order]) -> ports::Result<()> {
        for order in orders {
            let body = text(order);
            let ids = (order.model.to_string(), body.clone());
            self.refreshes.push(body, Some(ids));
        }
        Ok(())
    }
}

fn text(message: &impl serde::Serialize) -> String {
    serde_json::to_string(message).expect("messages are plain JSON")
}
