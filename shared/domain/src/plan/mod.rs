//! The planner: which models a cycle refreshes now, and why the others wait. A pure function.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Duration, LiveSettings, Position, Project, TableName, Timestamp,
    items::{Control, ModelState},
};

mod target;

pub use target::short_targets;

/// Everything the planner looks at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The models.
    pub project: &'a Project,
    /// The runner's settings.
    pub live: &'a LiveSettings,
    /// The time.
    pub now: Timestamp,
    /// Heads of every table that has one.
    pub heads: &'a BTreeMap<TableName, Position>,
    /// What each model consumed of each input: `(model, input)`.
    pub consumed: &'a BTreeMap<(TableName, TableName), Position>,
    /// How refreshes went.
    pub states: &'a BTreeMap<TableName, ModelState>,
    /// What people asked.
    pub controls: &'a BTreeMap<TableName, Control>,
    /// When the oldest data arrived that a model has not applied, of models that have a `target_lag` and are behind.
    pub origins: &'a BTreeMap<TableName, Timestamp>,
    /// Heads of landing tables when the cycle opened: nothing is read beyond them (**C-1**).
    pub targets: &'a BTreeMap<TableName, Position>,
    /// Models already attempted in this cycle.
    pub attempted: &'a BTreeSet<TableName>,
}

/// What a cycle does with one model now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Refresh it.
    Refresh,
    /// It is up to date.
    Idle,
    /// This ancestor comes first in the same cycle.
    After(TableName),
    /// It is not attempted.
    Hold(Hold),
}

/// Why a model is not attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A person paused it.
    Paused,
    /// It failed and is not retried before this.
    Backoff(Timestamp),
    /// Its `live_interval` ends then.
    Interval(Timestamp),
    /// It gathers more until the latest start that still keeps a `target_lag`.
    Target {
        /// That start.
        until: Timestamp,
        /// Whose target: its own, or that of a reader further down.
        of: TableName,
    },
    /// This ancestor is paused or failing with data it has not applied.
    Waiting(TableName),
    /// This input has no rows yet, and no table: nothing has landed in what it reads.
    Unfed(TableName),
}

impl View<'_> {
    /// How far a cycle reads an input: landing tables to their target, models to their head.
    fn reach(&self, input: &TableName) -> Position {
        let heads = if input.is_landing() {
            self.targets
        } else {
            self.heads
        };
        heads.get(input).copied().unwrap_or_default()
    }

    fn inputs(&self, model: &TableName) -> &[TableName] {
        self.project.inputs.get(model).map_or(&[], Vec::as_slice)
    }

    fn retry_asked(&self, model: &TableName) -> bool {
        self.controls
            .get(model)
            .is_some_and(|control| control.retry)
    }
}

/// Whether some input has come further than the model consumed, or the model was never built while one has advanced.
#[must_use]
pub fn is_behind(view: &View<'_>, model: &TableName) -> bool {
    let unbuilt = !view.heads.contains_key(model);
    view.inputs(model).iter().any(|input| {
        let reach = view.reach(input);
        let key = (model.clone(), input.clone());
        let consumed = view.consumed.get(&key).copied().unwrap_or_default();
        consumed.is_behind(reach) || (unbuilt && reach.commits > 0)
    })
}

/// Decides every live incremental model.
#[must_use]
pub fn decide(view: &View<'_>) -> BTreeMap<TableName, Decision> {
    let mut decisions: BTreeMap<TableName, Decision> = BTreeMap::new();
    let budgets = target::budgets(view);
    // In DAG order every ancestor is decided before its readers.
    for model in view.project.live() {
        let decision = match decide_one(view, &model.name, &decisions) {
            Decision::Refresh => gather(view, &budgets, &model.name),
            decided => decided,
        };
        decisions.insert(model.name.clone(), decision);
    }
    decisions
}

fn decide_one(
    view: &View<'_>,
    model: &TableName,
    decided: &BTreeMap<TableName, Decision>,
) -> Decision {
    let behind = is_behind(view, model);
    if behind
        && view
            .controls
            .get(model)
            .is_some_and(|control| control.paused)
    {
        return Decision::Hold(Hold::Paused);
    }
    if let Some(blocking) = blocking_ancestor(view, model, decided) {
        return Decision::Hold(Hold::Waiting(blocking));
    }
    if let Some(first) = coming_ancestor(view, model, decided) {
        return Decision::After(first);
    }
    if !behind {
        return Decision::Idle;
    }
    if let Some(unfed) = unfed_input(view, model, decided) {
        return Decision::Hold(Hold::Unfed(unfed));
    }
    let state = view.states.get(model);
    let retry = view.retry_asked(model);
    if view.attempted.contains(model) {
        // Its attempt did not catch it up: it failed, conflicted, or its inputs moved on. Next cycle.
        let until = state.and_then(|state| state.retry_at).unwrap_or(view.now);
        return Decision::Hold(Hold::Backoff(until));
    }
    if let Some(at) = state.and_then(|state| state.retry_at)
        && !retry
        && view.now < at
    {
        return Decision::Hold(Hold::Backoff(at));
    }
    if let Some(until) = interval_end(view, model)
        && !retry
        && view.now < until
    {
        return Decision::Hold(Hold::Interval(until));
    }
    Decision::Refresh
}

/// A refresh that could start, unless its model has a target and time to gather more.
fn gather(
    view: &View<'_>,
    budgets: &BTreeMap<TableName, target::Budget>,
    model: &TableName,
) -> Decision {
    match target::wait(view, budgets, model) {
        Some((until, of)) if view.now < until && !view.retry_asked(model) => {
            Decision::Hold(Hold::Target { until, of })
        }
        _ => Decision::Refresh,
    }
}

/// End of the model's `live_interval`, counted from its last success.
fn interval_end(view: &View<'_>, model: &TableName) -> Option<Timestamp> {
    let interval = view.project.models.get(model)?.config.live_interval?;
    Some(view.states.get(model)?.last_refresh? + interval)
}

/// The nearest live input that is stuck with data it has not applied: paused, failing, or itself waiting.
fn blocking_ancestor(
    view: &View<'_>,
    model: &TableName,
    decided: &BTreeMap<TableName, Decision>,
) -> Option<TableName> {
    view.inputs(model).iter().find_map(|input| {
        let stuck = match decided.get(input)? {
            Decision::Hold(Hold::Paused | Hold::Waiting(_) | Hold::Unfed(_)) => true,
            // An attempt of this cycle that conflicted, or an ancestor inside its interval, holds nobody up.
            Decision::Hold(Hold::Backoff(_)) => is_failing(view, input),
            Decision::Hold(Hold::Interval(_) | Hold::Target { .. }) => false,
            Decision::Refresh => false,
            Decision::After(_) | Decision::Idle => false,
        };
        stuck.then(|| input.clone())
    })
}

/// The nearest live input that is still to be refreshed in this cycle.
fn coming_ancestor(
    view: &View<'_>,
    model: &TableName,
    decided: &BTreeMap<TableName, Decision>,
) -> Option<TableName> {
    view.inputs(model)
        .iter()
        .find(|input| {
            matches!(
                decided.get(*input),
                Some(Decision::Refresh | Decision::After(_))
            )
        })
        .cloned()
}

/// The first live input that could not be built so far, since nothing has come in what it reads itself.
fn unfed_input(
    view: &View<'_>,
    model: &TableName,
    decided: &BTreeMap<TableName, Decision>,
) -> Option<TableName> {
    let is_unfed = |input: &&TableName| {
        decided.get(*input) == Some(&Decision::Idle)
            && !view.heads.contains_key(*input)
            && !view.inputs(input).is_empty()
    };
    view.inputs(model).iter().find(is_unfed).cloned()
}

fn is_failing(view: &View<'_>, model: &TableName) -> bool {
    view.states
        .get(model)
        .is_some_and(|state| state.failures > 0)
}

/// The word the status shows of every live incremental model, and the model that is waited for: `live`, `behind`,
/// `waiting`, `failing`, `paused`.
#[must_use]
pub fn words(view: &View<'_>) -> BTreeMap<TableName, (&'static str, Option<TableName>)> {
    // Before all time no backoff is over: a failing ancestor keeps its readers waiting until it succeeds.
    let decisions = decide(&View {
        now: Timestamp(i64::MIN),
        attempted: &BTreeSet::new(),
        ..*view
    });
    let word = |model: &TableName, decision: &Decision| {
        let control = view.controls.get(model);
        if control.is_some_and(|control| control.paused) {
            return ("paused", None);
        }
        if is_failing(view, model) {
            return ("failing", None);
        }
        match decision {
            Decision::Hold(Hold::Waiting(on)) => ("waiting", Some(root_of_wait(&decisions, on))),
            Decision::Hold(Hold::Unfed(on)) => ("waiting", Some(on.clone())),
            _ if is_behind(view, model) => ("behind", None),
            _ => ("live", None),
        }
    };
    decisions
        .iter()
        .map(|(model, decision)| (model.clone(), word(model, decision)))
        .collect()
}

/// Follows waits to the model that is paused or failing itself, or has no rows yet.
fn root_of_wait(decisions: &BTreeMap<TableName, Decision>, from: &TableName) -> TableName {
    let mut at = from;
    while let Some(Decision::Hold(Hold::Waiting(on) | Hold::Unfed(on))) = decisions.get(at) {
        at = on;
    }
    at.clone()
}

/// Delay before retry number `failures`: `backoff_base * 2^(failures - 1)`, at most `backoff_max`; zero without failures.
/// No jitter.
#[must_use]
pub fn backoff(failures: u32, live: &LiveSettings) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let doubled = 2_u32
        .checked_pow(failures.saturating_sub(1))
        .unwrap_or(u32::MAX);
    live.backoff_base
        .checked_mul(doubled)
        .unwrap_or(live.backoff_max)
        .min(live.backoff_max)
}

#[cfg(test)]
mod tests;
