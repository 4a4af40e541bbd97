//! The world of one seed, and the processes in it.

use std::sync::Arc;

use domain::{Duration, LiveSettings, Project, Timestamp};
use engine::World;
use object_store::memory::InMemory;
use ports::{
    Clock, Jobs, Objects, Query, Refreshes, State, Tables, jobs::IndexJob, refreshes::Order,
    search::Searching,
};
use rand::Rng;
use testkit::{MemoryQueue, MemoryState, RecordedAlerts, SeededChance};

use crate::{
    clients::Door,
    finder::{Finder, Posting},
    gate::{Gate, GatedObjects, GatedState, SkewedClock},
    mail::{Announcing, Mailbox, Ordering, Wake, Within},
    models::Shape,
    plan::{Mode, Plan},
    query::{Pretend, Real},
    scheduler::{Life, Rates, Scheduler},
    watch::{Bottom, Watched},
};

/// Everything that outlives a process.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) plan: Plan,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) bottom: Arc<Bottom>,
    pub(crate) advances: Arc<Mailbox<Wake>>,
    pub(crate) orders: Arc<Mailbox<Order>>,
    pub(crate) jobs: Arc<Mailbox<IndexJob>>,
    pub(crate) doors: Vec<Arc<Door>>,
    project: Arc<Project>,
    live: Arc<LiveSettings>,
    chance: Arc<SeededChance>,
    alerts: Arc<RecordedAlerts>,
    /// The real query engine, past every gate, in the seeds that use it.
    real: Option<Arc<dyn Query>>,
}

/// A process as it begins to live.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) sim: Arc<Sim>,
    pub(crate) world: World,
    pub(crate) gate: Gate,
    pub(crate) refreshes: Arc<dyn Refreshes>,
}

impl Sim {
    pub(crate) fn new(plan: Plan, rates: Rates) -> anyhow::Result<Arc<Self>> {
        let scheduler = Scheduler::new(plan.seed, rates);
        let chance = Arc::new(SeededChance::new(plan.seed));
        let state = Arc::new(MemoryState::new());
        let objects: Objects = Arc::new(InMemory::new());
        let clock: Arc<dyn Clock> = scheduler.clock.clone();
        let lake: Arc<dyn Tables> = Arc::new(lake::Lake::new(
            state.clone(),
            objects.clone(),
            "memory:///".to_owned(),
            chance.clone(),
            clock,
        ));
        let real = match plan.real {
            true => {
                let settings = query::Settings {
                    memory: 64 << 20,
                    spill: None,
                    threads: 1,
                };
                let engine = query::engine(lake.clone(), objects.clone(), settings);
                Some(engine.map_err(|error| tests::rows::chain(&error))?)
            }
            false => None,
        };
        let texts: Vec<_> = plan
            .project
            .iter()
            .map(|shape: &Shape| shape.text())
            .collect();
        let bottom = Bottom {
            state,
            objects,
            lake,
            scheduler: scheduler.clone(),
            book: std::sync::Mutex::default(),
            compare: plan.compare,
        };
        Ok(Arc::new(Self {
            bottom: Arc::new(bottom),
            advances: Mailbox::new(scheduler.clone(), plan.again, plan.late),
            orders: Mailbox::new(scheduler.clone(), plan.again, plan.late),
            jobs: Mailbox::new(scheduler.clone(), plan.again, plan.late),
            doors: (0..plan.servers).map(|_| Arc::default()).collect(),
            project: Arc::new(tests::world::project(&texts)?),
            live: Arc::new(plan.live.clone()),
            chance,
            alerts: Arc::new(RecordedAlerts::new()),
            real,
            scheduler,
            plan,
        }))
    }

    /// A process begins to live: its memory is empty.
    pub(crate) fn start(self: &Arc<Self>, name: &str, mortal: bool) -> Process {
        let skew = match self.plan.skew && mortal {
            true => self
                .scheduler
                .draw(|dice| dice.random_range(-5_000_000..5_000_000)),
            false => 0,
        };
        let life = Life::new(name.to_owned(), mortal);
        let gate = Gate {
            scheduler: self.scheduler.clone(),
            life: life.clone(),
        };
        let mut state: Arc<dyn State> = Arc::new(GatedState {
            inner: Arc::new(Watched {
                bottom: self.bottom.clone(),
                by: name.to_owned(),
            }),
            gate: gate.clone(),
        });
        if let Some(broken) = self.plan.broken {
            state = broken.state(state);
        }
        let objects: Objects = Arc::new(GatedObjects {
            inner: self.bottom.objects.clone(),
            gate: gate.clone(),
        });
        let clock = Arc::new(SkewedClock {
            inner: self.scheduler.clock.clone(),
            skew,
        });
        let tables: Arc<dyn Tables> = Arc::new(lake::Lake::new(
            state.clone(),
            objects.clone(),
            "memory:///".to_owned(),
            self.chance.clone(),
            clock.clone(),
        ));
        let landing = lake::landing::LandingLake::new(
            state.clone(),
            objects.clone(),
            clock.clone(),
            self.chance.clone(),
        );
        let entries = Arc::new(lake::EntryLake::new(objects.clone()));
        let posting = Posting {
            mailbox: self.jobs.clone(),
            gate: gate.clone(),
        };
        let is_function = self.plan.mode == Mode::Functions;
        let searching = Searching {
            indexes: Arc::new(Finder {
                objects: objects.clone(),
                scheduler: self.scheduler.clone(),
            }),
            ..Searching::default()
        };
        let query: Arc<dyn Query> = match &self.real {
            Some(real) => Arc::new(Real {
                inner: real.clone(),
                gate: gate.clone(),
            }),
            None => Arc::new(Pretend {
                tables: tables.clone(),
                objects,
            }),
        };
        let world = World {
            state,
            landing: Arc::new(landing),
            entries,
            searching,
            jobs: is_function.then(|| Arc::new(posting) as Arc<dyn Jobs>),
            tables,
            query,
            queue: Arc::new(Announcing {
                mailbox: self.advances.clone(),
                gate: gate.clone(),
            }),
            clock,
            chance: self.chance.clone(),
            alerts: self.alerts.clone(),
            project: self.project.clone(),
            live: self.live.clone(),
        };
        let world = match self.plan.broken {
            Some(broken) => broken.world(world, &self.scheduler),
            None => world,
        };
        let refreshes = Arc::new(Ordering {
            mailbox: self.orders.clone(),
            gate: gate.clone(),
        });
        Process {
            sim: self.clone(),
            world,
            gate,
            refreshes,
        }
    }

    /// Runs a process that is started again after each death; returns when its body ends by itself.
    pub(crate) async fn keep<F: Future<Output = ()>>(
        self: Arc<Self>,
        name: String,
        mortal: bool,
        body: impl Fn(Process) -> F,
    ) {
        loop {
            let process = self.start(&name, mortal);
            let life = process.gate.life.clone();
            if life.until_death(body(process)).await.is_some() {
                return;
            }
            self.nap(Duration::from_secs(3)).await;
        }
    }

    /// Sleeps for a random while.
    pub(crate) async fn nap(&self, longest: Duration) {
        let longest = i64::try_from(longest.as_micros()).unwrap_or(0);
        let nap = self.scheduler.draw(|dice| dice.random_range(0..=longest));
        let until = Timestamp(self.scheduler.clock.now().0 + nap);
        self.scheduler.clock.sleep_until(until).await;
    }

    /// Sleeps for a while.
    pub(crate) async fn rest(&self, span: Duration) {
        let until = self.scheduler.clock.now() + span;
        self.scheduler.clock.sleep_until(until).await;
    }
}

impl Process {
    /// The same process with announcements that stay within it.
    pub(crate) fn within(mut self) -> Self {
        self.world.queue = Arc::new(Within {
            queue: MemoryQueue::new(),
            gate: self.gate.clone(),
        });
        self
    }
}
