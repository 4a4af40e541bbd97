//! Controls: pause, resume, refresh now, advance a source.

use domain::TableName;
use ports::{Result, landing::Advanced};

use crate::World;

/// Pauses or resumes a live model; resuming also clears its backoff.
///
/// # Errors
/// `NotFound` when no live model has this name.
pub async fn set_paused(world: &World, model: &TableName, paused: bool) -> Result<()> {
    let _ = (world, model, paused);
    unimplemented!()
}

/// Asks for a refresh at the next cycle, whatever backoff and interval say.
///
/// # Errors
/// `NotFound` when no live model has this name.
pub async fn refresh_now(world: &World, model: &TableName) -> Result<()> {
    let _ = (world, model);
    unimplemented!()
}

/// Commits what other writers left for a landing table, and announces it.
///
/// # Errors
/// `Invalid` when the table is no landing table, `NotFound` when nothing of that name exists.
pub async fn advance(world: &World, table: &TableName) -> Result<Advanced> {
    let _ = (world, table);
    unimplemented!()
}
