//! `headwater plan`: what would run and why, before it runs.

use engine::explain;
use serde_json::json;

use super::{Context, print_json};
use crate::{failure::Failure, screen::say, tables, world};

/// Shows the plan.
pub(super) async fn plan(context: &Context) -> Result<(), Failure> {
    let world = world::open_sound(&context.settings()?)?;
    let steps = explain::plan(&world).await?;
    if context.json {
        return print_json(&json!({ "steps": steps }));
    }
    if steps.is_empty() {
        return Ok(say("the project has no models")?);
    }
    say(&tables::plan(&steps).to_string())?;
    for note in tables::plan_notes(&steps) {
        say(&note)?;
    }
    Ok(())
}
