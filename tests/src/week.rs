//! A week of load in simulated time, maintenance on: what is stored, what a refresh costs and what it asks for, day by
//! day. The suite holds a small one against bounds, the benchmarks print a large one.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use anyhow::Result;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use domain::{Duration, LiveSettings};
use engine::{
    cycle::{self, Silent},
    maintain::{Budget, maintain},
};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use ports::{Objects, landing::Append, tables::Part};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use testkit::{CountedObjects, CountedState, MemoryState};

use crate::{
    case::ModelText,
    world::{Lab, table},
};

/// Days of the week.
const DAYS: u64 = 7;

/// What a table holds at the end of a day.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Parquet files.
    pub files: u64,
    /// Landing commits whose rows ride inline.
    pub inline: u64,
    /// Rows that are not deleted.
    pub rows: u64,
    /// Rows of files that are deleted, percent.
    pub deleted_percent: u64,
}

/// The tables that are looked at.
const TABLES: [&str; 4] = [
    "landing.orders",
    "silver.orders",
    "silver.orders__tombstones",
    "gold.groups",
];

/// One day.
#[derive(Clone, Debug)]
pub struct Day {
    /// How long each cycle took.
    pub cycles: Vec<std::time::Duration>,
    /// How long each round of maintenance took.
    pub upkeep: Vec<std::time::Duration>,
    /// Requests of a cycle, on average.
    pub requests: u64,
    /// Objects stored at its end.
    pub objects: usize,
    /// Tables at its end.
    pub tables: BTreeMap<String, Shape>,
}

fn models() -> Vec<ModelText> {
    let model = |name: &str, config: Value, sql: &str| {
        let mut config = config;
        config["materialized"] = json!("incremental");
        config["live"] = json!("true");
        ModelText {
            name: name.to_owned(),
            config: serde_json::from_value(config).unwrap_or_default(),
            sql: sql.to_owned(),
            asserts: Vec::new(),
        }
    };
    vec![
        model(
            "silver.orders",
            json!({ "incremental_strategy": "merge", "unique_key": "id", "cdc_op": "op", "cdc_seq": "lsn",
                "cdc_deletes": "hard", "incremental_filter": "WHERE _seq > {watermark}" }),
            "SELECT op, lsn, id, grp, amt, _seq FROM landing.orders",
        ),
        model(
            "gold.groups",
            json!({ "incremental_strategy": "delete+insert", "unique_key": "grp" }),
            "SELECT c.grp, sum(l.amt) AS total, count(l.id) AS n \
             FROM (SELECT DISTINCT grp FROM {changes:silver.orders}) AS c \
             LEFT JOIN silver.orders AS l ON l.grp = c.grp GROUP BY c.grp",
        ),
    ]
}

/// So many batches a day, each of twenty change events, and a cycle after each.
///
/// # Errors
/// What the ports answer.
pub async fn week(batches: u64, told: impl Fn(u64)) -> Result<Vec<Day>> {
    let objects = CountedObjects::new(Arc::new(InMemory::new()));
    let state = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
    let counted: Objects = Arc::new(objects.clone());
    let (models, live) = (models(), LiveSettings::default());
    let lab = Lab::on(state.clone(), counted, "memory:///", None, &models, live)?;
    let chained = |error: ports::Error| crate::rows::chain(&error);
    let mut dice = StdRng::seed_from_u64(1);
    let step = Duration::from_secs(86_400 / batches);
    let budget = Budget {
        time: Duration::from_secs(60),
        ..Budget::of(&lab.world.live.maintenance)
    };
    let (mut lsn, mut days) = (0_i64, Vec::new());
    for day in 0..DAYS {
        let (mut cycles, mut requests, mut upkeep) = (Vec::new(), 0, Vec::new());
        for batch in 0..batches {
            lsn += 20;
            land(&lab, &mut dice, lsn).await?;
            lab.clock.advance(step);
            objects.take();
            state.take();
            let started = Instant::now();
            cycle::run(&lab.world, &Silent).await.map_err(chained)?;
            cycles.push(started.elapsed());
            requests += objects.take().requests() + state.take().requests();
            if batch % (batches / 48).max(1) == 0 {
                let started = Instant::now();
                maintain(&lab.world, &budget, lab.world.clock.now()).await;
                upkeep.push(started.elapsed());
            }
        }
        let mut tables = BTreeMap::new();
        for name in TABLES {
            tables.insert(name.to_owned(), shape(&lab, name).await?);
        }
        let kept: Vec<_> = lab.objects.list(None).try_collect().await?;
        days.push(Day {
            cycles,
            upkeep,
            requests: requests / batches,
            objects: kept.len(),
            tables,
        });
        told(day + 1);
    }
    Ok(days)
}

async fn land(lab: &Lab, dice: &mut StdRng, lsn: i64) -> Result<()> {
    let mut columns = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    let mut ops = Vec::new();
    for at in 0..20 {
        ops.push(["I", "U", "U", "D"][dice.random_range(0..4)]);
        let values = [
            lsn + at,
            dice.random_range(0..5_000),
            dice.random_range(0..50),
            dice.random_range(0..1_000),
        ];
        for (column, value) in columns.iter_mut().zip(values) {
            column.push(value);
        }
    }
    let names = ["lsn", "id", "grp", "amt"];
    let mut arrays: Vec<(&str, ArrayRef)> = vec![("op", Arc::new(StringArray::from(ops)))];
    for (name, column) in names.into_iter().zip(columns) {
        arrays.push((name, Arc::new(Int64Array::from(column))));
    }
    let append = Append {
        table: table("landing.orders")?,
        rows: RecordBatch::try_from_iter(arrays)?,
        origin_at: lab.world.clock.now(),
        key: None,
    };
    let landed = lab.world.landing.append(append).await;
    landed.map_err(|error| crate::rows::chain(&error))?;
    Ok(())
}

async fn shape(lab: &Lab, name: &str) -> Result<Shape> {
    let chained = |error: ports::Error| crate::rows::chain(&error);
    let mut shape = Shape::default();
    let Some(pin) = lab.world.tables.pin(&table(name)?).await.map_err(chained)? else {
        return Ok(shape);
    };
    let scan = lab.world.tables.scan(&pin, 0).await.map_err(chained)?;
    let mut deleted = 0;
    for part in scan.parts {
        match part {
            Part::Memory(batch) => {
                shape.inline += 1;
                shape.rows += batch.num_rows() as u64;
            }
            Part::File(file) => {
                shape.files += 1;
                shape.rows += file.rows;
                deleted += file.deleted.as_ref().map_or(0, |gone| gone.len());
            }
        }
    }
    shape.deleted_percent = deleted * 100 / shape.rows.max(1);
    shape.rows -= deleted;
    Ok(shape)
}
