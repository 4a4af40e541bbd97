//! The functions at once, killed and lied to: a chain of models over queues, in one process, until everything that was
//! acknowledged is in gold and no message is left.
//!
//! Functions are tasks, a killed one is a dropped future, and what they share is in memory or on the emulator's services.
//! Every decision about what goes wrong comes from the seed; how tasks interleave does not.

mod functions;
mod process;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use domain::{
    LiveSettings, Timestamp,
    items::{self, Cycle},
};
use embedded::SystemClock;
use engine::cycle::{self, Step};
use libtest_mimic::Trial;
use ports::{Clock, Objects, State, state::Key};
use serde_json::json;
use testkit::{MemoryState, RecordedAlerts, SeededChance};
use tests::{
    aws::Place,
    case::{Columns, ModelText},
    rows::{self, compare},
    wire::{Left, MemoryWire, SqsWire, Wire},
    world::{Ground, table},
};
use tokio::task::JoinSet;

use crate::{
    bugs::merged,
    plain::{test_async, test_emulated},
};
use process::Counts;

/// Longest a run may take: what is lost is waited for in vain.
const LIMIT: Duration = Duration::from_secs(400);
/// How often it is looked whether all is done.
const LOOK: Duration = Duration::from_millis(5);
/// A patience that is never over: an order that is lost stays lost, and the run does not end.
const ENDLESS: Duration = Duration::from_secs(3_600);
/// A patience that is over while refreshes run: they are sent again, and several work on one model.
const SHORT: Duration = Duration::from_millis(30);

const LANDING: &str = "landing.x";

pub(crate) fn trials() -> Vec<Trial> {
    let memory = |seed: u64, patience| {
        let name = format!("aws_faults::seed_{seed}_in_memory_ends_as_the_query_from_scratch");
        test_async(name, move || async move {
            run(Stage::in_memory(seed, patience), CYCLES).await
        })
    };
    vec![
        memory(1, ENDLESS),
        memory(2, ENDLESS),
        memory(3, SHORT),
        memory(4, ENDLESS),
        memory(5, SHORT),
        test_emulated(
            "aws_faults::seed_6_on_the_emulator_ends_as_the_query_from_scratch",
            || async { run(Stage::emulated(6).await?, CYCLES).await },
        ),
    ]
}

/// Cycles of one run.
const CYCLES: u64 = 200;

/// What state and objects are.
enum Shared {
    Memory(Arc<MemoryState>, Objects),
    Aws(Box<Place>),
}

/// What all functions share.
struct Stage {
    shared: Shared,
    uri: String,
    wire: Arc<dyn Wire>,
    models: Vec<ModelText>,
    live: LiveSettings,
    patience: Duration,
    /// Pause between two requests of one sender.
    pace: Duration,
    seed: u64,
    processes: AtomicU64,
    /// Whether things go wrong.
    rough: AtomicBool,
    /// Whether rows arrive.
    arriving: AtomicBool,
    /// Whether functions go on.
    going: AtomicBool,
    sent: Mutex<BTreeSet<u64>>,
    acknowledged: Mutex<BTreeSet<u64>>,
    counts: Counts,
}

impl Stage {
    fn in_memory(seed: u64, patience: Duration) -> Self {
        let objects: Objects = Arc::new(object_store::memory::InMemory::new());
        let shared = Shared::Memory(Arc::new(MemoryState::new()), objects);
        let wire = Arc::new(MemoryWire::default());
        Self::new(shared, "memory:///".to_owned(), wire, seed, patience, LOOK)
    }

    async fn emulated(seed: u64) -> Result<Self> {
        let place = Place::open().await?;
        let wire = Arc::new(SqsWire::open(&place).await?);
        let (uri, pace) = (place.uri(), Duration::from_millis(300));
        Ok(Self::new(
            Shared::Aws(Box::new(place)),
            uri,
            wire,
            seed,
            ENDLESS,
            pace,
        ))
    }

    fn new(
        shared: Shared,
        uri: String,
        wire: Arc<dyn Wire>,
        seed: u64,
        patience: Duration,
        pace: Duration,
    ) -> Self {
        Self {
            shared,
            uri,
            wire,
            models: models(),
            live: LiveSettings {
                min_interval: Duration::ZERO,
                ..LiveSettings::default()
            },
            patience,
            pace,
            seed,
            processes: AtomicU64::new(0),
            rough: AtomicBool::new(true),
            arriving: AtomicBool::new(true),
            going: AtomicBool::new(true),
            sent: Mutex::default(),
            acknowledged: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// State and objects, as one more process opens them.
    fn open(&self) -> (Arc<dyn State>, Objects) {
        match &self.shared {
            Shared::Memory(state, objects) => (state.clone(), objects.clone()),
            Shared::Aws(place) => (Arc::new(place.state()), place.objects()),
        }
    }

    fn is_rough(&self) -> bool {
        self.rough.load(Ordering::Relaxed)
    }

    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn note(&self, list: &Mutex<BTreeSet<u64>>, events: &[u64]) {
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        list.extend(events);
    }

    fn noted(list: &Mutex<BTreeSet<u64>>) -> BTreeSet<u64> {
        list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who looks on: nothing goes wrong for them.
    fn witness(&self) -> Result<engine::World> {
        let (state, objects) = self.open();
        let ground = Ground {
            state,
            objects,
            uri: self.uri.clone(),
            clock: Arc::new(SystemClock),
            chance: Arc::new(SeededChance::new(self.seed.wrapping_add(1 << 40))),
        };
        let alerts = Arc::new(RecordedAlerts::new());
        ground.world(
            self.wire.advances(),
            alerts,
            &self.models,
            self.live.clone(),
        )
    }
}

fn columns() -> Columns {
    ["event", "id", "region", "amount"]
        .map(|name| (name.to_owned(), kind(name).to_owned()))
        .into()
}

fn kind(column: &str) -> &'static str {
    match column {
        "region" => "VARCHAR",
        _ => "BIGINT",
    }
}

/// Landing to silver by merge, silver to gold by delete and insert of the regions that anything changed in.
fn models() -> Vec<ModelText> {
    let silver = "SELECT event, id, region, amount, _seq FROM landing.x";
    let gold = "SELECT c.region, sum(s.amount) AS total, count(s.id) AS n \
                FROM (SELECT DISTINCT region FROM {changes:silver.x}) AS c \
                LEFT JOIN silver.x AS s ON s.region = c.region GROUP BY c.region";
    let config = json!({ "materialized": "incremental", "live": "true",
        "incremental_strategy": "delete+insert", "unique_key": "region" });
    let gold = ModelText {
        name: "gold.x".to_owned(),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: gold.to_owned(),
        asserts: Vec::new(),
    };
    vec![merged("silver.x", "id", silver), gold]
}

async fn run(stage: Stage, cycles: u64) -> Result<()> {
    let (seed, stage) = (stage.seed, Arc::new(stage));
    let began = std::time::Instant::now();
    let played = tokio::time::timeout(LIMIT, play(&stage, cycles)).await;
    let Counts {
        killed,
        killed_refreshing,
        refused,
        doubled,
    } = &stage.counts;
    let counts = [killed, killed_refreshing, refused, doubled];
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    println!(
        "seed {seed}: killed, of these refreshing, refused, doubled {counts:?}, {} sent, {} acknowledged, {:?}",
        Stage::noted(&stage.sent).len(),
        Stage::noted(&stage.acknowledged).len(),
        began.elapsed()
    );
    match played {
        Ok(played) => played.with_context(|| format!("seed {seed}"))?,
        Err(_) => {
            let left = stage.wire.left().await?;
            let cycle = current(&stage.witness()?).await?;
            anyhow::bail!("seed {seed}: it does not end; {left:?}, {cycle:?}");
        }
    }
    ensure!(!counts.contains(&0), "the weather was fine");
    Ok(())
}

async fn current(world: &engine::World) -> Result<Cycle> {
    let key = Key::new(items::CYCLE, items::CURRENT);
    let item = world.state.get(&key).await.map_err(|e| rows::chain(&e))?;
    let cycle = item.map(|item| item.decode()).transpose();
    Ok(cycle.map_err(|e| rows::chain(&e))?.unwrap_or_default())
}

/// Lets the functions work through so many cycles, then lets the weather clear up and looks at what is there.
async fn play(stage: &Arc<Stage>, cycles: u64) -> Result<()> {
    let witness = stage.witness()?;
    let declared: Vec<_> = columns()
        .into_iter()
        .map(|(name, kind)| items::Column { name, kind })
        .collect();
    let declared = witness.landing.declare(&table(LANDING)?, &declared).await;
    declared.map_err(|e| rows::chain(&e))?;
    let (mut senders, mut running) = (JoinSet::new(), JoinSet::new());
    for number in 1..=2 {
        senders.spawn(functions::ingest(stage.clone(), number));
        running.spawn(functions::coalesce(stage.clone()));
    }
    for _ in 0..3 {
        running.spawn(functions::refresh(stage.clone()));
    }
    running.spawn(functions::sweep(stage.clone()));
    while current(&witness).await?.number < cycles {
        failures(&mut senders)?;
        failures(&mut running)?;
        tokio::time::sleep(LOOK).await;
    }
    stage.arriving.store(false, Ordering::Relaxed);
    stage.rough.store(false, Ordering::Relaxed);
    while let Some(ended) = senders.join_next().await {
        ended??;
    }
    loop {
        failures(&mut running)?;
        let step = cycle::step(&witness, &*stage.wire.refreshes(), stage.patience).await;
        let rests = step.map_err(|e| rows::chain(&e))? == Step::Idle(None);
        let Left {
            advances,
            refreshes,
            ..
        } = stage.wire.left().await?;
        if rests && advances == 0 && refreshes == 0 {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    stage.going.store(false, Ordering::Relaxed);
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    check(stage, &witness).await
}

/// Functions end before they are told to only when something is wrong.
fn failures(running: &mut JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = running.try_join_next() {
        ended??;
    }
    Ok(())
}

async fn check(stage: &Stage, world: &engine::World) -> Result<()> {
    let left = stage.wire.left().await?;
    ensure!(left == Left::default(), "messages are left: {left:?}");
    let mut landed = BTreeSet::new();
    for row in rows::query(world, "SELECT event FROM landing.x").await? {
        let event = row.first().and_then(serde_json::Value::as_u64);
        let event = event.context("an event is a number")?;
        ensure!(landed.insert(event), "event {event} is there twice");
    }
    let (sent, acknowledged) = (Stage::noted(&stage.sent), Stage::noted(&stage.acknowledged));
    let lost: Vec<_> = acknowledged.difference(&landed).collect();
    ensure!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let odd: Vec<_> = landed.difference(&sent).collect();
    ensure!(odd.is_empty(), "nobody sent {odd:?}");
    const LATEST: &str = "(SELECT event, id, region, amount, _seq, \
         row_number() OVER (PARTITION BY id ORDER BY _seq DESC) AS age FROM landing.x) WHERE age = 1";
    let silver = rows::query(
        world,
        "SELECT event, id, region, amount, _seq FROM silver.x",
    )
    .await?;
    let want = format!("SELECT event, id, region, amount, _seq FROM {LATEST}");
    compare("silver.x", silver, &rows::query(world, &want).await?, &[1])?;
    let gold = rows::query(world, "SELECT region, total, n FROM gold.x WHERE n > 0").await?;
    let want = format!("SELECT region, sum(amount), count(*) FROM {LATEST} GROUP BY region");
    compare("gold.x", gold, &rows::query(world, &want).await?, &[0])
}
