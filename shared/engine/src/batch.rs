//! Batch runs: every model in order, with the bookkeeping of refreshes, so that whoever comes first applies the batch.

use domain::TableName;
use ports::Result;

use crate::{
    World,
    cycle::{Observer, Report},
};

/// Builds `only` (with all they read), or everything when empty. `full` rebuilds incremental models from nothing.
///
/// # Errors
/// `NotFound` for a name that is no model; `Unavailable` or `Corrupt` from the ports.
pub async fn run(world: &World, only: &[TableName], full: bool, observer: &dyn Observer) -> Result<Report> {
    let _ = (world, only, full, observer);
    unimplemented!()
}
