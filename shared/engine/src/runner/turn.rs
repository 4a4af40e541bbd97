//! The loop: what it waits for, and what it does about it.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
};

use domain::{
    Duration, TableName, Timestamp,
    plan::{self, Decision},
    schedule::Coalescer,
};
use ports::{Error, Kind, Result, queue::Announcement};
use tokio::task::JoinHandle;

use super::{Event, Inner, journal, journal::Journal, lock};
use crate::{
    cycle::{self, Observer, Pass},
    known::Known,
    maintain::{self, Budget},
    profile,
    refresh::Refreshed,
};

/// Between two looks at whether another process committed.
const LOOK: Duration = Duration::from_millis(100);
/// Before a queue that did not answer is asked again.
const QUEUE_PAUSE: Duration = Duration::from_secs(1);

/// Between two rounds of maintenance when the first did not come to an end.
const UPKEEP_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause after a cycle that the world ended early, and before a loop that went down starts again.
pub(super) const REST_MAX: Duration = Duration::from_secs(5);

/// What the loop knows between two waits.
struct Turn<'a> {
    inner: &'a Inner,
    coalescer: Coalescer,
    /// Something was announced or asked for since the last cycle began: it is not only a poll that is due.
    asked: bool,
    /// When a model that time alone holds is due.
    next: Option<Timestamp>,
    /// Not before this, after a cycle that failed.
    rest: Option<Timestamp>,
    /// Cycles that failed in a row.
    failures: u32,
    /// When the last cycle began.
    began: Option<Timestamp>,
    /// The store's change counter as last seen; none when it has none.
    seen: Option<u64>,
    /// When to look at it again.
    look: Timestamp,
    /// When to ask the queue again.
    queue: Option<Timestamp>,
    journal: Arc<Mutex<Journal>>,
    /// When maintenance is due.
    upkeep: Timestamp,
    /// A round of it under way; whether there is more to do at once.
    maintaining: Option<JoinHandle<bool>>,
    /// When models are looked at again.
    profiles: Timestamp,
    /// A round of that under way; when the next is worth while.
    profiling: Option<JoinHandle<Timestamp>>,
}

/// What a wait ended with.
enum Woken {
    Stop,
    Due,
    Look,
    QueueBack,
    Asked,
    Announced(Result<Vec<Announcement>>),
}

/// Runs until `stop` resolves.
///
/// # Errors
/// When the queue is closed.
pub(super) async fn run(inner: &Inner, stop: impl Future<Output = ()> + Send) -> Result<()> {
    let now = inner.world.clock.now();
    let mut turn = Turn {
        inner,
        coalescer: Coalescer::new(now),
        asked: true,
        next: None,
        rest: None,
        failures: 0,
        began: None,
        seen: inner.world.state.change_counter().await.ok().flatten(),
        look: now + LOOK,
        queue: None,
        journal: Arc::new(Mutex::new(Journal::new(now))),
        upkeep: now + inner.world.live.maintenance.interval,
        maintaining: None,
        profiles: now + inner.world.live.profile_interval,
        profiling: None,
    };
    // Whatever happened while nobody looked is picked up at once.
    turn.coalescer.wake(now);
    let mut stop = pin!(stop);
    loop {
        let woken = tokio::select! {
            biased;
            () = &mut stop => Woken::Stop,
            woken = turn.wait() => woken,
        };
        match woken {
            Woken::Stop => break,
            Woken::Due => turn.due().await,
            Woken::Look => turn.look().await,
            Woken::QueueBack => turn.queue = None,
            Woken::Asked => turn.ask(),
            Woken::Announced(Ok(announcements)) => turn.announced(announcements),
            Woken::Announced(Err(error)) => turn.silent(error)?,
        }
    }
    if let Some(round) = turn.maintaining.take() {
        // It ends within its budget; one that panicked has ended too.
        let _ = round.await;
    }
    if let Some(round) = turn.profiling.take() {
        // Nothing depends on it: what it looks at is looked at again.
        round.abort();
    }
    let lines = lock(&turn.journal).take(inner.world.clock.now(), Duration::ZERO);
    journal::write(&lines);
    Ok(())
}

impl Turn<'_> {
    /// Waits for whatever comes first.
    async fn wait(&self) -> Woken {
        let world = &self.inner.world;
        let asleep = |moment: Option<Timestamp>| async move {
            match moment {
                Some(moment) => world.clock.sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            got = self.receive() => Woken::Announced(got),
            () = self.inner.wake.notified() => Woken::Asked,
            () = asleep(Some(self.moment())) => Woken::Due,
            () = asleep(self.seen.map(|_| self.look)) => Woken::Look,
            () = asleep(self.queue) => Woken::QueueBack,
        }
    }

    /// Announcements, unless the queue is left alone for now.
    async fn receive(&self) -> Result<Vec<Announcement>> {
        match self.queue {
            None => self.inner.world.queue.receive().await,
            Some(_) => std::future::pending().await,
        }
    }

    /// When the next cycle is due.
    fn moment(&self) -> Timestamp {
        let live = &self.inner.world.live;
        let mut moment = self.coalescer.due(live);
        if let Some(next) = self.next {
            // Time alone does not bring cycles closer than `min_interval`.
            let least = self
                .began
                .map_or(next, |began| next.max(began + live.min_interval));
            moment = moment.min(least);
        }
        self.rest.map_or(moment, |rest| moment.max(rest))
    }

    fn announced(&mut self, announcements: Vec<Announcement>) {
        let now = self.inner.world.clock.now();
        for Announcement { table, position } in announcements {
            // A model's own commit was read by the cycle that made it.
            if !self.is_model(&table) {
                self.coalescer.advanced(now);
                self.asked = true;
            }
            let (sequence, at) = (position.sequence, now.to_string());
            self.inner.record(Event::Advanced {
                table,
                sequence,
                at,
            });
        }
    }

    fn is_model(&self, table: &TableName) -> bool {
        self.inner.world.project.models.contains_key(table)
    }

    fn ask(&mut self) {
        // A person who asks does not wait for a pause to end.
        self.rest = None;
        self.coalescer.wake(self.inner.world.clock.now());
        self.asked = true;
    }

    /// A queue that does not answer is asked again later; polls find what it would have said. A closed one ends the loop.
    fn silent(&mut self, error: Error) -> Result<()> {
        if error.kind != Kind::Unavailable {
            return Err(error);
        }
        tracing::warn!(error = error.chain(), "the queue does not answer");
        self.queue = Some(self.inner.world.clock.now() + QUEUE_PAUSE);
        Ok(())
    }

    /// Looks whether any process committed something that makes a model due.
    async fn look(&mut self) {
        let world = &self.inner.world;
        self.look = world.clock.now() + LOOK;
        let Ok(counter) = world.state.change_counter().await else {
            return;
        };
        if counter == self.seen {
            return;
        }
        self.seen = counter;
        if !self.asked && self.is_work().await {
            self.coalescer.advanced(world.clock.now());
            self.asked = true;
        }
    }

    /// Whether a cycle would find anything to do; in doubt it would. When only time holds what there is, the timer is set:
    /// nobody else wakes the loop when a target is about to be missed or a backoff ends.
    async fn is_work(&mut self) -> bool {
        let world = &self.inner.world;
        let Ok(known) = Known::load(world).await else {
            return true;
        };
        let (decisions, now) = (known.outlook(world), world.clock.now());
        let work = |decision: &Decision| match decision {
            Decision::Refresh | Decision::After(_) => true,
            Decision::Idle | Decision::Hold(_) => false,
        };
        if decisions.values().any(work) {
            return true;
        }
        self.next = decisions
            .values()
            .filter_map(|held| cycle::due(held, now))
            .min();
        false
    }

    async fn due(&mut self) {
        let now = self.inner.world.clock.now();
        let spaced = self
            .began
            .is_none_or(|b| now >= b + self.inner.world.live.min_interval);
        let timed = self.next.is_some_and(|next| next <= now);
        if !self.asked && !timed && spaced && !self.is_work().await {
            // A poll that found nothing is no cycle: an advance that comes right after it waits for nothing.
            self.coalescer = Coalescer::new(now);
            let interval = self.inner.world.live.log_interval;
            journal::write(&lock(&self.journal).take(now, interval));
        } else {
            self.cycle(now).await;
        }
        self.maintain().await;
        self.profile().await;
    }

    /// Starts looking at models when it is time to. It runs beside the loop, and no cycle waits for it.
    async fn profile(&mut self) {
        let (world, now) = (&self.inner.world, self.inner.world.clock.now());
        if let Some(round) = self.profiling.take_if(|round| round.is_finished()) {
            // One that panicked has said so.
            self.profiles = round.await.unwrap_or(now + world.live.profile_interval);
        }
        if self.profiling.is_none() && now >= self.profiles {
            let world = world.clone();
            self.profiling = Some(tokio::spawn(async move { profile::round(&world).await }));
        }
    }

    /// Starts a round of maintenance when it is time for one. It runs beside the loop, and no cycle waits for it.
    async fn maintain(&mut self) {
        let (world, now) = (&self.inner.world, self.inner.world.clock.now());
        let settings = &world.live.maintenance;
        if let Some(round) = self.maintaining.take_if(|round| round.is_finished()) {
            // One that panicked has said so.
            let more = round.await.unwrap_or(false);
            let pause = if more {
                UPKEEP_PAUSE
            } else {
                settings.interval
            };
            self.upkeep = self.upkeep.max(now + pause.min(settings.interval));
        }
        if !settings.enabled || self.maintaining.is_some() || now < self.upkeep {
            return;
        }
        let (world, budget) = (world.clone(), Budget::of(settings));
        self.maintaining = Some(tokio::spawn(async move {
            let report = maintain::maintain(&world, &budget, now).await;
            maintain::tell(&report);
            report.more
        }));
    }

    async fn cycle(&mut self, now: Timestamp) {
        let inner = self.inner;
        self.coalescer.cycle_started(now);
        self.began = Some(now);
        (self.asked, self.next, self.rest) = (false, None, None);
        let feed = Telling {
            inner,
            journal: self.journal.clone(),
        };
        let mut pass = pin!(cycle::pass(&inner.world, &feed));
        // What is announced meanwhile opens the next batch when it comes, not when the cycle ends.
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut pass => break ended,
                got = self.receive() => match got {
                    Ok(announcements) => self.announced(announcements),
                    Err(_) => self.queue = Some(inner.world.clock.now() + QUEUE_PAUSE),
                },
            }
        };
        let at = inner.world.clock.now();
        *lock(&inner.down) = None;
        let mut status = lock(&inner.status);
        status.cycles += 1;
        status.last_cycle_at = Some(at.to_string());
        match ended {
            Ok(Pass { next, .. }) => {
                status.last_error = None;
                self.failures = 0;
                self.next = next;
            }
            Err(error) => {
                tracing::warn!(error = error.chain(), "the cycle ended early");
                status.last_error = Some(error.chain());
                self.failures = self.failures.saturating_add(1);
                // The world is not a model: it is asked again soon, since nothing is fresh until it answers.
                let rest = at + plan::backoff(self.failures, &inner.world.live).min(REST_MAX);
                (self.rest, self.next, self.asked) = (Some(rest), Some(rest), true);
            }
        }
        drop(status);
        journal::write(&lock(&self.journal).take(at, inner.world.live.log_interval));
    }
}

/// Puts what a cycle does on the feed.
struct Telling<'a> {
    inner: &'a Inner,
    journal: Arc<Mutex<Journal>>,
}

impl Observer for Telling<'_> {
    fn opened(&self, number: u64) {
        let at = self.inner.world.clock.now().to_string();
        self.inner.record(Event::CycleStarted { number, at });
    }

    fn started(&self, _: &TableName) {}

    fn ended(&self, model: &TableName, how: &Refreshed) {
        lock(&self.journal).note(model, how);
        let at = self.inner.world.clock.now().to_string();
        self.inner.record(Event::Refreshed {
            model: model.clone(),
            how: how.clone(),
            at,
        });
    }
}
