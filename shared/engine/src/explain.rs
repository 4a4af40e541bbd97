//! What a batch run or a cycle would do, and why, before it runs.

use domain::TableName;
use ports::Result;
use serde::Serialize;

use crate::World;

/// What would happen to one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The model.
    pub model: TableName,
    /// `refresh`, `create`, `rebuild`, `idle`, `held`, `view`, `ephemeral`.
    pub action: &'static str,
    /// Why: "landing.orders is 12 rows ahead", "paused".
    pub reason: String,
    /// What is read: input and sequence range `(from, to]`.
    pub reads: Vec<String>,
    /// How rows are applied: "merge on order_id".
    pub strategy: String,
}

/// The steps, in order.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports.
pub async fn plan(world: &World) -> Result<Vec<Step>> {
    let _ = world;
    unimplemented!()
}
