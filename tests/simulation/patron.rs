//! The Rust client under the scheduler: its look-ups, builds and stores behind go through the routes of a server that dies
//! and is started again, over a way on which requests and answers get lost. Whoever calls is served, and served what its
//! call is (**E-1**), whatever becomes of server, client and store; what is stored meanwhile keeps **E-2** and **E-3**.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use arrow::{
    array::{AsArray, Int64Array, RecordBatch},
    datatypes::{DataType, Field, Int64Type, Schema},
};
use async_trait::async_trait;
use axum::Router;
use client::{
    Body, BoxError, Call, Client, Identity, MaterializedFrame, Mode, Served, Settings, Spec,
    Transport, Ttl, full,
};
use domain::Duration;
use engine::runner::Runner;
use http_body_util::BodyExt;
use hyper::{Request, Response};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::{
    broken::Broken,
    cache::{LEASE, functions, named, registry},
    gate::Gate,
    plan::{self, Plan},
    run::{Verdict, play_history},
    scheduler::{self, Rates},
    sim::{Process, Sim},
};

/// Calls that differ.
const CALLS: i64 = 3;
/// What the server is told.
const YAML: &str = "materialize:\n  lease: 4s\n  wait_max: 1s\n  grace: 2s\n  stale_max: 6s\n";
/// Longer than any history: the time limits of a client are of the real world's clock.
const LONG: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Runs a seed.
///
/// # Errors
/// When the simulation itself cannot be set up.
pub(crate) fn run(seed: u64, broken: Option<Broken>) -> anyhow::Result<Verdict> {
    let plan = Plan::draw(seed, broken);
    play_history(plan, "one_seed_of_clients", |sim| async move {
        history(&sim).await
    })
}

/// Where the routes of the server are found while it lives.
#[derive(Debug, Default)]
struct Counter(Mutex<Option<(Gate, Router)>>);

impl Counter {
    fn open(&self, open: (Gate, Router)) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
    }

    fn routes(&self) -> Result<(Gate, Router), BoxError> {
        let open = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        open.filter(|(gate, _)| !gate.life.is_dead())
            .ok_or_else(|| "connection refused".into())
    }
}

/// The server, until it dies.
async fn serves(process: Process, counter: Arc<Counter>, settings: Arc<settings::Settings>) {
    let world = process.world.clone();
    let router = web::router(web::App {
        runner: Runner::new(world.clone()),
        driven: process.sim.plan.mode == plan::Mode::Functions,
        world,
        settings,
    });
    counter.open((process.gate.clone(), router));
    std::future::pending().await
}

/// A client's way to the server.
#[derive(Debug)]
struct Wire {
    counter: Arc<Counter>,
    gate: Gate,
    /// Whether answers are of other entries, and the paths that were asked for.
    crossed: Option<Mutex<Vec<String>>>,
}

impl Wire {
    async fn carry(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (server, router) = self.counter.routes()?;
        let answered = async {
            let answer = router.oneshot(request.map(axum::body::Body::new)).await?;
            let (parts, body) = answer.into_parts();
            let bytes = body.collect().await?.to_bytes();
            Ok::<_, BoxError>(Response::from_parts(parts, full(bytes)))
        };
        let answered = server.life.until_death(answered).await;
        answered.unwrap_or_else(|| Err("connection reset".into()))
    }

    /// Another path of the same kind, when answers are crossed.
    fn crossed(&self, path: &str) -> Option<String> {
        let asked = self.crossed.as_ref()?;
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let last = path.rsplit('/').next()?;
        let other = asked.iter().find(|other| {
            other.as_str() != path && other.rsplit('/').next() == Some(last) && last == "lease"
        });
        let other = other.cloned();
        asked.push(path.to_owned());
        other.filter(|_| self.gate.scheduler.chance(0.2))
    }
}

#[async_trait]
impl Transport for Wire {
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if let Some(other) = self.crossed(request.uri().path()) {
            *request.uri_mut() = other.parse()?;
        }
        let last = request.uri().path().rsplit('/').next().unwrap_or_default();
        let subject = format!("{} {}", request.method(), &last[..last.len().min(12)]);
        let call = scheduler::Call::Request;
        let work = self.carry(request);
        self.gate
            .call(call, subject, || BoxError::from("no answer"), work)
            .await
    }
}

/// A client in a process, and the source its function reads.
#[derive(Clone)]
struct Patron {
    process: Process,
    client: Client,
    computed: Arc<AtomicUsize>,
}

impl Patron {
    fn new(process: Process, counter: &Arc<Counter>, computed: &Arc<AtomicUsize>) -> Self {
        let is_crossed = process.sim.plan.broken == Some(Broken::Crossed);
        let wire = Wire {
            counter: counter.clone(),
            gate: process.gate.clone(),
            crossed: is_crossed.then(Mutex::default),
        };
        let settings = Settings {
            timeout: LONG,
            patience: LONG,
            wait: std::time::Duration::from_millis(500),
            // It asks again at once: a rest would be of the real world's clock.
            rest: std::time::Duration::ZERO,
            ..Settings::default()
        };
        Self {
            client: Client::new(Arc::new(wire), settings),
            process,
            computed: computed.clone(),
        }
    }

    fn call(&self, number: i64, mode: Mode) -> Result<Call, String> {
        let identity = Identity::new("simulated::report", 1)
            .argument("number", &number)
            .map_err(|error| error.to_string())?;
        let spec = Spec {
            key: String::from("simulated"),
            ttl: Ttl::For(std::time::Duration::from_secs(3)),
            mode: Some(mode),
            ..Spec::default()
        };
        let (sim, computed) = (self.process.sim.clone(), self.computed.clone());
        Ok(Call::new(identity, spec, move || {
            let (sim, computed) = (sim.clone(), computed.clone());
            async move {
                let build = computed.fetch_add(1, Relaxed);
                // Some take longer than they may.
                sim.nap(LEASE * 3 / 2).await;
                rows(number, i64::try_from(build).unwrap_or(0))
            }
        }))
    }

    /// Calls, and looks at what it is served.
    async fn asks(&self, number: i64, mode: Mode) -> Result<Served, String> {
        let call = self.call(number, mode)?;
        match self.client.get(call).await {
            Ok(frame) => {
                let served = frame.served();
                self.looks(number, &frame).await.map(|()| served)
            }
            Err(error) => Err(format!("a caller is not served: {}", error.chain())),
        }
    }

    async fn looks(&self, number: i64, frame: &MaterializedFrame) -> Result<(), String> {
        let batches = frame.arrow().await.map_err(|error| error.chain())?;
        let numbers: Vec<i64> = batches
            .batches
            .iter()
            .filter_map(|batch| batch.column(0).as_primitive_opt::<Int64Type>())
            .flat_map(|column| column.values().iter().copied())
            .collect();
        match numbers == [number, number] {
            true => Ok(()),
            false => Err(format!("E-1: served {numbers:?} for {number}")),
        }
    }
}

fn rows(number: i64, build: i64) -> Result<RecordBatch, std::io::Error> {
    let field = |name: &str| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field("number"), field("build")]));
    let column = |value: i64| Arc::new(Int64Array::from(vec![value, value])) as _;
    RecordBatch::try_new(schema, vec![column(number), column(build)]).map_err(std::io::Error::other)
}

async fn history(sim: &Arc<Sim>) -> Result<(), String> {
    let mut dice = StdRng::seed_from_u64(sim.plan.seed);
    let settings = settings::Settings::parse("project".as_ref(), YAML, &BTreeMap::new());
    let settings = Arc::new(settings.map_err(|all| format!("settings: {all:?}"))?);
    let (counter, computed) = (Arc::<Counter>::default(), Arc::<AtomicUsize>::default());
    let mut standing = functions(sim, 1);
    let at = counter.clone();
    standing.spawn(
        sim.clone()
            .keep(String::from("server"), true, move |process| {
                serves(process, at.clone(), settings.clone())
            }),
    );
    let mut people = JoinSet::new();
    for number in 0..dice.random_range(1..4) {
        let left = Arc::new(AtomicUsize::new(dice.random_range(3..10)));
        let (counter, computed) = (counter.clone(), computed.clone());
        people.spawn(
            sim.clone()
                .keep(format!("client-{number}"), true, move |process| {
                    let patron = Patron::new(process, &counter, &computed);
                    comes(patron, left.clone())
                }),
        );
    }
    let left = Arc::new(AtomicUsize::new(dice.random_range(0..6)));
    people.spawn(
        sim.clone()
            .keep(String::from("keeper"), true, move |process| {
                keeps(process, left.clone())
            }),
    );
    while let Some(ended) = people.join_next().await {
        ended.map_err(|error| error.to_string())?;
    }
    sim.scheduler.set_rates(Rates::default());
    settled(sim, &counter, &computed).await
}

/// Whoever sweeps and reconciles beside them.
async fn keeps(process: Process, left: Arc<AtomicUsize>) {
    let registry = registry(&process);
    while left.load(Relaxed) > 0 {
        process.sim.nap(Duration::from_secs(5)).await;
        left.fetch_sub(1, Relaxed);
        // What fails is done by the next.
        match process.sim.scheduler.chance(0.5) {
            true => drop(registry.reconcile().await),
            false => drop(registry.sweep().await),
        }
    }
}

/// A process with a client: several of it call at once.
async fn comes(patron: Patron, left: Arc<AtomicUsize>) {
    let sim = patron.process.sim.clone();
    while left.load(Relaxed) > 0 {
        sim.nap(Duration::from_secs(3)).await;
        left.fetch_sub(1, Relaxed);
        let callers = sim.scheduler.draw(|dice| dice.random_range(1..4));
        let each = (0..callers).map(|_| {
            let number = sim.scheduler.draw(|dice| dice.random_range(0..CALLS));
            let mode = match sim.scheduler.chance(0.5) {
                true => Mode::Strict,
                false => Mode::Swr,
            };
            patron.asks(number, mode)
        });
        for served in futures::future::join_all(each).await {
            if let Err(why) = served {
                sim.scheduler.fail(why);
            }
        }
    }
    patron.client.flush().await;
}

/// Nothing goes wrong any more: what one stores, another is served.
async fn settled(
    sim: &Arc<Sim>,
    counter: &Arc<Counter>,
    computed: &Arc<AtomicUsize>,
) -> Result<(), String> {
    // The server is there again, leases of those who died are over, and clocks agree as far as they will.
    sim.rest(LEASE * 4).await;
    let patron = |name: &str| Patron::new(sim.start(name, false), counter, computed);
    let (first, second) = (patron("first"), patron("second"));
    for number in 0..CALLS {
        let mut served = None;
        for _ in 0..8 {
            first.asks(number, Mode::Strict).await?;
            first.client.flush().await;
            let before = computed.load(Relaxed);
            let found = second.asks(number, Mode::Swr).await?;
            second.client.flush().await;
            if found == Served::Hit && computed.load(Relaxed) == before {
                served = Some(found);
                break;
            }
            sim.rest(LEASE).await;
        }
        if served.is_none() {
            return Err(format!("what is stored of {number} is never a hit"));
        }
    }
    let process = sim.start("last", false);
    named(sim, &registry(&process)).await
}
