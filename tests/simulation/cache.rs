//! Entries under the scheduler: callers that look up, build and die at it, sweeps, reconciles and evictions at once. After each
//! transaction every ready row has its data (**E-2**) and was committed under its lease (**E-3**); whoever is served is served
//! what was built for this very call (**E-1**).

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
    entry::{EntryId, Mode, Spec},
    fingerprint::Call,
};
use engine::entries::{Ask, Claim, Claimed, Commit, Entry, Granted, Registry};
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
/// How long a builder may take.
const LEASE: Duration = Duration::from_secs(4);

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

fn registry(process: &Process) -> Registry {
    Registry::new(process.world.clone(), settings())
}

fn ids() -> Result<Vec<EntryId>, String> {
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
    while let Some(ended) = people.join_next().await {
        ended.map_err(|error| error.to_string())?;
    }
    sim.scheduler.set_rates(Rates::default());
    settled(sim, &ids).await
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
        let _ = call(&process, id).await;
    }
}

fn claim(strict: bool) -> Claim {
    Claim {
        ask: Ask::default(),
        spec: Spec {
            key: String::from("simulated"),
            mode: if strict { Mode::Strict } else { Mode::Swr },
            ttl_ms: Some(3_000),
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

/// What is served is what was built for this call, by whoever had this generation's lease.
async fn served(process: &Process, registry: &Registry, entry: &Entry) -> Result<(), String> {
    let Some(rows) = registry.rows(entry).await.map_err(|error| error.chain())? else {
        return Ok(());
    };
    let batches: Vec<RecordBatch> = rows
        .stream
        .try_collect()
        .await
        .map_err(|error| error.chain())?;
    let found: Vec<(String, String)> = batches
        .iter()
        .flat_map(|batch| {
            let text = |name: &str, at: usize| {
                let column = batch
                    .column_by_name(name)
                    .and_then(|column| column.as_string_opt::<i32>());
                column
                    .map(|column| column.value(at).to_owned())
                    .unwrap_or_default()
            };
            (0..batch.num_rows()).map(move |at| (text("id", at), text("token", at)))
        })
        .collect();
    let wanted = vec![(entry.id.to_string(), entry.content.generation.clone())];
    if found != wanted {
        process
            .sim
            .scheduler
            .fail(format!("E-1: served {found:?}, asked for {wanted:?}"));
    }
    Ok(())
}

fn rows(id: &EntryId, token: &str) -> Result<Rows, String> {
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

/// Nothing goes wrong any more: every entry can be had, and what is stored is what rows name.
async fn settled(sim: &Arc<Sim>, ids: &[EntryId]) -> Result<(), String> {
    let process = sim.start("last", false);
    let registry = registry(&process);
    for id in ids {
        let mut had = false;
        for _ in 0..8 {
            match registry
                .claim(id, &claim(true))
                .await
                .map_err(|error| error.chain())?
            {
                Claimed::Hit(entry) => {
                    served(&process, &registry, &entry).await?;
                    had = true;
                    break;
                }
                Claimed::Build(granted) | Claimed::Stale(_, Some(granted)) => {
                    let rows = rows(id, &granted.token)?;
                    registry
                        .store(id, &granted.token, rows)
                        .await
                        .map_err(|error| error.to_string())?;
                    let commit = registry.commit(id, &granted.token, Commit::default()).await;
                    commit.map_err(|error| error.to_string())?;
                }
                Claimed::Stale(_, None) | Claimed::Wait { .. } => sim.rest(LEASE).await,
            }
        }
        if !had {
            return Err(format!("nobody can have or build {id} any more"));
        }
    }
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
