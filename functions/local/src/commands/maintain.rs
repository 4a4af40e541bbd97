//! `headwater maintain`: all that is to be tidied up now.

use domain::Duration;
use engine::{
    World,
    maintain::{self, Budget, Report},
};

use super::{Context, print_json};
use crate::{
    failure::Failure,
    screen::{count, right, say, table, text},
    world,
};

/// What one round may take before it says how far it came.
const ROUND: Budget = Budget {
    time: Duration::from_secs(5),
    steps: 1_000,
    all: true,
};
/// Rounds in a row that do nothing before it is left to somebody else: another process is at it.
const IDLE_MAX: u32 = 3;

/// Maintains until nothing is left to do, and shows what was done.
pub(super) async fn maintain(context: &Context) -> Result<(), Failure> {
    let world = world::open_any(&context.settings()?)?;
    let mut report = Report::default();
    let mut idle = 0;
    while idle < IDLE_MAX {
        let round = maintain::maintain(&world, &ROUND, world.clock.now()).await;
        let (more, failed) = (round.more, !round.errors.is_empty());
        let done = Report {
            steps: report.steps + round.steps,
            ..report.clone()
        };
        report.add(round);
        report.more = more;
        idle = match report == (Report { more, ..done }) {
            true => idle + 1,
            false => 0,
        };
        if !more || failed {
            break;
        }
    }
    if context.json {
        print_json(&report)?;
    } else {
        say(&shown(&report).to_string())?;
    }
    match report.errors.first() {
        None => Ok(()),
        Some(error) => Err(Failure::unavailable(format!("maintain: {error}"))),
    }
}

/// A little of it, beside other work: what fails is logged, and is the next one's to do.
pub(super) async fn some(world: &World) {
    let settings = &world.live.maintenance;
    if settings.enabled {
        let budget = Budget::of(settings);
        maintain::tell(&maintain::maintain(world, &budget, world.clock.now()).await);
    }
}

fn shown(report: &Report) -> crate::screen::Table {
    let mut table = table(&["what was done", ">how many"]);
    for (what, number) in [
        ("landing commits folded", report.folded_commits),
        ("objects they were folded into", report.folds),
        ("snapshots expired", report.snapshots),
        ("data files compacted", report.compacted_files),
        ("objects found unused", report.garbage_found),
        (
            "objects waiting for their grace time",
            report.garbage_waiting,
        ),
        ("objects removed", report.garbage_removed),
        ("bytes removed", report.garbage_bytes),
        ("idempotency keys forgotten", report.keys_forgotten),
        ("steps left to others", report.conflicts),
    ] {
        table.add_row(vec![text(what), right(count(number))]);
    }
    table
}
