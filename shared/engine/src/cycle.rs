//! One cycle: targets fixed at its opening, then levels of the DAG until nothing is ready (**C-1**).

use std::collections::BTreeMap;

use domain::TableName;
use ports::Result;
use serde::Serialize;

use crate::{World, refresh::Refreshed};

/// What a cycle did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Its number.
    pub number: u64,
    /// Every live incremental model and how it ended.
    pub models: BTreeMap<TableName, Refreshed>,
}

/// Told while a cycle runs.
pub trait Observer: Send + Sync {
    /// A model's refresh begins.
    fn started(&self, model: &TableName);
    /// A model's refresh ended.
    fn ended(&self, model: &TableName, how: &Refreshed);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn started(&self, _: &TableName) {}
    fn ended(&self, _: &TableName, _: &Refreshed) {}
}

/// Runs one cycle to its end.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports; a model's failure is an outcome.
pub async fn run(world: &World, observer: &dyn Observer) -> Result<Report> {
    let _ = (world, observer);
    unimplemented!()
}
