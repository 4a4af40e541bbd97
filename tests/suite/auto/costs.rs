//! What a refresh by key asks of the object store: as much as changed, however much there is.

use std::sync::Arc;

use anyhow::{Result, ensure};
use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use ports::landing::Append;
use testkit::{CountedObjects, MemoryState, ObjectCounts};
use tests::{
    rows::{chain, compare},
    world::{Lab, table},
};

use super::{auto, model};

const CHANGES: i64 = 500;
const TOTALS: &str =
    "SELECT region, count(*) AS n, sum(amount) AS total FROM silver.orders GROUP BY region";

/// Recent orders change and move, in all of 100 regions: ten times the table asks for the same.
pub(super) async fn grow_with_the_change() -> Result<()> {
    let small = measure(60_000).await?;
    let large = measure(600_000).await?;
    println!("{small:?}\n{large:?}");
    ensure!(
        large.requests() <= small.requests() + 12,
        "{small:?} {large:?}"
    );
    ensure!(
        large.bytes_got * 2 <= small.bytes_got * 3,
        "{small:?} {large:?}"
    );
    Ok(())
}

async fn measure(existing: i64) -> Result<ObjectCounts> {
    let objects = Arc::new(CountedObjects::new(Arc::new(
        object_store::memory::InMemory::new(),
    )));
    let silver = model(
        "silver.orders",
        serde_json::json!({ "incremental_strategy": "merge", "unique_key": "id",
            "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT id, amount, region, _seq FROM landing.orders",
    );
    let zones = "SELECT substr(region, 1, 2) AS zone, count(*) AS n, sum(total) AS total FROM gold.regions GROUP BY 1";
    let models = [
        silver,
        auto("gold.regions", "", TOTALS),
        auto("gold.zones", "zone", zones),
    ];
    let lab = Lab::on(
        Arc::new(MemoryState::new()),
        objects.clone(),
        "memory:///",
        None,
        &models,
        domain::LiveSettings::default(),
    )?;
    // Loaded in commits of one size, so that recent orders lie in files of one size.
    for from in (0..existing).step_by(30_000) {
        land(&lab, (from..from + 30_000).map(|id| (id, id % 7, id % 100))).await?;
        lab.cycle().await?;
    }
    let mut last = ObjectCounts::default();
    for round in 1..4 {
        let recent = existing - CHANGES..existing;
        land(
            &lab,
            recent.map(|id| (id, id % 7 + round, (id * 31 + round) % 100)),
        )
        .await?;
        let _ = objects.take();
        lab.cycle().await?;
        last = objects.take();
    }
    let want = tests::rows::query(&lab.world, TOTALS).await?;
    let got = tests::rows::query(&lab.world, "SELECT * FROM gold.regions").await?;
    compare("gold.regions", got, &want, &[])?;
    Ok(last)
}

async fn land(lab: &Lab, rows: impl Iterator<Item = (i64, i64, i64)>) -> Result<()> {
    let rows: Vec<_> = rows.collect();
    let fields = [
        ("id", DataType::Int64),
        ("amount", DataType::Int64),
        ("region", DataType::Utf8),
    ];
    let fields = fields.map(|(name, kind)| Field::new(name, kind, true));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
        Arc::new(
            rows.iter()
                .map(|row| Some(format!("r{:02}", row.2)))
                .collect::<StringArray>(),
        ),
    ];
    let append = Append {
        table: table("landing.orders")?,
        rows: RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns)?,
        origin_at: lab.world.clock.now(),
        key: None,
    };
    lab.world
        .landing
        .append(append)
        .await
        .map_err(|error| chain(&error))?;
    Ok(())
}
