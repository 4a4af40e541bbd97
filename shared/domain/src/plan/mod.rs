//! The planner: from heads, consumed watermarks, states and controls to decisions. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Duration, LiveSettings, Position, Project, TableName, Timestamp,
    items::{Control, ModelState},
};

/// Everything a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The models.
    pub project: &'a Project,
    /// The runner's settings.
    pub live: &'a LiveSettings,
    /// The time it is.
    pub now: Timestamp,
    /// Every table that has a head.
    pub heads: &'a BTreeMap<TableName, Position>,
    /// What each model consumed of each input: (model, input).
    pub consumed: &'a BTreeMap<(TableName, TableName), Position>,
    /// How refreshes went.
    pub states: &'a BTreeMap<TableName, ModelState>,
    /// What people asked.
    pub controls: &'a BTreeMap<TableName, Control>,
    /// Landing targets of the cycle; a landing table that is not in it is not read further than consumed.
    pub targets: &'a BTreeMap<TableName, Position>,
    /// Models already attempted in this cycle.
    pub attempted: &'a BTreeSet<TableName>,
}

/// What a cycle does with a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Bring it up to date now.
    Refresh,
    /// Nothing to do.
    Idle,
    /// An ancestor comes first in this cycle.
    After(TableName),
    /// Not in this cycle.
    Hold(Hold),
}

/// Why a model is not refreshed although it could be behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A person paused it.
    Paused,
    /// It failed; not before this moment.
    Backoff(Timestamp),
    /// `live_interval`; not before this moment.
    Interval(Timestamp),
    /// This ancestor is stuck.
    Waiting(TableName),
}

/// Decides every live incremental model.
#[must_use]
pub fn decide(view: &View<'_>) -> BTreeMap<TableName, Decision> {
    let _ = view;
    unimplemented!()
}

/// Whether a model has something to read.
#[must_use]
pub fn is_behind(view: &View<'_>, model: &TableName) -> bool {
    let _ = (view, model);
    unimplemented!()
}

/// The status word of a model (`live`, `behind`, `waiting`, `failing`, `paused`) and what it waits for.
#[must_use]
pub fn word(view: &View<'_>, model: &TableName) -> (&'static str, Option<TableName>) {
    let _ = (view, model);
    unimplemented!()
}

/// Delay before the retry after `failures` in a row: base * 2^(failures - 1), capped; zero without failures.
#[must_use]
pub fn backoff(failures: u32, live: &LiveSettings) -> Duration {
    let _ = (failures, live);
    unimplemented!()
}
