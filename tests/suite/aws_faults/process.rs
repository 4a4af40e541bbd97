//! One process of a function: ports of its own over what all share, in bad weather, until it is killed.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use embedded::SystemClock;
use engine::World;
use ports::{Error, Kind, Queue, Refreshes, queue::Announcement, refreshes::Order};
use rand::{Rng, SeedableRng, rngs::StdRng};
use testkit::{Faults, FaultyObjects, FaultyState, Rates, RecordedAlerts, SeededChance};
use tests::world::Ground;

use super::Stage;

/// What goes wrong with one call of the state or an object. An invocation makes dozens.
const RATES: Rates = Rates {
    conflict: 0.02,
    before: 0.004,
    after: 0.004,
    disk_full: 0.0,
};
/// How often an invocation is killed, and within how many calls.
const KILLED: f64 = 0.25;
const CALLS_MAX: u64 = 40;
/// How often sending fails, does so after the effect, or happens twice.
const CARELESS: f64 = 0.05;

/// What befell the functions, so that a test that befell nothing is noticed.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) killed: AtomicU64,
    /// Those of them that were carrying out an order.
    pub(super) killed_refreshing: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) doubled: AtomicU64,
}

/// A process, and its luck.
pub(super) struct Process {
    /// How many there were before it.
    pub(super) number: u64,
    world: World,
    orders: Arc<Careless>,
    faults: Arc<Faults>,
    numbers: StdRng,
}

impl Process {
    /// The next process of a stage; its seed is the stage's and how many there were before.
    pub(super) fn start(stage: &Stage) -> Result<Self> {
        let number = stage.processes.fetch_add(1, Ordering::Relaxed);
        let seed = stage.seed.wrapping_mul(1_000_003).wrapping_add(number);
        let faults = Arc::new(Faults::seeded(seed, Rates::default()));
        let (state, objects) = stage.open();
        let orders = Arc::new(Careless {
            queue: stage.wire.advances(),
            refreshes: stage.wire.refreshes(),
            numbers: Mutex::new(StdRng::seed_from_u64(seed ^ 1)),
            rough: AtomicBool::new(false),
        });
        let ground = Ground {
            state: Arc::new(FaultyState::new(state, faults.clone())),
            objects: Arc::new(FaultyObjects::new(objects, faults.clone())),
            uri: stage.uri.clone(),
            clock: Arc::new(SystemClock),
            chance: Arc::new(SeededChance::new(seed)),
        };
        let alerts = Arc::new(RecordedAlerts::new());
        let live = stage.live.clone();
        Ok(Self {
            number,
            world: ground.world(orders.clone(), alerts, &stage.models, live)?,
            orders,
            faults,
            numbers: StdRng::seed_from_u64(seed ^ 2),
        })
    }

    /// Whether something of this chance happens.
    pub(super) fn happens(&mut self, chance: f64) -> bool {
        self.numbers.random_bool(chance)
    }

    /// A number below a bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.numbers.random_range(0..bound)
    }

    /// Runs one invocation; nothing when it was killed, or when the world did not answer. After a kill this is another
    /// process, which remembers nothing.
    pub(super) async fn invoke<T, W>(
        &mut self,
        stage: &Stage,
        rough: bool,
        work: impl FnOnce(World, Arc<dyn Refreshes>) -> W,
    ) -> Result<Option<T>>
    where
        W: Future<Output = ports::Result<T>>,
    {
        let rough = rough && stage.is_rough();
        let rates = if rough { RATES } else { Rates::default() };
        self.faults.set_rates(rates);
        self.orders.rough.store(rough, Ordering::Relaxed);
        if rough && self.happens(KILLED) {
            let calls = self.below(CALLS_MAX);
            match self.happens(0.5) {
                true => self.faults.crash_after(calls),
                false => self.faults.crash_after_effect(calls),
            }
        }
        let work = work(self.world.clone(), self.orders.clone());
        match self.faults.until_crash(work).await {
            Some(Ok(ended)) => {
                self.faults.restart();
                Ok(Some(ended))
            }
            Some(Err(error)) => {
                self.faults.restart();
                // Whatever the weather, nothing is corrupt and no request is wrong.
                ensure!(error.kind == Kind::Unavailable, "{}", error.chain());
                stage.counts.refused.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
            None => {
                stage.counts.killed.fetch_add(1, Ordering::Relaxed);
                *self = Self::start(stage)?;
                Ok(None)
            }
        }
    }
}

/// Sends too little, too much, or says too little.
#[derive(Debug)]
struct Careless {
    queue: Arc<dyn Queue>,
    refreshes: Arc<dyn Refreshes>,
    numbers: Mutex<StdRng>,
    rough: AtomicBool,
}

enum Luck {
    Fine,
    Before,
    After,
    Twice,
}

impl Careless {
    fn luck(&self) -> Luck {
        if !self.rough.load(Ordering::Relaxed) {
            return Luck::Fine;
        }
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        match numbers.random::<f64>() / CARELESS {
            ..1.0 => Luck::Before,
            ..2.0 => Luck::After,
            ..3.0 => Luck::Twice,
            _ => Luck::Fine,
        }
    }

    /// Sends, as luck has it.
    async fn send<W>(&self, send: impl Fn() -> W) -> ports::Result<()>
    where
        W: Future<Output = ports::Result<()>>,
    {
        let lost = || Error::new(Kind::Unavailable, "send", "message").because("injected fault");
        match self.luck() {
            Luck::Fine => send().await,
            Luck::Before => Err(lost()),
            Luck::After => {
                send().await?;
                Err(lost())
            }
            Luck::Twice => {
                send().await?;
                send().await
            }
        }
    }
}

#[async_trait]
impl Queue for Careless {
    async fn send(&self, announcements: &[Announcement]) -> ports::Result<()> {
        self.send(|| self.queue.send(announcements)).await
    }

    async fn receive(&self) -> ports::Result<Vec<Announcement>> {
        self.queue.receive().await
    }
}

#[async_trait]
impl Refreshes for Careless {
    async fn send(&self, orders: &[Order]) -> ports::Result<()> {
        // The service promises no order between models.
        let mut orders = orders.to_vec();
        if self.rough.load(Ordering::Relaxed) {
            orders.reverse();
        }
        self.send(|| self.refreshes.send(&orders)).await
    }
}
