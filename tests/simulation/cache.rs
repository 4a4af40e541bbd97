//! Entries under the scheduler: callers that look up, build, search and die at it, functions that build indexes, sweeps,
//! reconciles and evictions at once. After each transaction every ready row has its data, every index that answers its file
//! (**E-2**), and each was committed by who may (**E-3**); whoever is served, or finds something, is given what was built for
//! this very call (**E-1**), and of the generation that is read.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use domain::{
    Duration, EntrySettings,
    entry::{EntryId, IndexSpec, Mode, Spec},
    fingerprint::Call,
};
use engine::entries::{
    Ask, Carried, Claim, Claimed, Commit, Entry, Granted, Refused, Registry, Sought, Wanted,
};
use futures::{StreamExt, TryStreamExt, stream};
use ports::{Entries as _, tables::Rows};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::task::JoinSet;

use crate::{
    broken::Broken,
    plan::Plan,
    run::{Verdict, play_history},
    scheduler::Rates,
    sim::{Process, Sim},
};

/// Entries of a history.
const ENTRIES: usize = 3;
/// When every lease and grace time is over, whoever gave it and however wrong its clock was.
const LONG_AFTER: Duration = Duration::from_secs(120);
/// How long a function may run.
const RUNS: Duration = Duration::from_secs(30);
/// How long a builder may take.
pub(crate) const LEASE: Duration = Duration::from_secs(4);

/// Runs a seed.
///
/// # Errors
/// When the simulation itself cannot be set up.
pub(crate) fn run(seed: u64, broken: Option<Broken>) -> anyhow::Result<Verdict> {
    let plan = Plan::draw(seed, broken);
    play_history(plan, "one_seed_of_entries", |sim| async move {
        history(&sim).await
    })
}

fn settings() -> EntrySettings {
    EntrySettings {
        lease: LEASE,
        wait_max: Duration::from_secs(1),
        grace: Duration::from_secs(2),
        stale_max: Duration::from_secs(6),
        ..EntrySettings::default()
    }
}

pub(crate) fn registry(process: &Process) -> Registry {
    Registry::new(process.world.clone(), settings())
}

pub(crate) fn ids() -> Result<Vec<EntryId>, String> {
    let each = (0..ENTRIES).map(|n| {
        let call = Call::new("simulated", 0).with(i64::try_from(n).unwrap_or(0));
        let print = call.fingerprint().map_err(|error| error.to_string())?;
        EntryId::new(print, (n == 2).then_some("tenant")).map_err(|error| error.to_string())
    });
    each.collect()
}

async fn history(sim: &Arc<Sim>) -> Result<(), String> {
    let mut dice = StdRng::seed_from_u64(sim.plan.seed);
    let ids = Arc::new(ids()?);
    let mut people = JoinSet::new();
    for caller in 0..dice.random_range(2..5) {
        let (left, ids) = (
            Arc::new(AtomicUsize::new(dice.random_range(3..12))),
            ids.clone(),
        );
        people.spawn(
            sim.clone()
                .keep(format!("caller-{caller}"), true, move |process| {
                    calls(process, ids.clone(), left.clone())
                }),
        );
    }
    for keeper in 0..dice.random_range(1..3) {
        let (left, ids) = (
            Arc::new(AtomicUsize::new(dice.random_range(2..8))),
            ids.clone(),
        );
        people.spawn(
            sim.clone()
                .keep(format!("keeper-{keeper}"), true, move |process| {
                    keeps(process, ids.clone(), left.clone())
                }),
        );
    }
    let _functions = functions(sim, 2);
    while let Some(ended) = people.join_next().await {
        ended.map_err(|error| error.to_string())?;
    }
    sim.scheduler.set_rates(Rates::default());
    settled(sim, &ids).await
}

/// Functions that build indexes, until what is given back is dropped. Where no jobs are sent they get none.
pub(crate) fn functions(sim: &Arc<Sim>, count: usize) -> JoinSet<()> {
    let mut functions = JoinSet::new();
    for number in 0..count {
        let name = format!("indexer-{number}");
        functions.spawn(sim.clone().keep(name, true, builds));
    }
    functions
}

/// A function that builds indexes.
async fn builds(process: Process) {
    let registry = registry(&process);
    loop {
        let held = process.sim.jobs.receive(&process.gate, 1).await;
        let mut all = true;
        for job in held.bodies() {
            let carried = registry.carry_out_job(&job, RUNS).await;
            all &= matches!(carried, Ok(Carried::Done | Carried::Over));
        }
        if all {
            held.done();
        }
    }
}

/// A caller: looks up, serves itself, builds when it is the one.
async fn calls(process: Process, ids: Arc<Vec<EntryId>>, left: Arc<AtomicUsize>) {
    while left.load(Relaxed) > 0 {
        process.sim.nap(Duration::from_secs(3)).await;
        left.fetch_sub(1, Relaxed);
        let id = &ids[process
            .sim
            .scheduler
            .draw(|dice| dice.random_range(0..ids.len()))];
        // What the world does not let it do, it does without.
        let _ = match process.sim.scheduler.chance(0.3) {
            true => search(&process, &registry(&process), id).await.map(drop),
            false => call(&process, id).await,
        };
    }
}

pub(crate) fn claim(strict: bool) -> Claim {
    Claim {
        ask: Ask::default(),
        spec: Spec {
            key: String::from("simulated"),
            mode: if strict { Mode::Strict } else { Mode::Swr },
            ttl_ms: Some(3_000),
            indexes: vec![searched()],
            ..Spec::default()
        },
        holder: String::from("caller"),
        lease: None,
        wait: Duration::from_millis(500),
    }
}

async fn call(process: &Process, id: &EntryId) -> Result<(), String> {
    let (registry, sim) = (registry(process), &process.sim);
    let asked = claim(sim.scheduler.chance(0.5));
    match registry
        .claim(id, &asked)
        .await
        .map_err(|error| error.chain())?
    {
        Claimed::Hit(entry) => served(process, &registry, &entry).await,
        Claimed::Stale(entry, granted) => {
            served(process, &registry, &entry).await?;
            match granted {
                Some(granted) => build(process, &registry, id, granted).await,
                None => Ok(()),
            }
        }
        Claimed::Build(granted) => build(process, &registry, id, granted).await,
        Claimed::Wait { .. } => Ok(()),
    }
}

/// What entries are searched by.
fn searched() -> IndexSpec {
    IndexSpec::Text {
        columns: vec![String::from("id")],
    }
}

/// Searches an entry; whether it was let to. What is found is of the generation that is read.
pub(crate) async fn search(
    process: &Process,
    registry: &Registry,
    id: &EntryId,
) -> Result<bool, String> {
    let sought = Sought::Words {
        query: id.to_string(),
        columns: Vec::new(),
    };
    let wanted = Wanted {
        filter: None,
        limit: 10,
        offset: 0,
        select: Some(vec![String::from("id"), String::from("token")]),
        wait: Duration::from_millis(500),
        time: Duration::from_secs(10),
    };
    match registry.search(id, &sought, &wanted).await {
        Ok(over) => {
            let entry = &over.entry;
            let wanted = (entry.id.to_string(), entry.content.generation.clone());
            let found = texts(over.rows).await?;
            if found != [wanted.clone()] {
                process
                    .sim
                    .scheduler
                    .fail(format!("E-1: found {found:?}, searched {wanted:?}"));
            }
            Ok(true)
        }
        Err(Refused::IndexFailed(_)) => {
            let again = registry.index(id, &[searched()]).await;
            again.map(|_| false).map_err(|error| error.to_string())
        }
        Err(Refused::Port(error)) => Err(error.chain()),
        Err(_) => Ok(false),
    }
}

/// The rows as `(id, token)`.
async fn texts(rows: Rows) -> Result<Vec<(String, String)>, String> {
    let batches: Vec<RecordBatch> = rows
        .stream
        .try_collect()
        .await
        .map_err(|error| error.chain())?;
    let texts = batches.iter().flat_map(|batch| {
        let text = |name: &str, at: usize| {
            let column = batch
                .column_by_name(name)
                .and_then(|column| column.as_string_opt::<i32>());
            column
                .map(|column| column.value(at).to_owned())
                .unwrap_or_default()
        };
        (0..batch.num_rows()).map(move |at| (text("id", at), text("token", at)))
    });
    Ok(texts.collect())
}

/// What is served is what was built for this call, by whoever had this generation's lease.
pub(crate) async fn served(
    process: &Process,
    registry: &Registry,
    entry: &Entry,
) -> Result<(), String> {
    let Some(rows) = registry.rows(entry).await.map_err(|error| error.chain())? else {
        return Ok(());
    };
    let found = texts(rows).await?;
    let wanted = vec![(entry.id.to_string(), entry.content.generation.clone())];
    if found != wanted {
        process
            .sim
            .scheduler
            .fail(format!("E-1: served {found:?}, asked for {wanted:?}"));
    }
    Ok(())
}

pub(crate) fn rows(id: &EntryId, token: &str) -> Result<Rows, String> {
    let field = |name: &str| Field::new(name, DataType::Utf8, false);
    let schema = Arc::new(Schema::new(vec![field("id"), field("token")]));
    let column = |text: String| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    let columns = vec![column(id.to_string()), column(token.to_owned())];
    let batch = RecordBatch::try_new(schema.clone(), columns).map_err(|error| error.to_string())?;
    Ok(Rows {
        schema,
        stream: stream::iter([Ok(batch)]).boxed(),
    })
}

async fn build(
    process: &Process,
    registry: &Registry,
    id: &EntryId,
    granted: Granted,
) -> Result<(), String> {
    let sim = &process.sim;
    // Some take longer than they may.
    sim.nap(LEASE * 3 / 2).await;
    if sim.scheduler.chance(0.1) {
        return registry
            .abort(id, &granted.token)
            .await
            .map_err(|error| error.to_string());
    }
    let stored = registry
        .store(id, &granted.token, rows(id, &granted.token)?)
        .await;
    stored.map_err(|error| error.to_string())?;
    let inline_max = sim.scheduler.chance(0.5).then_some(0);
    for _ in 0..3 {
        match registry
            .commit(id, &granted.token, Commit { inline_max })
            .await
        {
            Ok(_) => return Ok(()),
            // It may have happened, and not been heard of.
            Err(error) if error.to_string().contains("no answer") => {
                sim.nap(Duration::from_secs(1)).await
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Whoever keeps order: sweeps, reconciles, evictions, refreshes.
async fn keeps(process: Process, ids: Arc<Vec<EntryId>>, left: Arc<AtomicUsize>) {
    while left.load(Relaxed) > 0 {
        process.sim.nap(Duration::from_secs(5)).await;
        left.fetch_sub(1, Relaxed);
        let registry = registry(&process);
        let (what, which) = process
            .sim
            .scheduler
            .draw(|dice| (dice.random_range(0..5), dice.random_range(0..ids.len())));
        // What fails is done by the next.
        match what {
            0 => drop(registry.evict(&ids[which]).await),
            1 | 2 => drop(registry.reconcile().await),
            3 => drop(registry.refresh(&ids[which], Duration::from_secs(1)).await),
            _ => drop(registry.sweep().await),
        }
    }
}

/// An entry can be had, built if need be, and searched.
pub(crate) async fn had(
    process: &Process,
    registry: &Registry,
    id: &EntryId,
) -> Result<(), String> {
    for _ in 0..16 {
        match registry
            .claim(id, &claim(true))
            .await
            .map_err(|error| error.chain())?
        {
            Claimed::Hit(entry) => {
                served(process, registry, &entry).await?;
                // It may be gone before its index is there, when that was left by one that died: then it is built once more.
                for _ in 0..12 {
                    if search(process, registry, id).await? {
                        return Ok(());
                    }
                    process.sim.rest(LEASE / 4).await;
                }
            }
            Claimed::Build(granted) | Claimed::Stale(_, Some(granted)) => {
                stored(registry, id, &granted.token).await?;
            }
            Claimed::Stale(_, None) | Claimed::Wait { .. } => process.sim.rest(LEASE).await,
        }
    }
    Err(format!("nobody can have, build or search {id} any more"))
}

/// Stores and commits what belongs to an entry.
pub(crate) async fn stored(registry: &Registry, id: &EntryId, token: &str) -> Result<(), String> {
    let stored = registry.store(id, token, rows(id, token)?).await;
    stored.map_err(|error| error.to_string())?;
    let commit = Commit {
        inline_max: Some(0),
    };
    let committed = registry.commit(id, token, commit).await;
    committed.map(drop).map_err(|error| error.to_string())
}

/// Once nobody works any more, and reconcile has run, what is stored is what is named.
pub(crate) async fn named(sim: &Arc<Sim>, registry: &Registry) -> Result<(), String> {
    // Builders that were left behind see that nobody wants what they made.
    sim.rest(LEASE * 4).await;
    let reconciled = registry.reconcile().await;
    reconciled.map_err(|error| error.chain())?;
    let _hold = sim.scheduler.hold();
    let folder = object_store::path::Path::from("entries");
    let listed = sim.bottom.objects.list(Some(&folder));
    let found: Vec<_> = listed
        .try_collect()
        .await
        .map_err(|error| error.to_string())?;
    let found = found.into_iter().map(|meta| meta.location.to_string());
    let mut found: Vec<String> = found.collect();
    found.sort();
    // What waits for its grace time to be over, and what a lease says is being built, nobody takes for garbage.
    let mut kept = sim.bottom.superseded().await?;
    let book = sim.bottom.book();
    kept.extend(book.shelf.leased());
    found.retain(|path| !kept.iter().any(|generation| path.contains(generation)));
    let named = book.shelf.named();
    match found == named {
        true => Ok(()),
        false => Err(format!("E-2: stored are {found:?}, named {named:?}")),
    }
}

/// Nothing goes wrong any more: every entry can be had and searched, and what is stored is what rows name.
async fn settled(sim: &Arc<Sim>, ids: &[EntryId]) -> Result<(), String> {
    let process = sim.start("last", false);
    let registry = registry(&process);
    for id in ids {
        had(&process, &registry, id).await?;
    }
    named(sim, &registry).await?;
    // Long after, with all leases and grace times over.
    sim.scheduler.clock.advance(LONG_AFTER);
    let swept = registry.sweep().await.map_err(|error| error.chain())?;
    if let Some(error) = swept.errors.first() {
        return Err(format!("a sweep without faults failed: {error}"));
    }
    registry.reconcile().await.map_err(|error| error.chain())?;
    let _hold = sim.scheduler.hold();
    // Past the gate, which nothing goes through while it is held.
    let stored = lake::EntryLake::new(sim.bottom.objects.clone());
    let found = stored.list().await.map_err(|error| error.chain())?;
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let book = sim.bottom.book();
    let mut named = Vec::new();
    for (id, generation) in &book.shelf.rows {
        match generation {
            Some(generation) => named.push(format!("{id}/{generation}")),
            None => return Err(format!("E-2: a row of {id} is left that nobody builds")),
        }
    }
    named.sort();
    match found == named {
        true => Ok(()),
        false => Err(format!("E-2: stored are {found:?}, named {named:?}")),
    }
}
