//! `incremental_strategy=auto`: 10,000 changes of orders, of which the revenue of 1,000 regions and of 10 zones follows.
//! Refreshes are timed on files, and what they ask of the objects is counted: it may not grow with the table when the
//! changes are of recent rows. Beside them a model whose groups have to be computed from their rows. Each size runs in a
//! process of its own.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use domain::{LiveSettings, TableName};
use engine::{World, cycle};
use ports::{Objects, landing::Append};
use serde_json::{Value, json};
use testkit::CountedObjects;
use tests::{
    case::ModelText,
    rows::chain,
    world::{file_uri, project, table},
};

use crate::{
    Options, block_on, by_size,
    merge::{Watch, cycle},
    sample::summary,
};

/// Rows of one landing commit of the first load.
const LOAD_ROWS: i64 = 250_000;
/// Changes of one batch.
const CHANGES: i64 = 10_000;
/// Rounds with the model that is computed from its rows.
const MEANS: i64 = 4;
/// Groups of the first level.
const REGIONS: i64 = 1_000;

pub(crate) fn run(options: &Options) -> Result<Value> {
    let sizes: &[i64] = if options.quick {
        &[200_000, 1_000_000]
    } else {
        &[1_000_000, 5_000_000, 20_000_000]
    };
    let rounds = if options.quick { 3 } else { 8 };
    let sizes = by_size("--auto-child", sizes, rounds)?;
    let asked = |size: usize, what: &str| {
        let asked = &sizes[size]["refreshes"][0]["asked_last"][what];
        asked
            .as_u64()
            .with_context(|| format!("no {what}: {sizes}"))
    };
    for what in ["requests", "bytes_read", "bytes_written"] {
        let small = asked(0, what)?;
        for size in 1..sizes.as_array().map_or(0, Vec::len) {
            let large = asked(size, what)?;
            ensure!(
                large <= small * 2,
                "{what} grow with the table: {small}, then {large}"
            );
        }
    }
    Ok(sizes)
}

/// One size, in this process: `ROWS ROUNDS`.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [existing, rounds] = arguments else {
        anyhow::bail!("--auto-child ROWS ROUNDS")
    };
    println!("{}", block_on(measure(existing.parse()?, rounds.parse()?))?);
    Ok(())
}

/// `silver.orders` by merge, revenue per region over it, and per zone over that.
fn models() -> Vec<ModelText> {
    let model = |name: &str, keys: &[(&str, &str)], sql: &str| {
        let own = [("materialized", "incremental"), ("live", "true")];
        let keys = own
            .iter()
            .chain(keys)
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        ModelText {
            name: name.to_owned(),
            config: keys.collect(),
            sql: sql.to_owned(),
            asserts: Vec::new(),
        }
    };
    let auto = [("incremental_strategy", "auto")];
    vec![
        model(
            "silver.orders",
            &[
                ("incremental_strategy", "merge"),
                ("unique_key", "order_id"),
                ("incremental_filter", "WHERE _seq > {watermark}"),
            ],
            "SELECT order_id, amount, region, _seq FROM landing.orders",
        ),
        model(
            "gold.regions",
            &auto,
            "SELECT region, COUNT(*) AS orders, SUM(amount) AS revenue FROM silver.orders GROUP BY region",
        ),
        model(
            "gold.zones",
            &auto,
            "SELECT substr(region, 1, 2) AS zone, COUNT(*) AS regions, SUM(revenue) AS revenue FROM gold.regions GROUP BY 1",
        ),
        model(
            "gold.means",
            &auto,
            "SELECT region, AVG(amount) AS mean FROM silver.orders GROUP BY region",
        ),
    ]
}

async fn measure(existing: i64, rounds: i64) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let warehouse = folder.path().join("warehouse");
    let objects = Arc::new(CountedObjects::new(embedded::FileObjects::open(
        &warehouse,
    )?));
    let world = world(folder.path(), objects.clone(), &file_uri(&warehouse))?;
    let orders = table("landing.orders")?;
    let started = Instant::now();
    for from in (0..existing).step_by(usize::try_from(LOAD_ROWS)?) {
        let keys = from..(from + LOAD_ROWS).min(existing);
        append(
            &world,
            &orders,
            keys.map(|key| (key, key % 777, key % REGIONS)).collect(),
        )
        .await?;
    }
    cycle(&world, &cycle::Silent).await?;
    eprintln!("  {existing} rows built in {:?}", started.elapsed());
    let mut kinds = Vec::new();
    let all = world.project.clone();
    let chain = Arc::new(project(&models()[..3])?);
    let mut world = world;
    for scattered in [false, true] {
        let (watch, means) = (Watch::default(), Watch::default());
        let mut whole = Vec::new();
        let mut asked = Vec::new();
        for round in 0..rounds + MEANS {
            // What is computed from its rows comes behind the others, and not into their counts.
            let only_chain = round < rounds;
            world.project = if only_chain { &chain } else { &all }.clone();
            let refreshes = if only_chain { &watch } else { &means };
            // Recent orders, or any; each moves to another region.
            let key = |i: i64| match scattered {
                true => (i * 7_919 + round) % existing,
                false => existing - 1 - i,
            };
            let rows =
                (0..CHANGES).map(|i| (key(i), round + i % 777, (key(i) * 31 + round) % REGIONS));
            append(&world, &orders, rows.collect()).await?;
            let _ = objects.take();
            let started = Instant::now();
            cycle(&world, refreshes).await?;
            if !only_chain {
                continue;
            }
            whole.push(started.elapsed());
            let counts = objects.take();
            asked.push(json!({ "requests": counts.requests(), "bytes_read": counts.bytes_got, "bytes_written": counts.bytes_put }));
        }
        let of = |name: &str| watch.of(name).map(summary);
        // The first of them catches up.
        let means = means
            .of("gold.means")
            .map(|all| summary(all.into_iter().skip(1).collect()));
        kinds.push(json!({ "changes": if scattered { "scattered" } else { "recent" }, "silver": of("silver.orders"),
            "regions": of("gold.regions"), "zones": of("gold.zones"), "means_recomputed": means,
            "cycle": summary(whole), "asked_last": asked.last() }));
    }
    check(&world).await?;
    Ok(
        json!({ "existing_rows": existing, "changes": CHANGES, "groups": REGIONS, "refreshes": kinds }),
    )
}

/// What was kept is what the queries give from scratch.
async fn check(world: &World) -> Result<()> {
    for model in &models()[1..] {
        let differ = format!(
            "SELECT count(*) FROM ((SELECT * FROM ({0}) EXCEPT SELECT * FROM {1}) UNION ALL \
             (SELECT * FROM {1} EXCEPT SELECT * FROM ({0})))",
            model.sql, model.name
        );
        let rows = tests::rows::value(world, &differ).await?;
        ensure!(
            rows == json!(0),
            "{rows} rows of {} differ from its query",
            model.name
        );
    }
    Ok(())
}

fn world(folder: &std::path::Path, objects: Objects, uri: &str) -> Result<World> {
    let ground = tests::world::Ground {
        state: Arc::new(embedded::SqliteState::open(&folder.join("state.db"))?),
        objects,
        uri: uri.to_owned(),
        clock: Arc::new(embedded::SystemClock),
        chance: Arc::new(embedded::SystemChance),
    };
    let mut world = ground.world(
        Arc::new(embedded::WakingQueue::new()),
        Arc::new(embedded::LogAlerts),
        &[],
        LiveSettings::default(),
    )?;
    world.project = Arc::new(project(&models())?);
    Ok(world)
}

async fn append(world: &World, orders: &TableName, rows: Vec<(i64, i64, i64)>) -> Result<()> {
    let fields = [
        ("order_id", DataType::Int64),
        ("amount", DataType::Int64),
        ("region", DataType::Utf8),
    ];
    let fields = fields.map(|(name, kind)| Field::new(name, kind, true));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
        Arc::new(
            rows.iter()
                .map(|row| Some(format!("r{:03}", row.2)))
                .collect::<StringArray>(),
        ),
    ];
    let append = Append {
        table: orders.clone(),
        rows: RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns)?,
        origin_at: world.clock.now(),
        key: None,
    };
    world
        .landing
        .append(append)
        .await
        .map_err(|error| chain(&error))?;
    Ok(())
}
