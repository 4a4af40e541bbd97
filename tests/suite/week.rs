//! A week of simulated load leaves tables as small and refreshes as cheap as its second day did.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use tests::week::week;

use crate::plain::test_async;

/// Batches of a day.
const BATCHES: u64 = 48;

pub(crate) fn trials() -> Vec<Trial> {
    vec![test_async(
        "week::tables_and_refreshes_stay_bounded",
        bounded,
    )]
}

async fn bounded() -> Result<()> {
    let days = week(BATCHES, |_| {}).await?;
    for (day, number) in days.iter().zip(1..) {
        let (requests, objects) = (day.requests, day.objects);
        println!(
            "day {number}: {requests} requests a cycle, {objects} objects, {:?}",
            day.tables
        );
        for (name, shape) in &day.tables {
            ensure!(
                shape.files <= 40,
                "day {number}: {} files of {name}",
                shape.files
            );
            ensure!(
                shape.deleted_percent <= 50,
                "day {number}: {}% of {name} is deleted",
                shape.deleted_percent
            );
        }
    }
    let (second, last) = (
        days.get(1).context("two days")?,
        days.last().context("a week")?,
    );
    ensure!(
        last.requests <= second.requests * 3 / 2,
        "{} requests a cycle, {} on the second day",
        last.requests,
        second.requests
    );
    ensure!(
        last.objects <= second.objects * 3 / 2 + 100,
        "{} objects, {} on the second day",
        last.objects,
        second.objects
    );
    Ok(())
}
