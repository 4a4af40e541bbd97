//! A week of load in simulated time, maintenance on, day by day.

use anyhow::Result;
use serde_json::{Value, json};
use tests::week::{Day, week};

use crate::{Options, block_on, sample::summary};

pub(crate) fn run(options: &Options) -> Result<Value> {
    let batches = if options.quick { 144 } else { 1_440 };
    let days = block_on(week(batches, |day| eprintln!("  day {day}")))?;
    Ok(days.into_iter().map(|day| told(day, batches)).collect())
}

fn told(day: Day, batches: u64) -> Value {
    let tables: serde_json::Map<_, _> = day
        .tables
        .into_iter()
        .map(|(name, shape)| {
            let shape = json!({
                "files": shape.files, "inline_commits": shape.inline, "rows": shape.rows,
                "deleted_percent": shape.deleted_percent,
            });
            (name, shape)
        })
        .collect();
    json!({
        "events": batches * 20, "cycle": summary(day.cycles), "requests_per_cycle": day.requests,
        "maintenance_round": summary(day.upkeep), "objects_stored": day.objects, "tables": tables,
    })
}
