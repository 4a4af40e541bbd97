//! The one transaction of a refresh (**W-2**), and the record of one that failed.

use domain::{
    Duration, Materialized, Position, SEQUENCE, Timestamp,
    items::{self, Advance, Consumed, Control, Head, ModelState},
    lag::slow_ms,
    plan,
};
use ports::{
    Error, Kind, Result,
    queue::Announcement,
    state::{Expect, Key, WRITES_MAX, Write},
};

use super::{
    Refreshed, alert, events, history,
    job::{Job, Loaded, is_live, shape},
    make::Made,
};
use crate::{World, load};

/// Ends the digest of a table with rows of several definitions. No digest has it.
const SEVERAL: &str = "+";
/// Commits of a model that stay listed: what a reader may still have to find the origin of.
const COMMITS_KEPT: u64 = 1_000;
/// Attempts to record a failure while others write the same items.
const ATTEMPTS_MAX: u32 = 4;

/// When a build began, and how old the oldest data is that it applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The beginning.
    pub(crate) began: Timestamp,
    /// Arrival of the oldest data; none when the inputs brought nothing new.
    pub(crate) origin: Option<Timestamp>,
}

/// Commits staged rows with all that belongs to them, and announces them.
///
/// # Errors
/// `Unavailable` from the state store; `TooLarge` for a model with more inputs than a transaction can hold.
pub(crate) async fn commit(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    made: Made,
    times: Times,
) -> Result<Refreshed> {
    let now = world.clock.now();
    let lag = times
        .origin
        .map_or(Duration::ZERO, |origin| now.since(origin));
    let (recent, over) = history::note(job, loaded, now, times.origin);
    let state = ModelState {
        lag: recent,
        ..succeeded(world, job, loaded, &made, now, times, lag)
    };
    let Made {
        staged,
        quarantined,
        rebuilt,
        recomputed,
        late,
        writes: others,
        ..
    } = made;
    let position = published(loaded, &staged);
    let mut writes = staged.writes;
    if staged.changed {
        // Nobody has read anything of a table's first rows, so they replace nothing.
        let rebuilt = match (&loaded.head, (rebuilt || late) && is_live(job.model)) {
            (Some(_), true) => position.commits,
            (Some(head), false) => head.rebuilt,
            (None, _) => 0,
        };
        let head = Head {
            position,
            rows: staged.rows,
            rebuilt,
            advanced_at: now,
            columns: Vec::new(),
            snapshot: Some(staged.snapshot),
        };
        let advance = Advance {
            from: loaded.published().sequence,
            to: position.sequence,
            rows: staged.added,
            origin_at: times.origin.unwrap_or(now),
            committed_at: now,
            data: None,
        };
        writes.extend(advanced(job, loaded, &head, &advance));
    }
    if let Some(tombstones) = &staged.tombstones {
        writes.extend(events::bury(world, loaded, tombstones)?);
    }
    writes.extend(others);
    let truncated = staged.truncated.as_ref();
    writes.extend(events::remember(world, job, loaded, (rebuilt, truncated))?);
    writes.extend(consumed(job, loaded));
    let key = load::state(&job.model.name);
    writes.push(Write::put(key.clone(), &state, loaded.items.expect(&key)));
    writes.extend(answered(job, loaded));
    // An interval of history makes no commit impossible that fits without it.
    if writes.len() + over.len() <= WRITES_MAX {
        writes.extend(over);
    }
    if writes.len() > WRITES_MAX {
        let why = format!(
            "it takes {} writes, a transaction holds {WRITES_MAX}",
            writes.len()
        );
        return Err(Error::new(Kind::TooLarge, "commit model", &job.model.name).because(why));
    }
    if !world.state.transact(writes).await?.is_committed() {
        return Ok(Refreshed::Conflict);
    }
    if staged.changed {
        announce(
            world,
            Announcement {
                table: job.model.name.clone(),
                position,
            },
        )
        .await;
    }
    if loaded.state.failures > 0 && is_live(job.model) && !late {
        alert::recovered(world, &job.model.name, now).await;
    }
    Ok(Refreshed::Built {
        added: staged.added,
        deleted: staged.deleted,
        rows: staged.rows,
        lag_ms: millis(lag),
        duration_ms: millis(now.since(times.began)),
        warnings: state.warnings,
        quarantined,
        recomputed,
    })
}

/// The position after the commit: both numbers only rise (**W-1**), and a commit that changed nothing moves neither.
fn published(loaded: &Loaded, staged: &ports::tables::Staged) -> Position {
    let before = loaded.published();
    if !staged.changed {
        return before;
    }
    let commits = before.commits + 1;
    let sequence = match staged.schema.column_with_name(SEQUENCE) {
        Some(_) => staged.sequence_max.unwrap_or(0),
        None => commits,
    };
    before.advance(Position { sequence, commits })
}

/// Events that may be older than a tombstone that is gone.
fn events(batches: &[arrow::array::RecordBatch]) -> u64 {
    batches.iter().map(|batch| batch.num_rows() as u64).sum()
}

/// Own head, own commit, own place in the listing.
fn advanced(job: &Job<'_>, loaded: &Loaded, head: &Head, advance: &Advance) -> Vec<Write> {
    let name = &job.model.name;
    let (key, commits) = (load::head(name), head.position.commits);
    let commit = |number| Key::new(items::table(name), items::commit(number));
    let mut writes = vec![
        Write::put(key.clone(), head, loaded.items.expect(&key)),
        Write::put(commit(commits), advance, Expect::Any),
    ];
    if loaded.head.is_none() {
        writes.push(Write::put(
            load::listing(name),
            &serde_json::json!({}),
            Expect::Any,
        ));
    }
    if let Some(old) = commits.checked_sub(COMMITS_KEPT).filter(|old| *old > 0) {
        writes.push(Write::Delete {
            key: commit(old),
            expect: Expect::Any,
        });
    }
    writes
}

/// Every watermark that moved.
fn consumed<'a>(job: &'a Job<'_>, loaded: &'a Loaded) -> impl Iterator<Item = Write> + 'a {
    loaded
        .inputs
        .iter()
        .filter(|input| input.to != input.consumed || input.snapshot != input.from)
        .map(|input| {
            let key = load::consumed(&job.model.name, &input.table);
            let expect = loaded.items.expect(&key);
            let consumed = Consumed {
                position: input.to,
                snapshot: input.snapshot.clone(),
            };
            Write::put(key, &consumed, expect)
        })
}

/// The request for a retry, answered by the attempt.
fn answered(job: &Job<'_>, loaded: &Loaded) -> Option<Write> {
    loaded.control.retry.then(|| {
        let key = load::control(&job.model.name);
        let expect = loaded.items.expect(&key);
        Write::put(
            key,
            &Control {
                retry: false,
                ..loaded.control.clone()
            },
            expect,
        )
    })
}

fn succeeded(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    made: &Made,
    now: Timestamp,
    times: Times,
    lag: Duration,
) -> ModelState {
    let before = &loaded.state;
    let (asserted_at, warnings) = match &made.warnings {
        Some(warnings) => (Some(world.clock.now()), warnings.clone()),
        None if job.model.asserts.is_empty() => (None, Vec::new()),
        None => (before.asserted_at, before.warnings.clone()),
    };
    // Rows that come out of quarantine say nothing about those that a model fails on.
    let failing = made.late.then_some(before);
    ModelState {
        failures: failing.map_or(0, |before| before.failures),
        retry_at: failing.and_then(|before| before.retry_at),
        last_error: failing.and_then(|before| before.last_error.clone()),
        lost: failing.is_some_and(|before| before.lost),
        refreshes: before.refreshes + 1,
        rows: before.rows + made.staged.added,
        unavailable: before.unavailable + made.staged.unavailable,
        late_after_gc: before.late_after_gc + events(&made.staged.late),
        unordered: before.unordered + events(&made.staged.refused),
        quarantined: made.held.unwrap_or(before.quarantined),
        last_refresh: Some(now),
        last_lag_ms: Some(millis(lag)),
        last_duration_ms: Some(millis(now.since(times.began))),
        // How long it takes to build the table from nothing says little about a refresh.
        slow_ms: match loaded.is_built() && !made.rebuilt {
            true => Some(slow_ms(before.slow_ms, millis(now.since(times.began)))),
            false => before.slow_ms,
        },
        lag: before.lag.clone(),
        asserted_at,
        warnings,
        shape: Some(shape(job.model)),
        built_from: match &before.built_from {
            // Rows of earlier definitions stay until a rebuild, and so do those of a process that had not been told of an edit.
            Some(first)
                if is_live(job.model)
                    && job.model.config.materialized == Materialized::Incremental
                    && loaded.is_built()
                    && !made.rebuilt =>
            {
                Some(joined(first, &job.digest))
            }
            _ => Some(job.digest.clone()),
        },
    }
}

/// What a table is built from that has rows of `first`, and gets rows of `digest`: itself, or no definition that a model can have,
/// so that the model is edited for whoever looks, until it is rebuilt.
fn joined(first: &str, digest: &str) -> String {
    match first == digest || first.ends_with(SEVERAL) {
        true => first.to_owned(),
        false => format!("{first}{SEVERAL}"),
    }
}

/// Why a model failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Why<'a> {
    /// In words.
    pub(crate) message: &'a str,
    /// Whether it is that nothing was heard of its refreshes.
    pub(crate) lost: bool,
}

impl<'a> Why<'a> {
    /// An attempt said so.
    pub(crate) fn said(message: &'a str) -> Self {
        Self {
            message,
            lost: false,
        }
    }

    /// No attempt was heard of.
    pub(crate) fn lost(message: &'a str) -> Self {
        Self {
            message,
            lost: true,
        }
    }
}

/// Records that an attempt failed: when to try again, and why it failed. Tells people the first time.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the state store.
pub(crate) async fn fail(
    world: &World,
    job: &Job<'_>,
    loaded: Loaded,
    why: Why<'_>,
) -> Result<bool> {
    let name = &job.model.name;
    let refreshes = loaded.state.refreshes;
    let mut loaded = loaded;
    for _ in 0..ATTEMPTS_MAX {
        let now = world.clock.now();
        let state = failed(world, &loaded.state, now, why);
        let key = load::state(name);
        let mut writes = vec![Write::put(key.clone(), &state, loaded.items.expect(&key))];
        writes.extend(answered(job, &loaded));
        if world.state.transact(writes).await?.is_committed() {
            if loaded.state.failures == 0 && is_live(job.model) {
                alert::failed(world, name, now, why.message).await;
            }
            return Ok(true);
        }
        loaded = Loaded::read(world, job).await?;
        if loaded.state.refreshes != refreshes {
            // Somebody else refreshed it meanwhile: what failed here is overtaken.
            return Ok(false);
        }
    }
    Ok(false)
}

fn failed(world: &World, before: &ModelState, now: Timestamp, why: Why<'_>) -> ModelState {
    let failures = before.failures.saturating_add(1);
    let delay = plan::backoff(failures, &world.live);
    let factor = 1.0 + world.live.jitter * (2.0 * world.chance.fraction() - 1.0);
    let delay = Duration::try_from_secs_f64(delay.as_secs_f64() * factor).unwrap_or(delay);
    ModelState {
        failures,
        retry_at: Some(now + delay),
        last_error: Some(why.message.to_owned()),
        lost: why.lost,
        ..before.clone()
    }
}

/// Announces a commit. What is lost here is found by the next poll.
pub(super) async fn announce(world: &World, announcement: Announcement) {
    if let Err(error) = world.queue.send(&[announcement]).await {
        tracing::warn!(
            error = error.chain(),
            "an announcement was lost; the next poll finds the commit"
        );
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
