//! The simulation: the whole protocol under a seeded scheduler, on ports in memory.
//!
//! Each seed is a project, a crowd of processes and a weather. Every port call waits for the scheduler, which lets one go
//! at a time and may have it fail, be answered wrongly, or be the last of its process. Every committed transaction is held
//! against the invariants, and every table against a naive oracle.
//!
//! `HEADWATER_SEEDS=N` runs the first N seeds of live models instead of the usual number, and the first N/5 of entries and
//! of their clients; `HEADWATER_SEED=n` runs one of each, and prints it.

mod actors;
mod book;
mod broken;
mod cache;
mod clients;
mod crowd;
mod finder;
mod frame;
mod gate;
mod mail;
mod models;
mod oracle;
mod patron;
mod plan;
mod query;
mod run;
mod scheduler;
mod shelf;
mod sim;
mod spoilt;
mod watch;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use broken::Broken;
use crowd::{Crowd, Victim};
use libtest_mimic::{Arguments, Failed, Trial};
use plan::Mode;

/// Seeds of one test.
const CHUNK: u64 = 250;
/// Seeds that run when nobody says how many.
const USUAL: u64 = 1_000;
/// Seeds within which a broken build has to be caught.
const CAUGHT_WITHIN: u64 = 1_000;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn test(name: String, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        run().map_err(|error| Failed::from(format!("{error:#}")))
    })
}

fn trials() -> Vec<Trial> {
    let number = |variable: &str| std::env::var(variable).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("HEADWATER_SEED") {
        return vec![
            test("one_seed".to_owned(), move || one(seed, run::run)),
            test("one_seed_of_entries".to_owned(), move || {
                one(seed, cache::run)
            }),
            test("one_seed_of_clients".to_owned(), move || {
                one(seed, patron::run)
            }),
        ];
    }
    let seeds = number("HEADWATER_SEEDS").unwrap_or(USUAL);
    // Entries have fewer states to reach than live models, and every death of theirs is played besides: see `crowds`.
    let fewer = seeds.div_ceil(5);
    let kinds: [(&str, u64, Play); 3] = [
        ("seeds", seeds, run::run),
        ("entries", fewer, cache::run),
        ("clients", fewer, patron::run),
    ];
    let mut trials: Vec<Trial> = Vec::new();
    for (kind, seeds, play) in kinds {
        for from in (0..seeds).step_by(usize::try_from(CHUNK).unwrap_or(1)) {
            let until = (from + CHUNK).min(seeds);
            let name = format!("{kind}_{from:05}_to_{:05}", until - 1);
            trials.push(test(name, move || chunk(from, until, play)));
        }
    }
    trials.push(test(
        "catches::an_entry_committed_without_conditions".to_owned(),
        || caught(Broken::NoConditions, cache::run),
    ));
    for broken in Broken::OF_ENTRIES {
        trials.push(test(format!("catches::{}", broken.name()), move || {
            caught(broken, cache::run)
        }));
    }
    trials.push(test(format!("catches::{}", Broken::Crossed.name()), || {
        caught(Broken::Crossed, patron::run)
    }));
    trials.extend(crowds());
    trials.push(test("a_seed_is_the_same_every_time".to_owned(), repeats));
    for mode in [Mode::Embedded, Mode::Functions] {
        let name = format!("a_thousand_advances_in_a_second::{mode:?}").to_lowercase();
        trials.push(test(name, move || burst(mode)));
    }
    for broken in Broken::ALL {
        trials.push(test(format!("catches::{}", broken.name()), move || {
            caught(broken, run::run)
        }));
    }
    trials
}

/// Crowds around one entry, and whoever works on it killed at each call.
fn crowds() -> Vec<Trial> {
    let mut trials = vec![
        test(
            "crowds::a_hundred_cold_callers_build_once".to_owned(),
            || crowd::crowd(Crowd::Cold),
        ),
        test(
            "crowds::a_thousand_callers_of_an_expired_entry_are_served_at_once".to_owned(),
            || crowd::crowd(Crowd::Expired),
        ),
    ];
    for gather in [Crowd::Cold, Crowd::Expired] {
        let name = format!("catches::a_{gather:?}_crowd_without_conditions").to_lowercase();
        trials.push(test(name, move || {
            crowd::caught(gather, Broken::NoConditions)
        }));
    }
    for victim in Victim::ALL {
        let name = format!("deaths::of_a_{victim:?}_at_each_of_its_calls").to_lowercase();
        trials.push(test(name, move || crowd::each_death(victim)));
    }
    trials
}

/// What plays a seed.
type Play = fn(u64, Option<Broken>) -> Result<run::Verdict>;

fn one(seed: u64, play: Play) -> Result<()> {
    println!("{:?}", plan::Plan::draw(seed, None));
    let verdict = play(seed, None)?;
    println!("{verdict:?}");
    match verdict.failure {
        Some(failure) => bail!("{failure}"),
        None => Ok(()),
    }
}

fn chunk(from: u64, until: u64, play: Play) -> Result<()> {
    let began = std::time::Instant::now();
    let (mut steps, mut commits, mut failures) = (0, 0, Vec::new());
    for seed in from..until {
        let verdict = play(seed, None).with_context(|| format!("seed {seed}"))?;
        (steps, commits) = (steps + verdict.steps, commits + verdict.commits);
        failures.extend(verdict.failure);
        if failures.len() >= 3 {
            break;
        }
    }
    println!("{steps} steps, {commits} commits in {:?}", began.elapsed());
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

/// The scheduler orders everything: what a seed does is always the same.
fn repeats() -> Result<()> {
    let kinds: [Play; 3] = [run::run, cache::run, patron::run];
    for play in kinds {
        for seed in 0..40 {
            let (once, again) = (play(seed, None)?, play(seed, None)?);
            ensure!(
                (once.steps, once.digest) == (again.steps, again.digest),
                "seed {seed} took {} steps, then {} others",
                once.steps,
                again.steps
            );
        }
    }
    Ok(())
}

/// At default settings a burst of a thousand advances within a second makes few refreshes.
fn burst(mode: Mode) -> Result<()> {
    let verdict = run::play(plan::Plan::burst(mode, 1_000))?;
    if let Some(failure) = verdict.failure {
        bail!("{failure}");
    }
    println!("{} refreshes", verdict.refreshes);
    ensure!(
        (1..=6).contains(&verdict.refreshes),
        "{} refreshes of one model",
        verdict.refreshes
    );
    Ok(())
}

/// A broken build is found out.
fn caught(broken: Broken, play: Play) -> Result<()> {
    for seed in 0..CAUGHT_WITHIN {
        if let Some(failure) = play(seed, Some(broken))?.failure {
            println!("caught by {failure}");
            return Ok(());
        }
    }
    bail!("{CAUGHT_WITHIN} seeds pass with {}", broken.name())
}
