//! Faults on demand: conflicts, silence before or after the effect, full disks, and death between
//! any two calls.
//!
//! One [`Faults`] plan is shared by the wrappers of all ports of a process, so that "the ninth
//! call" means the ninth of the process and not of one port. Once crashed, no call ever returns:
//! like a killed process, nothing that would come after it happens. [`Faults::until_crash`] notices
//! and drops the work.

mod objects;
mod state;

use std::{collections::BTreeMap, future::Future, sync::Mutex};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::sync::watch;

pub use objects::FaultyObjects;
pub use state::FaultyState;

use crate::lock::lock;

/// A kind of call that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Reading items by key.
    Get,
    /// Reading a span of items.
    Query,
    /// A transaction.
    Transact,
    /// Storing an object, or a part of one, or completing it.
    PutObject,
    /// Reading an object or what is known of it.
    GetObject,
    /// Listing objects.
    ListObjects,
    /// Deleting an object.
    DeleteObject,
    /// Copying or renaming an object.
    CopyObject,
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A transaction is answered as a conflict and nothing happens. Other calls: as
    /// [`Fault::Before`].
    Conflict,
    /// Nothing happens and the call is `Unavailable`.
    Before,
    /// It happens, and the call is `Unavailable` all the same: the unknown outcome.
    After,
    /// Nothing happens because the disk is full.
    DiskFull,
}

/// How often calls go wrong by themselves, each between 0 (never) and 1 (always).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Transactions that end as a conflict for no reason.
    pub conflict: f64,
    /// Calls that are `Unavailable` and did nothing.
    pub before: f64,
    /// Transactions and puts that are `Unavailable` and happened.
    pub after: f64,
    /// Transactions and puts that find the disk full.
    pub disk_full: f64,
}

/// The plan of what goes wrong, and the count of what has been called.
#[derive(Debug)]
pub struct Faults {
    plan: Mutex<Plan>,
    crashed: watch::Sender<bool>,
}

#[derive(Debug)]
struct Plan {
    rates: Rates,
    numbers: StdRng,
    calls: u64,
    by_operation: BTreeMap<Operation, u64>,
    scripted: Vec<Scripted>,
    crash: Option<Crash>,
}

#[derive(Debug)]
struct Scripted {
    operation: Operation,
    skip: u64,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Before(u64),
    After(u64),
}

/// What one call has ahead of it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    fault: Option<Fault>,
    crash_after: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

impl Faults {
    /// Nothing goes wrong until told to.
    #[must_use]
    pub fn none() -> Self {
        Self::seeded(0, Rates::default())
    }

    /// Calls go wrong by chance, the same ones for the same seed and order of calls.
    #[must_use]
    pub fn seeded(seed: u64, rates: Rates) -> Self {
        let plan = Plan {
            rates,
            numbers: StdRng::seed_from_u64(seed),
            calls: 0,
            by_operation: BTreeMap::new(),
            scripted: Vec::new(),
            crash: None,
        };
        Self {
            plan: Mutex::new(plan),
            crashed: watch::Sender::new(false),
        }
    }

    /// Other rates from now on; all zero ends the weather.
    pub fn set_rates(&self, rates: Rates) {
        lock(&self.plan).rates = rates;
    }

    /// One call goes wrong: the next of `operation` after `skip` more that do not.
    pub fn inject(&self, operation: Operation, skip: u64, fault: Fault) {
        lock(&self.plan).scripted.push(Scripted {
            operation,
            skip,
            fault,
        });
    }

    /// The process dies `calls` calls from now, before the effect of the next one.
    pub fn crash_after(&self, calls: u64) {
        let mut plan = lock(&self.plan);
        plan.crash = Some(Crash::Before(plan.calls + calls + 1));
    }

    /// The process dies `calls` calls from now, after the effect of the next one and before its
    /// answer.
    pub fn crash_after_effect(&self, calls: u64) {
        let mut plan = lock(&self.plan);
        plan.crash = Some(Crash::After(plan.calls + calls + 1));
    }

    /// A new process: calls work again. What hung in the crash hangs on; drop it.
    pub fn restart(&self) {
        lock(&self.plan).crash = None;
        self.crashed.send_replace(false);
    }

    /// Whether the process is dead.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        *self.crashed.borrow()
    }

    /// Runs work until it ends, or until the crash, which drops it and gives `None`.
    pub async fn until_crash<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut crashed = self.crashed.subscribe();
        tokio::select! {
            biased;
            _ = crashed.wait_for(|crashed| *crashed) => None,
            answer = work => Some(answer),
        }
    }

    /// Calls so far, of all operations.
    #[must_use]
    pub fn calls(&self) -> u64 {
        lock(&self.plan).calls
    }

    /// Calls so far of one operation.
    #[must_use]
    pub fn calls_of(&self, operation: Operation) -> u64 {
        lock(&self.plan)
            .by_operation
            .get(&operation)
            .copied()
            .unwrap_or(0)
    }

    /// Begins a call; never returns in a dead process.
    async fn enter(&self, operation: Operation) -> Turn {
        if self.has_crashed() {
            std::future::pending::<()>().await;
        }
        let (turn, dies) = lock(&self.plan).turn(operation);
        if dies {
            self.die().await;
        }
        turn
    }

    /// Does the call, or not, as its turn says. `work` does nothing before it is awaited.
    async fn finish<T, E>(
        &self,
        turn: Turn,
        error: fn(Fault) -> E,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        match turn.fault {
            Some(fault @ (Fault::Before | Fault::DiskFull | Fault::Conflict)) => Err(error(fault)),
            Some(Fault::After) => {
                work.await?;
                Err(error(Fault::After))
            }
            None => {
                let answer = work.await;
                if turn.crash_after {
                    self.die().await;
                }
                answer
            }
        }
    }

    /// Both at once.
    async fn call<T, E>(
        &self,
        operation: Operation,
        error: fn(Fault) -> E,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let turn = self.enter(operation).await;
        self.finish(turn, error, work).await
    }

    async fn die(&self) {
        self.crashed.send_replace(true);
        std::future::pending::<()>().await;
    }
}

impl Plan {
    /// What happens to the next call, and whether the process dies before it.
    fn turn(&mut self, operation: Operation) -> (Turn, bool) {
        self.calls += 1;
        *self.by_operation.entry(operation).or_default() += 1;
        let scripted = self.scripted(operation);
        let fault = scripted.or_else(|| self.weather(operation));
        let crash_after = self.crash == Some(Crash::After(self.calls));
        // A crash takes the place of a lesser fault: the effect is then certain to have happened.
        let fault = fault.filter(|_| !crash_after);
        (
            Turn { fault, crash_after },
            self.crash == Some(Crash::Before(self.calls)),
        )
    }

    fn scripted(&mut self, operation: Operation) -> Option<Fault> {
        let due = self
            .scripted
            .iter()
            .position(|s| s.operation == operation && s.skip == 0);
        for waiting in self
            .scripted
            .iter_mut()
            .filter(|s| s.operation == operation)
        {
            waiting.skip = waiting.skip.saturating_sub(1);
        }
        due.map(|index| self.scripted.remove(index).fault)
    }

    fn weather(&mut self, operation: Operation) -> Option<Fault> {
        let writes = matches!(operation, Operation::Transact | Operation::PutObject);
        let Rates {
            conflict,
            before,
            after,
            disk_full,
        } = self.rates;
        let conflict = if operation == Operation::Transact {
            conflict
        } else {
            0.0
        };
        let (after, disk_full) = if writes {
            (after, disk_full)
        } else {
            (0.0, 0.0)
        };
        let mut number: f64 = self.numbers.random();
        for (rate, fault) in [
            (conflict, Fault::Conflict),
            (before, Fault::Before),
            (after, Fault::After),
            (disk_full, Fault::DiskFull),
        ] {
            if number < rate {
                return Some(fault);
            }
            number -= rate;
        }
        None
    }
}
