//! `target_lag`: the latest start of a refresh that still keeps it. Pure.
//!
//! A model with a target waits, so that one refresh applies more, until its own target or that of a reader further down
//! would be missed: oldest unapplied arrival + target - what the refreshes on the way take - the least time between two
//! cycles, as the one that is due may have to keep its distance from another. Of several readers the tightest counts.
//! A model without a target waits for nothing, but hands the need of its readers up. It is a goal: estimates are those of
//! [`crate::lag::slow_ms`] and a quarter, and nothing is stopped for it.

use std::collections::BTreeMap;

use super::View;
use crate::{Duration, Finding, LiveSettings, Project, Severity, TableName, Timestamp, validate};

/// What is left of the tightest target for the time between an arrival and the start of a model's refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Microseconds; below zero when the refreshes alone take longer.
    left: i64,
    /// Whose target it is.
    of: TableName,
}

/// The budget of every live model that has a target or is on the way to one that does.
pub(super) fn budgets(view: &View<'_>) -> BTreeMap<TableName, Budget> {
    let mut budgets: BTreeMap<TableName, Budget> = BTreeMap::new();
    let models: Vec<_> = view.project.live().collect();
    if models.iter().all(|model| model.config.target_lag.is_none()) {
        return budgets;
    }
    let mut needs: BTreeMap<&TableName, Budget> = BTreeMap::new();
    // Readers before what they read.
    for model in models.iter().rev() {
        let name = &model.name;
        if view
            .controls
            .get(name)
            .is_some_and(|control| control.paused)
        {
            // Until it is resumed neither it nor what is below it gains anything by haste.
            continue;
        }
        let own = model.config.target_lag.map(|target| Budget {
            left: micros(target),
            of: name.clone(),
        });
        let tightest = [own, needs.get(name).cloned()]
            .into_iter()
            .flatten()
            .min_by_key(|budget| budget.left);
        let Some(Budget { left, of }) = tightest else {
            continue;
        };
        let left = left.saturating_sub(estimate(view, name));
        let budget = Budget { left, of };
        for input in view.inputs(name) {
            let need = needs.entry(input).or_insert_with(|| budget.clone());
            if budget.left < need.left {
                *need = budget.clone();
            }
        }
        budgets.insert(name.clone(), budget);
    }
    budgets
}

/// Until when a model gathers more, and for whose target; none when it has no target, was never built, is failing, or
/// nobody knows how old its oldest unapplied data is.
pub(super) fn wait(
    view: &View<'_>,
    budgets: &BTreeMap<TableName, Budget>,
    model: &TableName,
) -> Option<(Timestamp, TableName)> {
    view.project.models.get(model)?.config.target_lag?;
    if !view.heads.contains_key(model) || super::is_failing(view, model) {
        return None;
    }
    let (origin, budget) = (view.origins.get(model)?, budgets.get(model)?);
    let mut spare = micros(view.live.min_interval);
    if !view.attempted.is_empty() {
        // What would be due before another cycle may start goes along with this one.
        spare = spare.saturating_mul(2);
    }
    let until = origin.0.saturating_add(budget.left).saturating_sub(spare);
    Some((Timestamp(until), budget.of.clone()))
}

/// How long the refresh of a model may well take.
fn estimate(view: &View<'_>, model: &TableName) -> i64 {
    let slow = view.states.get(model).and_then(|state| state.slow_ms);
    let slow = slow.unwrap_or(0).saturating_mul(1_250);
    i64::try_from(slow).unwrap_or(i64::MAX)
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// Targets that cannot be kept under the runner's settings, as warnings.
#[must_use]
pub fn short_targets(project: &Project, live: &LiveSettings) -> Vec<Finding> {
    let least = live.min_interval;
    let short = |model: &&crate::Model| model.config.target_lag.is_some_and(|t| t < least);
    let finding = |model: &crate::Model| {
        let message = format!(
            "target_lag is below `live.min_interval` ({} ms): cycles start no closer than that, so it will be missed",
            least.as_millis()
        );
        validate::about(model, Severity::Warning, "target_lag_too_short", message)
    };
    project.live().filter(short).map(finding).collect()
}

#[cfg(test)]
mod tests;
