//! The scheduler: every port call of every process waits here, and the seed says which one goes on and how it ends.
//!
//! One thread runs everything. Whenever nothing on it can move any more, one call is let go, or time moves: so the order
//! of effects is the seed's and nobody else's.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use domain::{Duration, Timestamp};
use ports::Clock as _;
use rand::{Rng, SeedableRng, rngs::StdRng};
use testkit::SimulatedClock;
use tokio::sync::{Notify, oneshot};

/// Steps a failing seed shows.
const TRACE: usize = 50;
/// Steps after which a seed is taken never to end.
const STEPS_MAX: u64 = 60_000;
/// Longest a call is kept waiting while others go on.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Get,
    Query,
    Transact,
    PutObject,
    GetObject,
    ListObjects,
    DeleteObject,
    Send,
    Receive,
    Statement,
    Request,
}

impl Call {
    /// Whether it changes anything, so that its outcome can be unknown.
    fn has_effect(self) -> bool {
        matches!(
            self,
            Self::Transact | Self::PutObject | Self::DeleteObject | Self::Send | Self::Request
        )
    }
}

/// How a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it should.
    Go,
    /// Nothing happens, and it is `Unavailable`.
    Lost,
    /// It happens, and is `Unavailable` all the same.
    Unknown,
    /// A transaction ends as a conflict for no reason.
    Conflict,
    /// The process dies before it.
    DieBefore,
    /// The process dies after it, and before it hears of it.
    DieAfter,
}

/// How often things go wrong, each between 0 and 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) lost: f64,
    pub(crate) unknown: f64,
    pub(crate) conflict: f64,
    pub(crate) die: f64,
    /// Per step: the clock is set to another time.
    pub(crate) jump: f64,
    /// Per step: a moment passes.
    pub(crate) creep: f64,
    /// Announcements and messages whose sending fails for good; only where a schedule makes up for it.
    pub(crate) unsent: bool,
}

/// One life of one process, from its start to its death.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) name: String,
    /// Whether it may die.
    pub(crate) mortal: bool,
    dead: AtomicBool,
    died: Notify,
}

impl Life {
    pub(crate) fn new(name: String, mortal: bool) -> Arc<Self> {
        Arc::new(Self {
            name,
            mortal,
            dead: AtomicBool::new(false),
            died: Notify::new(),
        })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.died.notify_waiters();
    }

    /// Runs work until it ends, or until the process dies, which drops it.
    pub(crate) async fn until_death<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let died = self.died.notified();
        if self.is_dead() {
            return None;
        }
        tokio::select! {
            biased;
            () = died => None,
            answer = work => Some(answer),
        }
    }
}

/// One call of one process, which is its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doom {
    /// The process.
    pub(crate) who: &'static str,
    /// Which of its calls, from 1.
    pub(crate) call: u64,
    /// Whether it still happens.
    pub(crate) after: bool,
}

struct Ticket {
    life: Arc<Life>,
    call: Call,
    subject: String,
    since: Timestamp,
    tell: oneshot::Sender<Verdict>,
}

struct Step {
    number: u64,
    at: Timestamp,
    who: String,
    call: Call,
    subject: String,
    verdict: Verdict,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            at,
            who,
            call,
            subject,
            verdict,
        } = self;
        let time = at.to_string();
        let time = time.get(11..23).unwrap_or(&time);
        write!(f, "{number:>6} {time} {who:<11} {call:?} {subject}")?;
        match verdict {
            Verdict::Go => Ok(()),
            other => write!(f, "  -> {other:?}"),
        }
    }
}

struct Inner {
    dice: StdRng,
    waiting: Vec<Ticket>,
    rates: Rates,
    trace: VecDeque<Step>,
    steps: u64,
    digest: u64,
    busy: u32,
    broken: Option<String>,
    /// Who is to die, and at which of its calls from now.
    doom: Option<Doom>,
}

/// The scheduler of one seed.
pub(crate) struct Scheduler {
    inner: Mutex<Inner>,
    pub(crate) clock: Arc<SimulatedClock>,
    over: Notify,
    /// Somebody was let go.
    again: Notify,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

impl Scheduler {
    pub(crate) fn new(seed: u64, rates: Rates) -> Arc<Self> {
        let inner = Inner {
            dice: StdRng::seed_from_u64(seed),
            waiting: Vec::new(),
            rates,
            trace: VecDeque::new(),
            steps: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            busy: 0,
            broken: None,
            doom: None,
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            clock: Arc::new(SimulatedClock::default()),
            over: Notify::new(),
            again: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws from the seed.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.lock().dice)
    }

    /// Whether something happens whose chance is `rate`.
    pub(crate) fn chance(&self, rate: f64) -> bool {
        self.draw(|dice| dice.random_bool(rate))
    }

    /// Other rates from now on.
    pub(crate) fn set_rates(&self, rates: Rates) {
        self.lock().rates = rates;
    }

    /// A process dies at one of its calls from now.
    pub(crate) fn doom(&self, doom: Option<Doom>) {
        self.lock().doom = doom;
    }

    /// Whether somebody is still to die.
    pub(crate) fn is_doomed(&self) -> bool {
        self.lock().doom.is_some()
    }

    /// Waits for its turn; never returns to a dead process.
    pub(crate) async fn enter(&self, life: &Arc<Life>, call: Call, subject: String) -> Verdict {
        if life.is_dead() {
            return std::future::pending().await;
        }
        let (tell, told) = oneshot::channel();
        let ticket = Ticket {
            life: life.clone(),
            call,
            subject,
            since: self.clock.now(),
            tell,
        };
        self.lock().waiting.push(ticket);
        match told.await {
            Ok(Verdict::DieBefore) => {
                self.kill(life);
                std::future::pending().await
            }
            Ok(verdict) => verdict,
            // It died of another of its calls.
            Err(_) => std::future::pending().await,
        }
    }

    /// Ends a process: none of its calls goes on.
    pub(crate) fn kill(&self, life: &Life) {
        life.end();
        self.lock().waiting.retain(|ticket| !ticket.life.is_dead());
    }

    /// Keeps everybody waiting until the guard is dropped: something works on another thread, or is being checked.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.lock().busy += 1;
        Hold(self.clone())
    }

    /// An invariant does not hold: the seed has failed.
    pub(crate) fn fail(&self, why: String) {
        self.lock().broken.get_or_insert(why);
        self.over.notify_one();
    }

    /// What does not hold, if anything.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    /// Returns when the seed has failed.
    pub(crate) async fn failed(&self) {
        self.over.notified().await;
    }

    /// Never returns. Whoever waits for this is woken at every step, so that the thread comes to rest once more and the
    /// next step is taken even when nobody waited for the answer of the last: one of several calls that are made
    /// together is not looked at while another is awaited.
    pub(crate) async fn go_on(&self) {
        loop {
            self.again.notified().await;
        }
    }

    /// Steps so far, and a digest of all of them.
    pub(crate) fn steps(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.steps, inner.digest)
    }

    /// The last steps, one per line.
    pub(crate) fn trace(&self) -> String {
        let inner = self.lock();
        inner.trace.iter().map(|step| format!("{step}\n")).collect()
    }

    /// Nothing can move: lets one call go, or time pass.
    pub(crate) fn idle(&self) {
        let mut inner = self.lock();
        if inner.busy > 0 || inner.broken.is_some() {
            return;
        }
        if inner.steps > STEPS_MAX {
            drop(inner);
            return self.fail(format!("it does not end: {STEPS_MAX} steps"));
        }
        let now = self.clock.now();
        // Whoever stopped waiting for an answer has not called.
        inner.waiting.retain(|ticket| !ticket.tell.is_closed());
        if inner.waiting.is_empty() {
            drop(inner);
            match self.clock.next_wake() {
                Some(at) => {
                    self.clock.set(at.max(now));
                    self.again.notify_one();
                }
                None => self.fail("nothing waits and nothing moves".into()),
            }
            return;
        }
        let Rates { jump, creep, .. } = inner.rates;
        let moved = match inner.dice.random_range(0.0..1.0) {
            luck if luck < jump => Some(inner.dice.random_range(-3_000_000..20_000_000)),
            luck if luck < jump + creep => Some(inner.dice.random_range(0..60_000)),
            _ => None,
        };
        let patience = |ticket: &Ticket| now.since(ticket.since) > WAIT_MAX;
        let index = match inner.waiting.iter().position(patience) {
            Some(index) => index,
            None => {
                let count = inner.waiting.len();
                inner.dice.random_range(0..count)
            }
        };
        let ticket = inner.waiting.swap_remove(index);
        let verdict = inner.verdict(&ticket);
        inner.note(now, &ticket, verdict);
        drop(inner);
        // One that died meanwhile hears nothing.
        let _ = ticket.tell.send(verdict);
        self.again.notify_one();
        if let Some(span) = moved {
            self.clock.set(Timestamp(now.0 + span));
        }
    }
}

impl Inner {
    /// The call that a process was to die at, when this is it.
    fn fate(&mut self, ticket: &Ticket) -> Option<Verdict> {
        let doom = self.doom.as_mut()?;
        if doom.who != ticket.life.name {
            return None;
        }
        doom.call -= 1;
        if doom.call > 0 {
            return None;
        }
        let after = doom.after && ticket.call.has_effect();
        self.doom = None;
        Some(if after {
            Verdict::DieAfter
        } else {
            Verdict::DieBefore
        })
    }

    fn verdict(&mut self, ticket: &Ticket) -> Verdict {
        if let Some(verdict) = self.fate(ticket) {
            return verdict;
        }
        let rates = self.rates;
        let luck: f64 = self.dice.random_range(0.0..1.0);
        let die = if ticket.life.mortal { rates.die } else { 0.0 };
        let effect = ticket.call.has_effect();
        let safe = ticket.call == Call::Send && !rates.unsent || ticket.call == Call::Receive;
        let mut bound = die / 2.0;
        if luck < bound {
            return Verdict::DieBefore;
        }
        bound += die / 2.0;
        if luck < bound {
            return if effect {
                Verdict::DieAfter
            } else {
                Verdict::DieBefore
            };
        }
        if safe {
            return Verdict::Go;
        }
        bound += rates.lost;
        if luck < bound {
            return Verdict::Lost;
        }
        bound += if effect { rates.unknown } else { 0.0 };
        if luck < bound {
            return Verdict::Unknown;
        }
        bound += if ticket.call == Call::Transact {
            rates.conflict
        } else {
            0.0
        };
        if luck < bound {
            return Verdict::Conflict;
        }
        Verdict::Go
    }

    fn note(&mut self, at: Timestamp, ticket: &Ticket, verdict: Verdict) {
        self.steps += 1;
        let step = Step {
            number: self.steps,
            at,
            who: ticket.life.name.clone(),
            call: ticket.call,
            subject: ticket.subject.clone(),
            verdict,
        };
        let marks = [ticket.call as u8, verdict as u8];
        let text = step.who.bytes().chain(step.subject.bytes()).chain(marks);
        self.digest = text.fold(self.digest, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(step);
    }
}

/// Keeps everybody waiting.
pub(crate) struct Hold(Arc<Scheduler>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
    }
}
