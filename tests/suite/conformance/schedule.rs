//! Kind `schedule`: arrivals in, cycle starts out. Cycles take no time; unannounced advances are found by any cycle.

use anyhow::{Result, ensure};
use domain::{Duration, Timestamp, schedule::Coalescer};
use tests::case::{Schedule, Start, live_settings};

pub(super) fn replay(schedule: &Schedule) -> Result<()> {
    let live = live_settings(&schedule.settings)?;
    let origin = Timestamp::default();
    let at = |seconds: f64| origin + Duration::from_secs_f64(seconds);
    let horizon = at(schedule.horizon);
    let mut arrivals = schedule.arrivals.iter().peekable();
    let mut coalescer = Coalescer::new(origin);
    let mut waiting = 0;
    let mut cycles = Vec::new();
    loop {
        let due = coalescer.due(&live);
        if let Some(arrival) = arrivals.next_if(|arrival| at(arrival.at) <= due) {
            waiting += 1;
            if arrival.notified {
                coalescer.advanced(at(arrival.at));
            }
            continue;
        }
        if due > horizon {
            break;
        }
        cycles.push(Start {
            at: due.since(origin).as_secs_f64(),
            advances: waiting,
        });
        waiting = 0;
        coalescer.cycle_started(due);
    }
    let want = &schedule.expect.cycles;
    let alike = cycles.len() == want.len()
        && cycles
            .iter()
            .zip(want)
            .all(|(got, want)| (got.at - want.at).abs() < 1e-3 && got.advances == want.advances);
    ensure!(alike, "got {cycles:?}, want {want:?}");
    Ok(())
}
