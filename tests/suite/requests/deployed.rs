//! What the functions of a deployment ask, through the use cases that they are. Each call of a port is one request: the
//! adapters of AWS have tests of their own that say so.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use domain::{Duration, LiveSettings};
use engine::{cycle, entries::Registry, refresh::Refreshed, upkeep};
use futures::future::try_join_all;
use libtest_mimic::Trial;
use ports::{
    Queue, Refreshes, State,
    queue::Announcement,
    refreshes::Order,
    state::{Item, Key, Outcome, Span, Write},
};
use serde_json::json;
use testkit::{CountedObjects, CountedState, MemoryRefreshes, MemoryState};
use tests::{addresses::Addresses, rows::chain, site::Site, world::Lab};

use crate::{bugs::merged, plain::test, upkeep::Asked};

/// Longest a refresh may take, as in a deployment.
const PATIENCE: Duration = Duration::from_secs(900);
/// Webhooks that a function is handed at once when they were buffered.
const BATCH: u64 = 10;
/// Most requests from a look that finds a model behind to one that finds it is not.
const REFRESH_MAX: u64 = 12;

pub(super) fn trials() -> Vec<Trial> {
    let run = || {
        // On one thread all requests of a batch are there before the first is committed, and share its commit.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(all())
    };
    vec![test("requests::functions_ask_what_the_prices_say", run)]
}

/// A queue that counts what is sent.
#[derive(Debug)]
struct Counted<Q> {
    inner: Q,
    sends: AtomicU64,
}

impl<Q> Counted<Q> {
    fn new(inner: Q) -> Self {
        Self {
            inner,
            sends: AtomicU64::new(0),
        }
    }

    fn take(&self) -> u64 {
        self.sends.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl Queue for Counted<Arc<dyn Queue>> {
    async fn send(&self, announcements: &[Announcement]) -> ports::Result<()> {
        self.sends.fetch_add(1, Ordering::Relaxed);
        self.inner.send(announcements).await
    }

    async fn receive(&self) -> ports::Result<Vec<Announcement>> {
        self.inner.receive().await
    }
}

#[async_trait]
impl Refreshes for Counted<MemoryRefreshes> {
    async fn send(&self, orders: &[Order]) -> ports::Result<()> {
        self.sends.fetch_add(1, Ordering::Relaxed);
        self.inner.send(orders).await
    }
}

/// Requests by kind, as `infra/requests.json` names them.
type Counts = BTreeMap<&'static str, u64>;

fn requests(counts: &Counts) -> u64 {
    let no_request = ["state_keys_read", "state_items_written"];
    let requests = counts.iter().filter(|(kind, _)| !no_request.contains(kind));
    requests.map(|(_, count)| count).sum()
}

struct Deployed {
    site: Site,
    state: Arc<CountedState>,
    objects: Arc<CountedObjects>,
    queue: Arc<Counted<Arc<dyn Queue>>>,
    refreshes: Counted<MemoryRefreshes>,
    asked: Arc<Asked>,
}

/// A state store whose large values are objects, as those of a deployment are: there is something to look for.
#[derive(Debug)]
struct Shedding(Arc<CountedState>);

#[async_trait]
impl State for Shedding {
    async fn get_many(&self, keys: &[Key]) -> ports::Result<Vec<Option<Item>>> {
        self.0.get_many(keys).await
    }

    async fn query(&self, span: &Span) -> ports::Result<Vec<Item>> {
        self.0.query(span).await
    }

    async fn transact(&self, writes: Vec<Write>) -> ports::Result<Outcome> {
        self.0.transact(writes).await
    }

    fn sheds(&self) -> bool {
        true
    }
}

impl Deployed {
    fn new() -> Result<Self> {
        let state = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
        let memory = Arc::new(object_store::memory::InMemory::new());
        let objects = Arc::new(CountedObjects::new(memory));
        let query = "SELECT payload->>'id' AS id, _seq FROM landing.x";
        let models = [merged("silver.x", "id", query)];
        let live = LiveSettings {
            min_interval: Duration::ZERO,
            ..LiveSettings::default()
        };
        let (at, files) = (Arc::new(Shedding(state.clone())), objects.clone());
        let mut lab = Lab::on(at, files, "memory:///", None, &models, live)?;
        let store = Addresses::of(lab.objects.clone(), lab.clock.clone());
        lab.world.entries = Arc::new(lake::EntryLake::new(lab.objects.clone()).signed_by(store));
        let asked = Arc::new(Asked::default());
        lab.world.jobs = Some(asked.clone());
        let queue = Arc::new(Counted::new(lab.world.queue.clone()));
        lab.world.queue = queue.clone();
        Ok(Self {
            site: Site::new(lab, "")?,
            state,
            objects,
            queue,
            refreshes: Counted::new(MemoryRefreshes::new()),
            asked,
        })
    }

    /// What has been asked since the last call.
    fn take(&self) -> Counts {
        let (state, objects) = (self.state.take(), self.objects.take());
        let counts = [
            ("state_gets", state.gets),
            ("state_keys_read", state.keys),
            ("state_queries", state.queries),
            ("state_transactions", state.transacts),
            ("state_items_written", state.writes),
            ("object_puts", objects.puts),
            ("object_gets", objects.gets + objects.heads),
            ("object_lists", objects.lists),
            ("object_deletes", objects.deletes),
            ("sends", self.queue.take() + self.refreshes.take()),
            ("upkeep_sends", self.asked.sends()),
        ];
        counts.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    async fn events(&self, ids: std::ops::Range<u64>) -> Result<()> {
        let event = |id| self.site.event("x", json!({ "id": id }).to_string());
        try_join_all(ids.map(event)).await.map(drop)
    }

    /// Events as the buffer hands them over: together, each under the id of its message.
    async fn buffered(&self, ids: std::ops::Range<u64>) -> Result<()> {
        let event = async |id: u64| {
            let message = format!("sqs-{id}");
            let headers = [
                ("content-type", "application/json"),
                ("idempotency-key", message.as_str()),
            ];
            let body = json!({ "id": id }).to_string();
            let answer = self
                .site
                .send("POST", "/api/ingest/webhook/x", &headers, body);
            let answer = answer.await?;
            ensure!(answer.status == 202, "{}", answer.text());
            anyhow::Ok(())
        };
        try_join_all(ids.map(event)).await.map(drop)
    }

    async fn step(&self) -> Result<cycle::Step> {
        let step = cycle::step(&self.site.lab.world, &self.refreshes, PATIENCE).await;
        step.map_err(|error| chain(&error))
    }

    /// What `sweep` does once a minute, and `refresh` when that asks for upkeep.
    async fn tick(&self) -> Result<()> {
        let world = &self.site.lab.world;
        let (step, asked) = upkeep::tick(world, &self.refreshes, PATIENCE).await;
        step.map_err(|error| chain(&error))?;
        if !asked.map_err(|error| chain(&error))? {
            return Ok(());
        }
        let job = self.asked.take().context("no job was sent")?;
        let registry = Registry::new(world.clone(), domain::EntrySettings::default());
        let done = upkeep::carry_out(&registry, &job, PATIENCE).await;
        let done = done.map_err(|error| chain(&error))?;
        let done = done.context("the job was over")?;
        let errors = done.round.map(|round| round.errors).unwrap_or_default();
        ensure!(
            errors.is_empty() && done.left.is_empty(),
            "{errors:?} {:?}",
            done.left
        );
        Ok(())
    }

    /// A step, and the refresh that it sends: `coalesce` and `refresh` once each.
    async fn refresh(&self) -> Result<()> {
        self.step().await?;
        let order = self.refreshes.inner.take().context("nothing was sent")?;
        let world = &self.site.lab.world;
        let carried = cycle::carry_out(world, &self.refreshes, &order, PATIENCE).await;
        let (how, next) = carried.map_err(|error| chain(&error))?;
        ensure!(matches!(how, Refreshed::Built { .. }), "{how:?}");
        ensure!(matches!(next, cycle::Step::Idle(_)), "{next:?}");
        Ok(())
    }
}

/// Counts everything, in an order in which each finds what it needs as a function finds it that has been used before.
async fn count() -> Result<BTreeMap<&'static str, Counts>> {
    let mut counted = BTreeMap::new();
    let deployed = Deployed::new()?;
    deployed.events(1..2).await?;
    deployed.refresh().await?;
    deployed.events(2..3).await?;
    deployed.refresh().await?;
    deployed.take();

    deployed.events(3..4).await?;
    counted.insert("webhook", deployed.take());
    deployed.refresh().await?;
    counted.insert("refresh", deployed.take());
    deployed.step().await?;
    counted.insert("idle_step", deployed.take());

    let large = json!({ "id": 4, "text": "x".repeat(1 << 20) }).to_string();
    deployed.site.event("x", large).await?;
    counted.insert("large_webhook", deployed.take());
    deployed.refresh().await?;
    deployed.take();

    deployed.buffered(5..5 + BATCH).await?;
    counted.insert("batch", deployed.take());
    deployed.refresh().await?;
    deployed.take();

    // What came in is tidied up, snapshots that are an hour old last, and then nothing happens any more.
    for minute in 0..300 {
        if minute == 240 {
            deployed.take();
        }
        deployed.site.lab.clock.advance(Duration::from_secs(60));
        deployed.tick().await?;
    }
    counted.insert("idle_hour", deployed.take());
    Ok(counted)
}

async fn all() -> Result<()> {
    let counted = count().await?;
    let of = |operation: &str, kind: &str| counted[operation].get(kind).copied().unwrap_or(0);
    for webhook in ["webhook", "large_webhook", "batch"] {
        let one = |kind| of(webhook, kind) == 1;
        ensure!(
            one("state_transactions") && one("sends"),
            "{webhook}: {counted:?}"
        );
        ensure!(of(webhook, "state_gets") + of(webhook, "state_queries") <= 1);
    }
    ensure!(of("webhook", "object_puts") == 0 && of("large_webhook", "object_puts") == 1);
    ensure!(requests(&counted["idle_hour"]) <= 200, "{counted:?}");
    // `coalesce` looks, sends the order and opens the cycle with it; `refresh` reads the cycle and what it decides from, then
    // the rows of what is new, puts four files (data, manifest, list, metadata: no commit of a table has fewer), commits,
    // looks, and closes the cycle.
    ensure!(requests(&counted["refresh"]) <= REFRESH_MAX, "{counted:?}");

    let path = tests::root().join("infra/requests.json");
    let text = std::fs::read_to_string(&path).context("infra/requests.json")?;
    let written: serde_json::Value = serde_json::from_str(&text)?;
    let found = json!({ "batch_size": BATCH, "operations": counted });
    let pretty = serde_json::to_string_pretty(&found)?;
    ensure!(
        written == found,
        "infra/requests.json is not what is counted:\n{pretty}"
    );
    Ok(())
}
