//! Queues of a cloud in memory: at least once, in any order, late, and again when nobody said that it was done.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use domain::{Duration, Timestamp};
use ports::{Clock as _, Queue, Refreshes, Result, queue::Announcement, refreshes::Order};
use rand::Rng;
use testkit::MemoryQueue;
use tokio::sync::Notify;

use crate::{
    gate::{Gate, silence},
    scheduler::{Call, Scheduler},
};

/// How long a queue that takes equal messages once remembers them.
const ONCE_IN: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Message<M> {
    id: u64,
    body: M,
    visible: Timestamp,
    group: Option<String>,
    held: bool,
}

#[derive(Debug)]
struct Inner<M> {
    waiting: Vec<Message<M>>,
    next: u64,
    /// When messages that are only taken once in a while were put.
    recent: BTreeMap<String, Timestamp>,
}

/// A queue of messages.
#[derive(Debug)]
pub(crate) struct Mailbox<M> {
    inner: Mutex<Inner<M>>,
    changed: Notify,
    scheduler: Arc<Scheduler>,
    /// Chance that a message that was done comes once more, or out of the order of its group.
    again: f64,
    /// Longest it is on its way.
    late: Duration,
}

impl<M: Clone + Send + Sync> Mailbox<M> {
    pub(crate) fn new(scheduler: Arc<Scheduler>, again: f64, late: Duration) -> Arc<Self> {
        let inner = Inner {
            waiting: Vec::new(),
            next: 0,
            recent: BTreeMap::new(),
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            changed: Notify::new(),
            scheduler,
            again,
            late,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn soon(&self, longest: Duration) -> Timestamp {
        let longest = i64::try_from(longest.as_micros()).unwrap_or(0);
        let delay = self.scheduler.draw(|dice| dice.random_range(0..=longest));
        Timestamp(self.scheduler.clock.now().0 + delay)
    }

    /// Puts a message, to be seen at a moment or soon.
    pub(crate) fn put(&self, body: M, group: Option<String>, at: Option<Timestamp>) {
        let visible = at.unwrap_or_else(|| self.soon(self.late));
        let mut inner = self.lock();
        inner.next += 1;
        let id = inner.next;
        inner.waiting.push(Message {
            id,
            body,
            visible,
            group,
            held: false,
        });
        drop(inner);
        self.changed.notify_waiters();
    }

    /// As [`put`](Self::put), unless one of the same key was put within the last five minutes.
    fn put_once(&self, key: String, body: M, group: Option<String>) {
        let now = self.scheduler.clock.now();
        let before = self.lock().recent.insert(key, now);
        if before.is_none_or(|before| before + ONCE_IN < now) {
            self.put(body, group, None);
        }
    }

    /// Takes messages that can be seen: one of a group, or some of none.
    fn take(self: &Arc<Self>, most: usize) -> Option<Held<M>> {
        let now = self.scheduler.clock.now();
        let unruly = self.again > 0.0 && self.scheduler.chance(self.again);
        let mut inner = self.lock();
        let free = |at: usize, message: &Message<M>| {
            let first = |earlier: &Message<M>| earlier.group != message.group;
            let ordered = message.group.is_none() || inner.waiting[..at].iter().all(first);
            !message.held && message.visible <= now && (ordered || unruly)
        };
        let mut ready: Vec<usize> = (0..inner.waiting.len())
            .filter(|at| free(*at, &inner.waiting[*at]))
            .collect();
        let mut taken = Vec::new();
        while taken.len() < most && !ready.is_empty() {
            let pick = self
                .scheduler
                .draw(|dice| dice.random_range(0..ready.len()));
            let message = &mut inner.waiting[ready.swap_remove(pick)];
            message.held = true;
            taken.push((message.id, message.body.clone()));
        }
        drop(inner);
        (!taken.is_empty()).then(|| Held {
            mailbox: self.clone(),
            taken,
        })
    }

    fn next_visible(&self) -> Option<Timestamp> {
        let inner = self.lock();
        let free = inner.waiting.iter().filter(|message| !message.held);
        free.map(|message| message.visible).min()
    }

    /// Waits for messages, and takes some.
    pub(crate) async fn receive(self: &Arc<Self>, gate: &Gate, most: usize) -> Held<M> {
        loop {
            let changed = self.changed.notified();
            let now = self.scheduler.clock.now();
            match self.next_visible() {
                Some(at) if at <= now => {
                    gate.enter(Call::Receive, String::new()).await;
                    if let Some(held) = self.take(most) {
                        return held;
                    }
                    // Another one of its group is under way.
                    let next = now + Duration::from_millis(250);
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = self.scheduler.clock.sleep_until(next) => {}
                    }
                }
                Some(at) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.scheduler.clock.sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }
}

/// Messages under way. Dropped without being done, they can be seen again after a while.
#[derive(Debug)]
pub(crate) struct Held<M: Clone + Send + Sync> {
    mailbox: Arc<Mailbox<M>>,
    taken: Vec<(u64, M)>,
}

impl<M: Clone + Send + Sync> Held<M> {
    pub(crate) fn bodies(&self) -> Vec<M> {
        self.taken.iter().map(|(_, body)| body.clone()).collect()
    }

    /// They are done.
    pub(crate) fn done(mut self) {
        let again = self.mailbox.again;
        let taken = std::mem::take(&mut self.taken);
        for (id, _) in taken {
            let keep = again > 0.0 && self.mailbox.scheduler.chance(again);
            let visible = self.mailbox.soon(Duration::from_secs(3));
            let mut inner = self.mailbox.lock();
            if let Some(at) = inner.waiting.iter().position(|message| message.id == id) {
                if keep {
                    inner.waiting[at].held = false;
                    inner.waiting[at].visible = visible;
                } else {
                    inner.waiting.remove(at);
                }
            }
        }
        self.mailbox.changed.notify_waiters();
    }
}

impl<M: Clone + Send + Sync> Drop for Held<M> {
    fn drop(&mut self) {
        for (id, _) in &self.taken {
            let visible = self.mailbox.soon(Duration::from_secs(5));
            let mut inner = self.mailbox.lock();
            if let Some(message) = inner.waiting.iter_mut().find(|message| message.id == *id) {
                message.held = false;
                message.visible = visible;
            }
        }
        self.mailbox.changed.notify_waiters();
    }
}

/// "Something moved": what an announcement says to a function.
pub(crate) type Wake = ();

/// The queue port over a mailbox.
#[derive(Debug)]
pub(crate) struct Announcing {
    pub(crate) mailbox: Arc<Mailbox<Wake>>,
    pub(crate) gate: Gate,
}

#[async_trait]
impl Queue for Announcing {
    async fn send(&self, announcements: &[Announcement]) -> Result<()> {
        let subject = announcements.first().map(|a| a.table.to_string());
        let work = async {
            for _ in announcements {
                self.mailbox.put((), None, None);
            }
            Ok(())
        };
        let subject = format!("announce {}", subject.unwrap_or_default());
        self.gate.call(Call::Send, subject, silence, work).await
    }

    async fn receive(&self) -> Result<Vec<Announcement>> {
        std::future::pending().await
    }
}

/// The queue port within one process.
#[derive(Debug)]
pub(crate) struct Within {
    pub(crate) queue: MemoryQueue,
    pub(crate) gate: Gate,
}

#[async_trait]
impl Queue for Within {
    async fn send(&self, announcements: &[Announcement]) -> Result<()> {
        let work = self.queue.send(announcements);
        let subject = "announce within".to_owned();
        self.gate.call(Call::Send, subject, silence, work).await
    }

    async fn receive(&self) -> Result<Vec<Announcement>> {
        self.queue.receive().await
    }
}

/// The refreshes port over a mailbox.
#[derive(Debug)]
pub(crate) struct Ordering {
    pub(crate) mailbox: Arc<Mailbox<Order>>,
    pub(crate) gate: Gate,
}

#[async_trait]
impl Refreshes for Ordering {
    async fn send(&self, orders: &[Order]) -> Result<()> {
        let subject = format!("{} orders", orders.len());
        let work = async {
            for order in orders {
                let group = Some(order.model.to_string());
                let key = format!("{} {} {}", order.model, order.cycle, order.attempt);
                self.mailbox.put_once(key, order.clone(), group);
            }
            Ok(())
        };
        self.gate.call(Call::Send, subject, silence, work).await
    }
}
