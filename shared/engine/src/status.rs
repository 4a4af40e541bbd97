//! Where everything stands: the payload of `GET /api/live/status` and of `headwater live status`.

use std::collections::BTreeMap;

use domain::{
    Duration, LiveSettings, TableName, Timestamp,
    items::{self, Head},
    lag::Summary,
    plan::{self, Decision, Hold},
};
use futures::{StreamExt, TryStreamExt, stream};
use ports::{
    Result, State,
    state::{Span, query_all},
};
use serde::Serialize;
use serde_json::json;

use crate::{
    World, explain,
    known::Known,
    lags,
    load::{self, Items},
    refresh::{
        job::{digest, is_edited},
        lag,
    },
};

/// Models whose lag is looked up at the same time.
const LOOKUPS_MAX: usize = 8;
/// Tables listed by one request.
const PAGE: usize = 1_000;

/// The whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// RFC 3339.
    pub now: String,
    /// The runner of the process that answers; none when it has none, as a command has.
    pub runner: Option<RunnerStatus>,
    /// The `live:` settings, durations in seconds.
    pub settings: BTreeMap<&'static str, serde_json::Value>,
    /// Live incremental models, in DAG order.
    pub models: Vec<ModelStatus>,
    /// Landing tables.
    pub sources: Vec<SourceStatus>,
    /// Highest lag of any model.
    pub max_lag_seconds: f64,
}

/// The runner.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunnerStatus {
    /// Whether it runs in this process.
    pub running: bool,
    /// Cycles since it started.
    pub cycles: u64,
    /// When the last one ended, RFC 3339.
    pub last_cycle_at: Option<String>,
    /// What stopped the last cycle short, if anything.
    pub last_error: Option<String>,
    /// Files of the project that changed since it was read: what they say now is not what runs.
    pub changed_files: Vec<String>,
}

/// One live model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelStatus {
    /// The model.
    pub model: TableName,
    /// `live`, `behind`, `waiting`, `failing` or `paused`.
    pub status: &'static str,
    /// Whether it is paused.
    pub paused: bool,
    /// The model it waits for.
    pub waiting_on: Option<TableName>,
    /// Age of the oldest landing data not yet applied; 0 when caught up.
    pub lag_seconds: f64,
    /// Age of the oldest landing data that is not in it, wherever it has stopped: the highest lag of the model and of those it
    /// reads, directly or not.
    pub behind_seconds: f64,
    /// Whether that is at or below `max_lag`.
    pub fresh: bool,
    /// Lags of what was applied in the last hour; none when nothing was.
    pub lag_hour: Option<Summary>,
    /// Lags counted ever.
    pub lag_count: u64,
    /// Their sum.
    pub lag_total_ms: u64,
    /// Its `target_lag`, in seconds.
    pub target_seconds: Option<f64>,
    /// Whether the target is met: by the 95th percentile of the last hour, and by the lag now; none without a target.
    pub target_met: Option<bool>,
    /// Until when it gathers more before it is refreshed, RFC 3339; none when it waits for nothing of the kind.
    pub gathers_until: Option<String>,
    /// How long ago a refresh of it was asked for, elsewhere, that has not ended; none when there is none such.
    pub asked_seconds: Option<f64>,
    /// Lag that the last refresh removed.
    pub last_lag_ms: Option<u64>,
    /// Time the last refresh took.
    pub last_duration_ms: Option<u64>,
    /// When it ended, RFC 3339.
    pub last_refresh: Option<String>,
    /// Refreshes that succeeded.
    pub refreshes: u64,
    /// Rows they wrote.
    pub rows_written: u64,
    /// Rows in the table.
    pub rows: u64,
    /// Published watermark.
    pub watermark: u64,
    /// Consumed watermark per input.
    pub consumed: BTreeMap<TableName, u64>,
    /// Failures since the last success.
    pub consecutive_failures: u32,
    /// The last error; none after a success.
    pub last_error: Option<String>,
    /// Seconds until the next retry; none when not failing.
    pub retry_in_seconds: Option<f64>,
    /// Whether its definition is another one than its rows were built from: new rows follow the new one.
    pub edited: bool,
    /// What that means for its rows, and what to do about it.
    pub edit: Option<String>,
    /// Change events quarantined since their key's tombstone may be gone.
    pub late_after_gc: u64,
    /// Change events quarantined since they had no `cdc_seq`.
    pub unordered_events: u64,
    /// Rows of its inputs that are in quarantine.
    pub quarantined: u64,
    /// Values of change events that had not changed and were not there to be kept: NULL since.
    pub unavailable_values: u64,
    /// Warn-severity assertions that failed in the last refresh.
    pub warnings: Vec<String>,
    /// Why every refresh computes all its rows anew, though it replaces those of affected keys where it can.
    pub recomputes: Option<String>,
}

/// One landing table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceStatus {
    /// The table.
    pub source: TableName,
    /// Last sequence.
    pub watermark: u64,
    /// Commits.
    pub commits: u64,
    /// Rows.
    pub rows: u64,
    /// When it last advanced, RFC 3339.
    pub advanced_at: Option<String>,
    /// Whether a model takes its rows as change events.
    pub changes: bool,
}

/// Reads it all.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the state store.
pub async fn status(world: &World, runner: Option<RunnerStatus>) -> Result<Status> {
    let known = Known::load(world).await?;
    let sources = sources(world).await?;
    let now = world.clock.now();
    let (targets, attempted) = (known.targets(), std::collections::BTreeSet::new());
    let words = plan::words(&known.view(world, now, &targets, &attempted));
    let decisions = known.outlook(world);
    let order = world.project.order.iter();
    // Collected, as a stream that holds the closure cannot be proved `Send` by its callers.
    let lookups: Vec<_> = order
        .filter(|name| known.states.contains_key(*name))
        .map(|model| {
            one(
                world,
                &known,
                (words.get(model), decisions.get(model)),
                model,
                now,
            )
        })
        .collect();
    let mut models: Vec<ModelStatus> = stream::iter(lookups)
        .buffered(LOOKUPS_MAX)
        .try_collect()
        .await?;
    inherit(world, &mut models);
    let max_lag_seconds = models
        .iter()
        .map(|model| model.lag_seconds)
        .fold(0.0, f64::max);
    Ok(Status {
        now: now.to_string(),
        runner,
        settings: settings(&world.live),
        models,
        sources,
        max_lag_seconds,
    })
}

/// A model is as old as what it reads: data that stopped above it is in it no more than in that. In dependency order.
fn inherit(world: &World, models: &mut [ModelStatus]) {
    let mut lags: BTreeMap<TableName, f64> = BTreeMap::new();
    for model in models {
        let inputs = world.project.inputs.get(&model.model).into_iter().flatten();
        let above = inputs.filter_map(|input| lags.get(input).copied());
        let lag = above.fold(model.lag_seconds, f64::max);
        model.behind_seconds = lag;
        model.fresh = lag <= world.live.max_lag.as_secs_f64();
        let late = model.target_seconds.is_some_and(|target| lag > target);
        model.target_met = model.target_met.map(|met| met && !late);
        lags.insert(model.model.clone(), lag);
    }
}

/// A model's word, and the model it waits for.
type Word = (&'static str, Option<TableName>);

async fn one(
    world: &World,
    known: &Known,
    (word, decision): (Option<&Word>, Option<&Decision>),
    model: &TableName,
    now: Timestamp,
) -> Result<ModelStatus> {
    let inputs = known.inputs(world, model);
    let origin = lag::origin(world, &inputs).await?;
    let lag = origin.map_or(Duration::ZERO, |origin| now.since(origin));
    let (status, waiting_on) = word.cloned().unwrap_or(("live", None));
    let state = known.states.get(model).cloned().unwrap_or_default();
    let head = known.heads.get(model);
    let definition = world.project.models.get(model);
    let edited = definition.is_some_and(|model| is_edited(&state, &digest(&world.project, model)));
    let lag_hour = lags::hour(&*world.state, model, &state, now).await?;
    let target = definition.and_then(|model| model.config.target_lag);
    Ok(ModelStatus {
        model: model.clone(),
        status,
        paused: known
            .controls
            .get(model)
            .is_some_and(|control| control.paused),
        waiting_on,
        lag_seconds: lag.as_secs_f64(),
        behind_seconds: lag.as_secs_f64(),
        fresh: lag <= world.live.max_lag,
        lag_hour,
        lag_count: state.lag.as_ref().map_or(0, |recent| recent.count),
        lag_total_ms: state.lag.as_ref().map_or(0, |recent| recent.total_ms),
        target_seconds: target.map(|target| target.as_secs_f64()),
        target_met: target.map(|target| lag <= target && is_met(lag_hour, target)),
        gathers_until: match decision {
            Some(Decision::Hold(Hold::Target { until, .. })) => Some(until.to_string()),
            _ => None,
        },
        asked_seconds: known.asked(model).map(|at| now.since(at).as_secs_f64()),
        last_lag_ms: state.last_lag_ms,
        last_duration_ms: state.last_duration_ms,
        last_refresh: state.last_refresh.map(|at| at.to_string()),
        refreshes: state.refreshes,
        rows_written: state.rows,
        rows: head.map_or(0, |head| head.rows),
        watermark: head.map_or(0, |head| head.position.sequence),
        consumed: inputs
            .into_iter()
            .map(|i| (i.table, i.consumed.sequence))
            .collect(),
        consecutive_failures: state.failures,
        last_error: state.last_error,
        edited,
        edit: definition.filter(|_| edited).map(explain::edited),
        retry_in_seconds: state.retry_at.map(|at| at.since(now).as_secs_f64()),
        late_after_gc: state.late_after_gc,
        unordered_events: state.unordered,
        quarantined: state.quarantined,
        unavailable_values: state.unavailable,
        warnings: state.warnings,
        recomputes: match definition.and_then(|model| world.project.traced(model)) {
            Some(Err(why)) => Some(why.to_string()),
            Some(Ok(_)) | None => None,
        },
    })
}

/// Whether the 95th percentile of the last hour kept a target. It may be read a sixteenth too high, which is let pass.
fn is_met(hour: Option<Summary>, target: Duration) -> bool {
    hour.is_none_or(|hour| Duration::from_millis(hour.p95_ms - hour.p95_ms / 17) <= target)
}

/// Landing tables that exist, and those that models wait for.
async fn sources(world: &World) -> Result<Vec<SourceStatus>> {
    let mut tables = landing_tables(&*world.state).await?;
    tables.extend(
        world
            .project
            .inputs
            .values()
            .flatten()
            .filter(|t| t.is_landing())
            .cloned(),
    );
    tables.sort();
    tables.dedup();
    let heads = Items::load(&*world.state, tables.iter().map(load::head)).await?;
    tables
        .into_iter()
        .map(|source| {
            let inputs = world.project.inputs.iter();
            let changes =
                inputs
                    .filter(|(_, inputs)| inputs.contains(&source))
                    .any(|(model, _)| {
                        let model = world.project.models.get(model);
                        model.is_some_and(|model| model.config.cdc.is_some())
                    });
            Ok(SourceStatus {
                changes,
                ..source_status(heads.head(&source)?.as_ref(), source)
            })
        })
        .collect()
}

fn source_status(head: Option<&Head>, source: TableName) -> SourceStatus {
    let position = head.map(|head| head.position).unwrap_or_default();
    let advanced_at = head
        .filter(|head| head.position.commits > 0)
        .map(|head| head.advanced_at);
    SourceStatus {
        source,
        watermark: position.sequence,
        commits: position.commits,
        rows: head.map_or(0, |head| head.rows),
        advanced_at: advanced_at.map(|at| at.to_string()),
        changes: false,
    }
}

/// Every landing table that has a head, by name.
async fn landing_tables(state: &dyn State) -> Result<Vec<TableName>> {
    let span = Span::prefix(items::TABLES, &format!("{}.", domain::LANDING), PAGE);
    let listed = query_all(state, span).await?;
    // The listing is only written with names of tables.
    Ok(listed
        .iter()
        .filter_map(|item| item.key.sort.parse().ok())
        .collect())
}

fn settings(live: &LiveSettings) -> BTreeMap<&'static str, serde_json::Value> {
    let spans = [
        ("min_interval", live.min_interval),
        ("debounce", live.debounce),
        ("max_latency", live.max_latency),
        ("poll_interval", live.poll_interval),
        ("log_interval", live.log_interval),
        ("backoff_base", live.backoff_base),
        ("backoff_max", live.backoff_max),
        ("assertion_interval", live.assertion_interval),
        ("profile_interval", live.profile_interval),
        ("max_lag", live.max_lag),
    ];
    let mut settings: BTreeMap<_, _> = spans
        .into_iter()
        .map(|(name, span)| (name, json!(span.as_secs_f64())))
        .collect();
    settings.insert("enabled", json!(live.enabled));
    settings
}
