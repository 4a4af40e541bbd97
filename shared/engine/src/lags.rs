//! How old data was when models applied it: the last hour by minutes, the last day by quarters of an hour.

use domain::{
    TableName, Timestamp, items,
    items::ModelState,
    lag::{self, Grain, Interval, Sketch, Summary},
};
use ports::{
    Error, Kind, Result, State,
    state::{Item, Span, query_all},
};
use serde::Serialize;

use crate::{
    World,
    load::{self, Items},
    refresh::{job::is_live, unknown},
};

/// Intervals read by one request.
const PAGE: usize = 100;

/// The lag history of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// The model.
    pub model: TableName,
    /// RFC 3339.
    pub now: String,
    /// Its `target_lag`, in seconds.
    pub target_seconds: Option<f64>,
    /// All of the last hour; none when nothing was applied in it.
    pub hour: Option<Summary>,
    /// All of the last day.
    pub day: Option<Summary>,
    /// Minutes of the last hour in which anything was applied, oldest first.
    pub minutes: Vec<Stretch>,
    /// Quarters of an hour of the last day, likewise.
    pub quarters: Vec<Stretch>,
}

/// Lags of an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// Its beginning, RFC 3339.
    pub start: String,
    /// Its length.
    pub seconds: u64,
    /// What the lags were.
    #[serde(flatten)]
    pub lags: Summary,
}

/// Reads the lag history of a live model.
///
/// # Errors
/// `NotFound` when there is no such model, `Invalid` when it is not refreshed live; `Unavailable` or `Corrupt` from the
/// state store.
pub async fn history(world: &World, model: &TableName) -> Result<History> {
    let known = world.project.models.get(model);
    let known = known.ok_or_else(|| unknown(world, model))?;
    if !is_live(known) {
        let why = "it is no live incremental model: it is built when a batch run comes by";
        return Err(Error::new(Kind::Invalid, "read the lag of", model).because(why));
    }
    let items = Items::load(&*world.state, [load::state(model)]).await?;
    let state = items.state(model)?;
    let now = world.clock.now();
    let minutes = intervals(&*world.state, model, &state, Grain::Minute, now).await?;
    let quarters = intervals(&*world.state, model, &state, Grain::Quarter, now).await?;
    Ok(History {
        model: model.clone(),
        now: now.to_string(),
        target_seconds: known.config.target_lag.map(|target| target.as_secs_f64()),
        hour: together(&minutes),
        day: together(&quarters),
        minutes: stretches(Grain::Minute, &minutes),
        quarters: stretches(Grain::Quarter, &quarters),
    })
}

/// What lags of the last hour were; none when nothing was applied in it.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the state store.
pub(crate) async fn hour(
    state: &dyn State,
    model: &TableName,
    of: &ModelState,
    now: Timestamp,
) -> Result<Option<Summary>> {
    // What was applied last is the newest there is.
    let since = Grain::Minute.since(now);
    if of
        .lag
        .as_ref()
        .is_none_or(|recent| recent.minute.start < since)
    {
        return Ok(None);
    }
    Ok(together(
        &intervals(state, model, of, Grain::Minute, now).await?,
    ))
}

async fn intervals(
    state: &dyn State,
    model: &TableName,
    of: &ModelState,
    grain: Grain,
    now: Timestamp,
) -> Result<Vec<Interval>> {
    if of.lag.is_none() {
        return Ok(Vec::new());
    }
    let span = Span::prefix(items::model(model), &items::lags(grain), PAGE);
    let kept = query_all(state, span).await?;
    let kept: Vec<Interval> = kept.iter().map(Item::decode).collect::<Result<_>>()?;
    Ok(lag::history(grain, kept, of.lag.as_ref(), now))
}

fn together(intervals: &[Interval]) -> Option<Summary> {
    let mut all = Sketch::default();
    for interval in intervals {
        all.merge(&interval.lags);
    }
    all.summary()
}

fn stretches(grain: Grain, intervals: &[Interval]) -> Vec<Stretch> {
    let stretch = |interval: &Interval| {
        Some(Stretch {
            start: interval.start.to_string(),
            seconds: grain.width().as_secs(),
            lags: interval.lags.summary()?,
        })
    };
    intervals.iter().filter_map(stretch).collect()
}
