//! One seed, from its plan to its verdict.

use std::sync::{Arc, atomic::AtomicUsize};

use anyhow::{Context, Result};
use domain::{
    Duration, TableName,
    items::{self, Control},
};
use engine::{
    control,
    maintain::{Budget, maintain},
};
use ports::{Clock as _, state::Key, tables::Pin};
use rand::{SeedableRng, rngs::StdRng};
use tokio::task::JoinSet;

use crate::{
    actors,
    book::{Book, landed},
    broken::Broken,
    clients::{self, Told},
    models::{self, Feeder},
    plan::{Mode, Plan},
    scheduler::Rates,
    sim::Sim,
};

/// How long everybody may take to catch up once nothing goes wrong any more.
const CALM_MAX: Duration = Duration::from_secs(150);

/// How a seed ended.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Why it failed, with the last steps; none when it did not.
    pub(crate) failure: Option<String>,
    pub(crate) steps: u64,
    pub(crate) digest: u64,
    pub(crate) commits: u64,
    /// Refreshes of the first model of the project.
    pub(crate) refreshes: u64,
}

/// Runs a seed.
///
/// # Errors
/// When the simulation itself cannot be set up.
pub(crate) fn run(seed: u64, broken: Option<Broken>) -> Result<Verdict> {
    play(Plan::draw(seed, broken))
}

/// Plays a plan to its end.
///
/// # Errors
/// When the simulation itself cannot be set up.
pub(crate) fn play(plan: Plan) -> Result<Verdict> {
    play_history(plan, "one_seed", |sim| async move { history(&sim).await })
}

/// Plays a history in a plan's world, which `test` plays again.
///
/// # Errors
/// When the simulation itself cannot be set up.
pub(crate) fn play_history<F>(
    plan: Plan,
    test: &str,
    history: impl FnOnce(Arc<Sim>) -> F,
) -> Result<Verdict>
where
    F: Future<Output = Result<(), String>>,
{
    let sim = Sim::new(plan.clone(), plan.rates)?;
    let scheduler = sim.scheduler.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || scheduler.idle())
        .build()
        .context("start a runtime")?;
    let failure = runtime.block_on(async {
        let scheduler = sim.scheduler.clone();
        tokio::select! {
            biased;
            () = scheduler.failed() => scheduler.broken(),
            () = scheduler.go_on() => None,
            ended = history(sim.clone()) => scheduler.broken().or(ended.err()),
        }
    });
    let (steps, digest) = sim.scheduler.steps();
    let book = sim.bottom.book();
    let (commits, refreshes) = (book.commits, book.refreshes(plan.project[0].name()));
    drop(book);
    let failure = failure.map(|why| report(&plan, &why, &sim.scheduler.trace(), test));
    runtime.shutdown_background();
    Ok(Verdict {
        failure,
        steps,
        digest,
        commits,
        refreshes,
    })
}

fn report(plan: &Plan, why: &str, trace: &str, test: &str) -> String {
    let seed = plan.seed;
    format!(
        "seed {seed}: {why}\n{plan:?}\nthe last steps:\n{trace}\
         again: HEADWATER_SEED={seed} cargo nextest run --release --workspace --test simulation -E 'test(={test})'"
    )
}

async fn history(sim: &Arc<Sim>) -> Result<(), String> {
    let feeders = Feeder::of(sim.plan.project);
    let first = sim.start("declare", false);
    for feeder in &feeders {
        let table = feeder.table().parse().map_err(|e| format!("{e}"))?;
        let columns = models::columns(*feeder);
        let declared = first.world.landing.declare(&table, &columns).await;
        declared.map_err(|error| error.chain())?;
    }
    actors::start(sim);
    let told = rough(sim, &feeders).await?;
    calm(sim).await?;
    settled(sim, &told).await?;
    if sim.plan.tidy {
        tidy(sim).await?;
        settled(sim, &told).await?;
    }
    Ok(())
}

/// Clients send, people interfere, everything goes wrong.
async fn rough(sim: &Arc<Sim>, feeders: &[Feeder]) -> Result<Vec<Told>, String> {
    let plan = &sim.plan;
    let mut dice = StdRng::seed_from_u64(plan.seed);
    let scripts = clients::scripts(&mut dice, feeders, plan.clients, plan.requests);
    let mut sending = JoinSet::new();
    for script in scripts {
        sending.spawn(clients::send(
            sim.scheduler.clone(),
            sim.doors.clone(),
            script,
            plan.pause,
            plan.again,
        ));
    }
    let mut people = JoinSet::new();
    let (batches, left) = (Arc::new(AtomicUsize::new(plan.batches)), plan.controls);
    let controls = Arc::new(AtomicUsize::new(left));
    let mortal = plan.schedule;
    people.spawn(
        sim.clone()
            .keep("batch".to_owned(), mortal, move |process| {
                actors::batches(process, batches.clone())
            }),
    );
    people.spawn(
        sim.clone()
            .keep("person".to_owned(), mortal, move |process| {
                actors::controls(process, controls.clone())
            }),
    );
    let mut told = Vec::new();
    while let Some(ended) = sending.join_next().await {
        told.extend(ended.map_err(|error| error.to_string())?);
    }
    while let Some(ended) = people.join_next().await {
        ended.map_err(|error| error.to_string())?;
    }
    Ok(told)
}

/// Nothing goes wrong any more, nobody is paused: everybody catches up.
async fn calm(sim: &Arc<Sim>) -> Result<(), String> {
    sim.scheduler.set_rates(Rates {
        unsent: true,
        creep: sim.plan.rates.creep,
        ..Rates::default()
    });
    let person = sim.start("director", false);
    for shape in sim.plan.project {
        let model: TableName = shape.name().parse().map_err(|e| format!("{e}"))?;
        let key = Key::new(items::model(&model), items::CONTROL);
        let item = person.world.state.get(&key).await.map_err(|e| e.chain())?;
        let control = item.map(|item| item.decode::<Control>()).transpose();
        if !control
            .map_err(|e| e.chain())?
            .is_some_and(|control| control.paused)
        {
            continue;
        }
        let resumed = control::set_paused(&person.world, &model, false).await;
        resumed.map_err(|error| error.chain())?;
        if sim.plan.mode != Mode::Embedded {
            sim.advances.put((), None, None);
        }
    }
    let until = sim.scheduler.clock.now() + CALM_MAX;
    loop {
        sim.rest(Duration::from_millis(200)).await;
        let behind = behind(sim)?;
        match behind {
            None => return Ok(()),
            Some(why) if sim.scheduler.clock.now() > until => {
                return Err(format!("S-2: {why}, {CALM_MAX:?} after the last fault"));
            }
            Some(_) => {}
        }
    }
}

/// A model that has not read all there is.
fn behind(sim: &Sim) -> Result<Option<String>, String> {
    let book = sim.bottom.book();
    for shape in sim.plan.project {
        let model: TableName = shape.name().parse().map_err(|e| format!("{e}"))?;
        for (input, head) in &book.heads {
            let reads = shape.sql().contains(&input.to_string());
            let consumed = book.consumed(&model, input).position;
            let is_behind = consumed.is_behind(head.position)
                || head.position.commits > 0 && !book.heads.contains_key(&model);
            if reads && is_behind {
                let at = head.position;
                return Ok(Some(format!(
                    "{model} has read {consumed:?} of {input}, which is at {at:?}"
                )));
            }
        }
    }
    Ok(None)
}

/// Everything that was promised is there, and nothing else.
async fn settled(sim: &Arc<Sim>, told: &[Told]) -> Result<(), String> {
    let _hold = sim.scheduler.hold();
    clients::check(told, &sim.bottom.book())?;
    for shape in sim.plan.project {
        let model: TableName = shape.name().parse().map_err(|e| format!("{e}"))?;
        sim.bottom.compare(&model).await?;
    }
    let tables: Vec<TableName> = sim.bottom.book().landed.keys().cloned().collect();
    for table in &tables {
        landing(sim, table).await?;
    }
    Ok(())
}

/// A landing table reads as it was written, whatever was folded since.
async fn landing(sim: &Arc<Sim>, table: &TableName) -> Result<(), String> {
    let lake = &sim.bottom.lake;
    let chain = |error: ports::Error| format!("{table}: {}", error.chain());
    let Some(pin) = lake.pin(table).await.map_err(chain)? else {
        return Err(format!("{table} is gone"));
    };
    let columns = ["op", "lsn", "item", "grp", "amt", "payload", "_seq"];
    let objects = &sim.bottom.objects;
    let found = crate::frame::table(&**lake, objects, &pin, 0, &columns);
    let found = found.await.map_err(chain)?;
    let numbers = found.iter().map(|row| row[6].int());
    let Pin::Landing { through, .. } = pin else {
        return Err(format!("{table} is no landing table"));
    };
    if !numbers.eq(1..=i64::try_from(through).unwrap_or(0)) {
        return Err(format!(
            "S-1: sequences of {table} are not 1 to {through}: {found:?}"
        ));
    }
    let kinds = |name: &&str| match *name {
        "op" | "payload" => arrow::datatypes::DataType::Utf8,
        _ => arrow::datatypes::DataType::Int64,
    };
    let kinds: Vec<_> = columns.iter().map(|name| (*name, kinds(name))).collect();
    let batch = crate::frame::batch(&kinds, &found).map_err(chain)?;
    let book: &Book = &sim.bottom.book();
    match book
        .landed
        .get(table)
        .is_some_and(|rows| *rows == landed(&batch))
    {
        true => Ok(()),
        false => Err(format!("Q-1: rows of {table} are not those committed")),
    }
}

/// Maintenance with all the time in the world, long after.
async fn tidy(sim: &Arc<Sim>) -> Result<(), String> {
    for _ in 0..3 {
        sim.scheduler.clock.advance(Duration::from_secs(3_600));
        let process = sim.start("upkeep", false);
        let budget = Budget {
            time: Duration::from_secs(3_600),
            steps: 10_000,
            all: true,
        };
        let now = process.world.clock.now();
        let report = maintain(&process.world, &budget, now).await;
        if let Some(error) = report.errors.first() {
            return Err(format!("maintenance without faults failed: {error}"));
        }
    }
    Ok(())
}
