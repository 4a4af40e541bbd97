//! Crowds around one entry, and whoever works on it killed at each of its calls: between any two calls of a port.
//!
//! * one build for all who come to an entry that is not there
//! * everybody served at once, and one rebuild, when it is expired
//! * a builder that dies is taken over at its deadline and not before, and commits nothing later (**E-3**)
//! * wherever an eviction, a sweep or the building of an index ends, what is named is there (**E-2**) and can be had

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use anyhow::{Result, bail, ensure};
use domain::{
    Duration, Timestamp,
    entry::{EntryId, Mode as Freshness},
};
use engine::entries::{Carried, Claimed, Granted};
use ports::Clock as _;
use tokio::task::JoinSet;

use crate::{
    broken::Broken,
    cache::{LEASE, claim, functions, had, ids, named, registry, search, served, stored},
    plan::{Mode, still},
    run::play_history,
    scheduler::Doom,
    sim::{Process, Sim},
};

/// Orders in which a crowd is let go.
const SEEDS: u64 = 12;
/// Calls that nobody makes more of.
const CALLS_MAX: u64 = 150;
/// What a build takes.
const BUILD: Duration = Duration::from_secs(1);
/// When what `claim` makes is expired and may still be served.
const EXPIRED: Duration = Duration::from_secs(4);

/// What happens around an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// A hundred come to an entry that is not there.
    Cold,
    /// A thousand come to one that is expired.
    Expired,
}

/// Plays a crowd in several orders.
///
/// # Errors
/// What was not as it should be, and in which order.
pub(crate) fn crowd(crowd: Crowd) -> Result<()> {
    for seed in 0..SEEDS {
        if let Some(failure) = gathered(crowd, seed, None)? {
            bail!("{failure}");
        }
    }
    Ok(())
}

/// A broken build is found out by a crowd.
///
/// # Errors
/// When it is not.
pub(crate) fn caught(gather: Crowd, broken: Broken) -> Result<()> {
    for seed in 0..SEEDS {
        if let Some(failure) = gathered(gather, seed, Some(broken))? {
            println!("caught by {failure}");
            return Ok(());
        }
    }
    bail!("{SEEDS} crowds pass with {}", broken.name())
}

fn gathered(crowd: Crowd, seed: u64, broken: Option<Broken>) -> Result<Option<String>> {
    let mut plan = still(seed, Mode::Embedded);
    plan.broken = broken;
    let verdict = play_history(plan, "crowds", |sim| async move {
        match crowd {
            Crowd::Cold => cold(&sim).await,
            Crowd::Expired => expired(&sim).await,
        }
    })?;
    println!("{crowd:?} {seed}: {} steps", verdict.steps);
    Ok(verdict.failure)
}

fn one() -> Result<EntryId, String> {
    ids()?.into_iter().next().ok_or_else(|| "no entry".into())
}

/// Builds as somebody would who takes a while.
async fn build(process: &Process, id: &EntryId, granted: &Granted) -> Result<(), String> {
    process.sim.rest(BUILD).await;
    stored(&registry(process), id, &granted.token).await
}

async fn cold(sim: &Arc<Sim>) -> Result<(), String> {
    let (id, builds) = (one()?, Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for number in 0..100 {
        let process = sim.start(&format!("caller-{number}"), false);
        let (id, builds) = (id.clone(), builds.clone());
        callers.spawn(async move { comes(&process, &id, &builds).await });
    }
    while let Some(ended) = callers.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    one_build(sim, &builds, 1)
}

/// How often it was built, and committed, in all.
fn one_build(sim: &Sim, builds: &AtomicU64, commits: u64) -> Result<(), String> {
    let (built, committed) = (builds.load(Relaxed), sim.bottom.book().shelf.commits);
    match (built, committed) == (1, commits) {
        true => Ok(()),
        false => Err(format!(
            "{built} builds, {committed} commits: not 1 and {commits}"
        )),
    }
}

async fn comes(process: &Process, id: &EntryId, builds: &AtomicU64) -> Result<(), String> {
    let registry = registry(process);
    for _ in 0..20 {
        match registry
            .claim(id, &claim(true))
            .await
            .map_err(|error| error.chain())?
        {
            Claimed::Hit(entry) => return served(process, &registry, &entry).await,
            Claimed::Build(granted) => {
                builds.fetch_add(1, Relaxed);
                build(process, id, &granted).await?;
            }
            Claimed::Wait { .. } => {}
            Claimed::Stale(..) => return Err(String::from("a strict caller was served stale")),
        }
    }
    Err(String::from("a caller is never served"))
}

async fn expired(sim: &Arc<Sim>) -> Result<(), String> {
    let (id, builds) = (one()?, Arc::new(AtomicU64::new(0)));
    let first = sim.start("first", false);
    comes(&first, &id, &AtomicU64::new(0)).await?;
    sim.rest(EXPIRED).await;
    let mut callers = JoinSet::new();
    for number in 0..1_000 {
        let process = sim.start(&format!("caller-{number}"), false);
        let (id, builds) = (id.clone(), builds.clone());
        callers.spawn(async move { at_once(&process, &id, &builds).await });
    }
    while let Some(ended) = callers.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    one_build(sim, &builds, 2)
}

async fn at_once(process: &Process, id: &EntryId, builds: &AtomicU64) -> Result<(), String> {
    let (registry, clock) = (registry(process), &process.sim.scheduler.clock);
    let came = clock.now();
    // It was built by one who takes nothing stale.
    let mut asked = claim(false);
    asked.ask.mode = Some(Freshness::Swr);
    let claimed = registry
        .claim(id, &asked)
        .await
        .map_err(|error| error.chain())?;
    let (entry, granted) = match claimed {
        Claimed::Hit(entry) => (entry, None),
        Claimed::Stale(entry, granted) => (entry, granted),
        other => return Err(format!("not served at once but {other:?}")),
    };
    served(process, &registry, &entry).await?;
    // Calls take no time here: whoever was kept waiting waited for somebody.
    let waited = clock.now().since(came);
    if waited > Duration::ZERO {
        return Err(format!("kept waiting for {waited:?}"));
    }
    match granted {
        Some(granted) => {
            builds.fetch_add(1, Relaxed);
            build(process, id, &granted).await
        }
        None => Ok(()),
    }
}

/// Who is killed, and at what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// A builder of an entry that is not there, and of its index.
    Builder,
    /// A builder of one that is expired, and of its index.
    Rebuilder,
    /// A function that builds an index.
    Indexer,
    /// Whoever evicts an entry.
    Evictor,
    /// A sweep and a reconcile after it.
    Sweeper,
}

impl Victim {
    pub(crate) const ALL: [Self; 5] = [
        Self::Builder,
        Self::Rebuilder,
        Self::Indexer,
        Self::Evictor,
        Self::Sweeper,
    ];
}

/// Kills the victim before and after each of its calls, in some orders of what others do meanwhile.
///
/// # Errors
/// What did not hold, and where the victim died.
pub(crate) fn each_death(victim: Victim) -> Result<()> {
    for seed in 0..3 {
        for after in [false, true] {
            let mut call = 0;
            loop {
                call += 1;
                ensure!(call <= CALLS_MAX, "{victim:?} makes no end of calls");
                let doom = Doom {
                    who: "victim",
                    call,
                    after,
                };
                if !died(victim, seed, &doom)? {
                    break;
                }
            }
            println!("{victim:?} {seed}: {} calls", call - 1);
            ensure!(call > 3, "{victim:?} makes {} calls", call - 1);
        }
    }
    Ok(())
}

/// Whether there was such a call to die at.
fn died(victim: Victim, seed: u64, doom: &Doom) -> Result<bool> {
    let mode = match victim {
        Victim::Indexer => Mode::Functions,
        _ => Mode::Embedded,
    };
    let struck = Arc::new(AtomicBool::new(false));
    let (told, fate) = (struck.clone(), doom.clone());
    let verdict = play_history(still(seed, mode), "deaths", |sim| async move {
        let ended = deadly(&sim, victim, fate).await;
        told.store(!sim.scheduler.is_doomed(), Relaxed);
        ended
    })?;
    match verdict.failure {
        Some(failure) => bail!("{victim:?} with {doom:?}: {failure}"),
        None => Ok(struck.load(Relaxed)),
    }
}

/// The lease of the victim, as far as it heard of it.
type Token = Arc<Mutex<Option<Granted>>>;

async fn deadly(sim: &Arc<Sim>, victim: Victim, doom: Doom) -> Result<(), String> {
    let (id, others) = (one()?, sim.start("other", false));
    if victim != Victim::Builder {
        comes(&others, &id, &AtomicU64::new(0)).await?;
    }
    match victim {
        Victim::Rebuilder => sim.rest(EXPIRED).await,
        // Past all it may be served for.
        Victim::Sweeper => sim.rest(EXPIRED * 4).await,
        Victim::Builder | Victim::Indexer | Victim::Evictor => {}
    }
    sim.scheduler.doom(Some(doom));
    let (process, token) = (sim.start("victim", true), Token::default());
    let began = sim.scheduler.clock.now();
    let life = process.gate.life.clone();
    let meanwhile = async {
        let read = reads(&others, &id, 3).await;
        match victim {
            Victim::Builder | Victim::Rebuilder | Victim::Indexer => read,
            Victim::Evictor | Victim::Sweeper => {
                // What is removed cannot be read to its end, and whoever builds it loses the lease.
                let _ = had(&others, &registry(&others), &id).await;
                Ok(())
            }
        }
    };
    let work = works(victim, &process, &id, &token);
    let (ended, read) = tokio::join!(life.until_death(work), meanwhile);
    read?;
    if let Some(ended) = ended {
        ended?;
    }
    let _functions = functions(sim, usize::from(victim == Victim::Indexer));
    let granted = token.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if matches!(victim, Victim::Builder | Victim::Rebuilder) && life.is_dead() {
        taken_over(&others, &id, granted.as_ref(), began).await?;
    }
    had(&others, &registry(&others), &id).await?;
    if let Some(granted) = granted.filter(|_| life.is_dead()) {
        fenced(&others, &id, &granted).await?;
    }
    named(sim, &registry(&others)).await
}

/// What the victim does.
async fn works(
    victim: Victim,
    process: &Process,
    id: &EntryId,
    token: &Token,
) -> Result<(), String> {
    let registry = registry(process);
    match victim {
        Victim::Builder | Victim::Rebuilder => {
            let claimed = registry.claim(id, &claim(victim == Victim::Builder)).await;
            match claimed.map_err(|error| error.chain())? {
                Claimed::Build(granted) | Claimed::Stale(_, Some(granted)) => {
                    *token.lock().unwrap_or_else(PoisonError::into_inner) = Some(granted.clone());
                    stored(&registry, id, &granted.token).await?;
                    // Its index is built behind it, by this process.
                    process.sim.rest(LEASE).await;
                    Ok(())
                }
                Claimed::Hit(_) | Claimed::Stale(_, None) | Claimed::Wait { .. } => Ok(()),
            }
        }
        Victim::Indexer => {
            // It takes the job that the commit sent, if no other function did.
            let receive = process.sim.jobs.receive(&process.gate, 1);
            let waited = process.sim.rest(LEASE);
            let held = tokio::select! {
                biased;
                held = receive => held,
                () = waited => return Ok(()),
            };
            for job in held.bodies() {
                let carried = registry.carry_out_job(&job, LEASE * 8).await;
                if let Carried::Busy(until) = carried.map_err(|error| error.chain())? {
                    return Err(format!("another delivery is at it until {until}"));
                }
            }
            held.done();
            Ok(())
        }
        Victim::Evictor => {
            let evicted = registry.evict(id).await;
            evicted.map(drop).map_err(|error| error.chain())
        }
        Victim::Sweeper => {
            let swept = registry.sweep().await.map_err(|error| error.chain())?;
            if let Some(error) = swept.errors.first() {
                return Err(error.clone());
            }
            let reconciled = registry.reconcile().await;
            reconciled.map(drop).map_err(|error| error.chain())
        }
    }
}

/// Reads what is there, and searches it, without building anything.
async fn reads(process: &Process, id: &EntryId, times: usize) -> Result<(), String> {
    let registry = registry(process);
    for _ in 0..times {
        let ask = engine::entries::Ask {
            mode: Some(domain::entry::Mode::Swr),
            ..engine::entries::Ask::default()
        };
        let found = registry.lookup(id, ask).await;
        match found.map_err(|error| error.chain())? {
            engine::entries::Found::Hit(entry) | engine::entries::Found::Stale(entry) => {
                served(process, &registry, &entry).await?;
            }
            engine::entries::Found::Building | engine::entries::Found::Miss => {}
        }
        search(process, &registry, id).await?;
    }
    Ok(())
}

/// Who comes after a builder that died: served stale if there is something, and given the lease once that of the dead one
/// is over, not before.
async fn taken_over(
    process: &Process,
    id: &EntryId,
    dead: Option<&Granted>,
    began: Timestamp,
) -> Result<(), String> {
    let (registry, clock) = (registry(process), &process.sim.scheduler.clock);
    for _ in 0..40 {
        let claimed = registry.claim(id, &claim(true)).await;
        match claimed.map_err(|error| error.chain())? {
            Claimed::Build(granted) => {
                let now = clock.now();
                let held = sim_commits(process, dead);
                if let Some(dead) = dead.filter(|dead| !held && now < dead.deadline) {
                    return Err(format!("taken over at {now}, before {}", dead.deadline));
                }
                // A look in vain, and one more wait.
                let late = now.since(began);
                if !held && late > LEASE * 2 {
                    return Err(format!("taken over {late:?} after the builder began"));
                }
                return stored(&registry, id, &granted.token).await;
            }
            Claimed::Hit(entry) => return served(process, &registry, &entry).await,
            Claimed::Wait { .. } | Claimed::Stale(..) => {}
        }
    }
    Err(String::from("a dead builder is never taken over"))
}

/// Whether a builder that died had committed before.
fn sim_commits(process: &Process, dead: Option<&Granted>) -> bool {
    let book = process.sim.bottom.book();
    let mut rows = book.shelf.rows.values().flatten();
    dead.is_some_and(|dead| rows.any(|generation| *generation == dead.token))
}

/// What a builder that died would still do: nothing of it happens, once its entry was built by another.
async fn fenced(process: &Process, id: &EntryId, dead: &Granted) -> Result<(), String> {
    if sim_commits(process, Some(dead)) {
        return Ok(());
    }
    let late = stored(&registry(process), id, &dead.token).await;
    match late {
        Err(why) if why.contains("not that of the lease") => Ok(()),
        other => Err(format!("E-3: a late commit came to {other:?}")),
    }
}
