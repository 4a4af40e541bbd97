//! Change events into a large table: batches of inserts, updates and deletes (40/40/20) into a model with hard deletes, on
//! files, as the peer's own benchmark draws them.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use anyhow::Result;
use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use domain::TableName;
use engine::{World, cycle};
use ports::landing::Append;
use serde_json::{Value, json};
use tests::{case::ModelText, world::table};

use crate::{
    Options, block_on, merge,
    sample::{rate, summary},
};

/// Rows of the table before the first batch.
const EXISTING: i64 = 1_000_000;
/// Events of one landing commit of the first load.
const LOAD: i64 = 100_000;
/// Events of one batch.
const BATCH: i64 = 100_000;
/// Longest a batch may take, milliseconds.
const TARGET_MS: f64 = 500.0;

pub(crate) fn run(options: &Options) -> Result<Value> {
    let rounds = if options.quick { 3 } else { 7 };
    let modes: &[&str] = if options.quick {
        &["hard"]
    } else {
        &["hard", "soft"]
    };
    let mut results = Vec::new();
    for mode in modes {
        results.push(block_on(measure(mode, rounds))?);
    }
    Ok(Value::Array(results))
}

fn model(deletes: &str) -> ModelText {
    let config = [
        ("materialized", "incremental"),
        ("live", "true"),
        ("incremental_strategy", "merge"),
        ("unique_key", "id"),
        ("cdc_op", "op"),
        ("cdc_seq", "lsn"),
        ("cdc_deletes", deletes),
        ("incremental_filter", "WHERE _seq > {watermark}"),
    ];
    ModelText {
        name: "silver.orders".to_owned(),
        config: config
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect::<BTreeMap<_, _>>(),
        sql: "SELECT id, amount, region, op, lsn, _seq FROM landing.orders".to_owned(),
        asserts: Vec::new(),
    }
}

async fn measure(deletes: &str, rounds: i64) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let world = merge::world(folder.path(), &[model(deletes)])?;
    let orders = table("landing.orders")?;
    for from in (0..EXISTING).step_by(usize::try_from(LOAD)?) {
        let load = (from..from + LOAD).map(|id| (id, id % 1_000, "I", id));
        append(&world, &orders, load.collect()).await?;
    }
    let started = Instant::now();
    merge::cycle(&world, &cycle::Silent).await?;
    let first = started.elapsed();
    eprintln!("  {deletes}: {EXISTING} rows built in {first:?}");
    let (mut applied, mut landed) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let next = EXISTING + round * BATCH;
        let event = |i: i64| {
            let (id, op) = match i % 10 {
                0..4 => (next + i, "I"),
                4..8 => ((i * 7_919 + round * 31) % EXISTING, "U"),
                _ => ((i * 7_919 + round * 31) % EXISTING, "D"),
            };
            (id, i % 777, op, next + i)
        };
        let started = Instant::now();
        append(&world, &orders, (0..BATCH).map(event).collect()).await?;
        landed.push(started.elapsed());
        let started = Instant::now();
        merge::cycle(&world, &cycle::Silent).await?;
        applied.push(started.elapsed());
    }
    applied.sort();
    let middle = applied[applied.len() / 2];
    let p50 = middle.as_secs_f64() * 1e3;
    Ok(json!({
        "deletes": deletes, "existing_rows": EXISTING, "batch_events": BATCH, "first_build_s": first.as_secs_f64(),
        "landing_commit": summary(landed), "apply": summary(applied),
        "events_per_s": rate(u64::try_from(BATCH)?, middle), "target_ms": TARGET_MS, "within": p50 <= TARGET_MS,
    }))
}

/// Lands events: id, amount, operation, LSN.
async fn append(
    world: &World,
    orders: &TableName,
    rows: Vec<(i64, i64, &'static str, i64)>,
) -> Result<()> {
    let column = |of: fn(&(i64, i64, &str, i64)) -> i64| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(of(row))).collect::<Int64Array>())
    };
    #[expect(clippy::cast_precision_loss, reason = "below a thousand")]
    let amounts: Float64Array = rows.iter().map(|row| Some(row.1 as f64)).collect();
    let regions: StringArray = rows
        .iter()
        .map(|row| Some(format!("r{}", row.0 % 50)))
        .collect();
    let ops: StringArray = rows.iter().map(|row| Some(row.2)).collect();
    let columns: [(&str, DataType, ArrayRef); 5] = [
        ("id", DataType::Int64, column(|row| row.0)),
        ("amount", DataType::Float64, Arc::new(amounts)),
        ("region", DataType::Utf8, Arc::new(regions)),
        ("op", DataType::Utf8, Arc::new(ops)),
        ("lsn", DataType::Int64, column(|row| row.3)),
    ];
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for (name, kind, array) in columns {
        fields.push(Field::new(name, kind, true));
        arrays.push(array);
    }
    let append = Append {
        table: orders.clone(),
        rows: RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?,
        origin_at: world.clock.now(),
        key: None,
    };
    let landed = world.landing.append(append).await;
    landed.map_err(|error| tests::rows::chain(&error))?;
    Ok(())
}
