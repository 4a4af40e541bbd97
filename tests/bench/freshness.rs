//! From POST to the gold row that shows it, one event at a time, through the real program.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tests::{folder::Folder, program::Served};

use crate::{
    Options, block_on,
    sample::{json_chain, summary},
};

/// Longest one sample may take.
const SAMPLE_MAX: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> Result<Value> {
    let samples = if options.quick { 10 } else { 40 };
    Ok(json!({
        "default_settings": block_on(measure("", samples))?,
        "debounce_10ms": block_on(measure("live:\n  debounce: 10ms\n", samples))?,
    }))
}

async fn measure(settings: &str, samples: u64) -> Result<Value> {
    let folder = Folder::with_models(settings, &json_chain())?;
    let served = Served::start(folder.path(), &[]).await?;
    let client = served.client();
    let mut chance = StdRng::seed_from_u64(1);
    let (mut visible, mut answered) = (Vec::new(), Vec::new());
    // The first event creates every table and is not counted.
    for total in 1..=samples + 1 {
        // Light load: further apart than two cycles may be, and in no rhythm with any timer.
        tokio::time::sleep(Duration::from_millis(chance.random_range(1_200..2_000))).await;
        let event = json!({ "order_id": total, "amount": 1.0, "region": "eu" });
        let started = Instant::now();
        let answer = client.post("/api/ingest/webhook/orders", &event).await?;
        ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
        let acknowledged = started.elapsed();
        loop {
            // Until the first cycle there is no such table.
            let rows = client
                .query("SELECT orders FROM gold.revenue WHERE region = 'eu'")
                .await
                .unwrap_or_default();
            if rows.first().is_some_and(|row| row["orders"] == total) {
                break;
            }
            ensure!(
                started.elapsed() < SAMPLE_MAX,
                "event {total} never reached gold: {rows:?}"
            );
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        if total > 1 {
            visible.push(started.elapsed());
            answered.push(acknowledged);
        }
    }
    Ok(
        json!({ "visible_in_gold": summary(visible), "post_answered": summary(answered),
        "memory_peak_mib": served.memory_peak().map(|bytes| bytes >> 20) }),
    )
}
