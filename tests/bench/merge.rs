//! A merge of 10,000 upserts into a large table, on files. Each size runs in a process of its own, so that its memory
//! is its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use domain::{LiveSettings, Position, TableName};
use engine::{World, cycle, refresh::Refreshed};
use ports::{Objects, State, landing::Append, queue::Announcement};
use serde_json::{Value, json};
use tests::{
    case::ModelText,
    world::{file_uri, project, table},
};

use crate::{
    Options, block_on, by_size,
    sample::{summary, typed_chain},
};

/// Rows of one landing commit of the first load.
const LOAD_ROWS: i64 = 100_000;
/// Upserts of one batch: half update existing rows, half insert new ones.
const BATCH_ROWS: i64 = 10_000;

pub(crate) fn run(options: &Options) -> Result<Value> {
    let sizes: &[i64] = if options.quick {
        &[1_000_000]
    } else {
        &[1_000_000, 5_000_000]
    };
    let rounds = if options.quick { 5 } else { 12 };
    by_size("--merge-child", sizes, rounds)
}

/// One size, in this process: `ROWS ROUNDS`.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [existing, rounds] = arguments else {
        anyhow::bail!("--merge-child ROWS ROUNDS")
    };
    let result = block_on(measure(existing.parse()?, rounds.parse()?))?;
    println!("{result}");
    Ok(())
}

/// Times every refresh.
#[derive(Default)]
pub(crate) struct Watch {
    started: Mutex<BTreeMap<TableName, Instant>>,
    took: Mutex<BTreeMap<TableName, Vec<Duration>>>,
}

impl Watch {
    /// How long the refreshes of one model took.
    pub(crate) fn of(&self, name: &str) -> Option<Vec<Duration>> {
        let took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        let mut models = took.iter();
        models
            .find(|(model, _)| model.to_string() == name)
            .map(|(_, all)| all.clone())
    }
}

impl cycle::Observer for Watch {
    fn started(&self, model: &TableName) {
        self.started
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(model.clone(), Instant::now());
    }

    fn ended(&self, model: &TableName, _: &Refreshed) {
        let started = self
            .started
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(model);
        if let Some(started) = started {
            let mut took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
            took.entry(model.clone())
                .or_default()
                .push(started.elapsed());
        }
    }
}

async fn measure(existing: i64, rounds: i64) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let world = world(folder.path(), &typed_chain())?;
    let orders = table("landing.orders")?;
    let started = Instant::now();
    for from in (0..existing).step_by(usize::try_from(LOAD_ROWS)?) {
        let keys = from..(from + LOAD_ROWS).min(existing);
        append(
            &world,
            &orders,
            keys.map(|key| (key, key % 1_000)).collect(),
        )
        .await?;
    }
    let landed = started.elapsed();
    cycle(&world, &cycle::Silent).await?;
    let built = started.elapsed().checked_sub(landed).unwrap_or_default();
    let memory_initial = memory_peak();
    reset_memory_peak();
    eprintln!("  {existing} rows built in {built:?}");
    let (watch, mut whole, mut landings) = (Watch::default(), Vec::new(), Vec::new());
    let mut next = existing;
    for round in 0..rounds {
        // As the peer's own benchmark draws them: every other row updates a scattered key.
        let upsert = |i: i64| {
            if i % 2 == 0 {
                (i * 7_919 + round) % existing
            } else {
                next + i
            }
        };
        let started = Instant::now();
        append(
            &world,
            &orders,
            (0..BATCH_ROWS).map(|i| (upsert(i), i % 777)).collect(),
        )
        .await?;
        landings.push(started.elapsed());
        next += BATCH_ROWS;
        let started = Instant::now();
        cycle(&world, &watch).await?;
        whole.push(started.elapsed());
    }
    let of = |name: &str| watch.of(name).map(summary);
    Ok(
        json!({ "existing_rows": existing, "batch_rows": BATCH_ROWS, "landing_s": landed.as_secs_f64(),
        "first_build_s": built.as_secs_f64(), "landing_commit": summary(landings), "silver_refresh": of("silver.orders"),
        "gold_refresh": of("gold.revenue"), "cycle": summary(whole),
        "memory_peak_mib": { "first_build": memory_initial, "refreshes": memory_peak() } }),
    )
}

/// A world on files, with the clock of this machine.
pub(crate) fn world(folder: &std::path::Path, models: &[ModelText]) -> Result<World> {
    let state: Arc<dyn State> = Arc::new(embedded::SqliteState::open(&folder.join("state.db"))?);
    let warehouse = folder.join("warehouse");
    let objects: Objects = embedded::FileObjects::open(&warehouse)?;
    let clock = Arc::new(embedded::SystemClock);
    let chance = Arc::new(embedded::SystemChance);
    let uri = file_uri(&warehouse);
    let tables = Arc::new(lake::Lake::new(
        state.clone(),
        objects.clone(),
        uri,
        chance.clone(),
        clock.clone(),
    ));
    let landing = lake::landing::LandingLake::new(
        state.clone(),
        objects.clone(),
        clock.clone(),
        chance.clone(),
    );
    let settings = query::Settings {
        memory: 256 << 20,
        spill: Some(folder.join("spill")),
        threads: 2,
    };
    Ok(World {
        state,
        landing: Arc::new(landing),
        entries: Arc::new(lake::EntryLake::new(objects.clone())),
        searching: ports::search::Searching::default(),
        jobs: None,
        query: query::engine(tables.clone(), objects, settings)
            .map_err(|error| tests::rows::chain(&error))?,
        tables,
        queue: Arc::new(embedded::WakingQueue::new()),
        clock,
        chance,
        alerts: Arc::new(embedded::LogAlerts),
        project: Arc::new(project(models)?),
        live: Arc::new(LiveSettings::default()),
    })
}

/// Announces where a table is, as who committed to it does.
pub(crate) async fn announce(world: &World, table: &TableName) -> Result<()> {
    let announcement = Announcement {
        table: table.clone(),
        position: Position::default(),
    };
    let sent = world.queue.send(&[announcement]).await;
    sent.map_err(|error| tests::rows::chain(&error))
}

/// Lands rows: order and amount.
pub(crate) async fn append(world: &World, orders: &TableName, rows: Vec<(i64, i64)>) -> Result<()> {
    let keys: Int64Array = rows.iter().map(|(key, _)| *key).collect();
    #[expect(clippy::cast_precision_loss, reason = "below a thousand")]
    let amounts: Float64Array = rows
        .iter()
        .map(|(_, amount)| Some(*amount as f64))
        .collect();
    let regions: StringArray = rows
        .iter()
        .map(|(key, _)| Some(format!("r{}", key % 50)))
        .collect();
    let fields = [
        ("order_id", DataType::Int64),
        ("amount", DataType::Float64),
        ("region", DataType::Utf8),
    ];
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, kind)| Field::new(name, kind, true))
        .collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(amounts), Arc::new(regions)];
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    let append = Append {
        table: orders.clone(),
        rows,
        origin_at: world.clock.now(),
        key: None,
    };
    world
        .landing
        .append(append)
        .await
        .map_err(|error| tests::rows::chain(&error))?;
    Ok(())
}

/// Runs a cycle in which every model is built.
pub(crate) async fn cycle(world: &World, observer: &dyn cycle::Observer) -> Result<()> {
    let report = cycle::run(world, observer)
        .await
        .map_err(|error| tests::rows::chain(&error))?;
    for (model, how) in report.models {
        ensure!(
            matches!(how, Refreshed::Built { .. }),
            "`{model}` ended {how:?}"
        );
    }
    Ok(())
}

/// The most memory this process held since the last reset, MiB, where the system tells.
pub(super) fn memory_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status")
        .context("status")
        .ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()?
            / 1024,
    )
}

fn reset_memory_peak() {
    // Where the system cannot, the peak of the first build stays in the number: too high, never too low.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
