//! How long after its POST an event is in gold.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use domain::{TableName, items};
use engine::{
    World,
    refresh::Refreshed,
    runner::{Event, Runner},
};
use ports::state::Key;
use tokio::sync::broadcast::error::RecvError;

use crate::failure::Failure;

/// Times from sending a POST to gold holding its events.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Last sequence of a POST, and when it was sent; in sequence order.
    waiting: VecDeque<(u64, Instant)>,
    taken: Vec<Duration>,
}

/// Figures of all POSTs that reached gold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Half were faster.
    pub(super) p50: Duration,
    /// All but one of twenty were faster.
    pub(super) p95: Duration,
    /// The slowest.
    pub(super) max: Duration,
    /// POSTs measured.
    pub(super) posts: usize,
}

impl Freshness {
    /// A POST that was sent at `sent` has been committed up to `sequence`.
    pub(super) fn posted(&self, sequence: u64, sent: Instant) {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .waiting
            .push_back((sequence, sent));
    }

    /// Gold holds everything up to `sequence`.
    fn reached(&self, sequence: u64, now: Instant) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, sent)) = inner.waiting.pop_front_if(|(last, _)| *last <= sequence) {
            inner.taken.push(now - sent);
        }
    }

    /// POSTs that gold does not hold yet.
    pub(super) fn pending(&self) -> usize {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .waiting
            .len()
    }

    /// The figures so far.
    pub(super) fn figures(&self) -> Figures {
        let mut taken = self
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .taken
            .clone();
        taken.sort_unstable();
        let at = |percent: usize| {
            taken.get((taken.len() * percent / 100).min(taken.len().saturating_sub(1)))
        };
        let [p50, p95, max] = [50, 95, 100].map(|percent| at(percent).copied().unwrap_or_default());
        Figures {
            p50,
            p95,
            max,
            posts: taken.len(),
        }
    }

    /// Follows the feed of a runner: each refresh of `gold` tells how far it came by what it
    /// consumed of `input`, which keeps the numbers of the landing table.
    ///
    /// # Errors
    /// What the state store answers.
    pub(super) async fn follow(
        &self,
        world: &World,
        runner: &Runner,
        gold: &TableName,
        input: &TableName,
    ) -> Result<(), Failure> {
        let (_, mut feed) = runner.events(0);
        let key = Key::new(items::model(gold), items::consumed(input));
        loop {
            match feed.recv().await {
                Ok(numbered) => match numbered.event {
                    Event::Refreshed {
                        model,
                        how: Refreshed::Built { .. },
                        ..
                    } if model == *gold => {}
                    _ => continue,
                },
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Ok(()),
            }
            let now = Instant::now();
            if let Some(item) = world.state.get(&key).await? {
                self.reached(item.decode::<items::Consumed>()?.position.sequence, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_measured_once_gold_has_passed_them() {
        let freshness = Freshness::default();
        let start = Instant::now();
        for i in 1..=20 {
            freshness.posted(i, start);
        }
        freshness.reached(10, start + Duration::from_millis(100));
        assert_eq!(freshness.pending(), 10);
        freshness.reached(20, start + Duration::from_millis(300));
        let figures = freshness.figures();
        assert_eq!(figures.posts, 20);
        assert_eq!(
            [figures.p50, figures.p95, figures.max],
            [300, 300, 300].map(Duration::from_millis)
        );
    }
}
