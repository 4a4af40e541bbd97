//! Controls: pause, resume, refresh now, advance a source.

use domain::{TableName, items::Control};
use ports::{Error, Kind, Result, landing::Advanced, queue::Announcement, state::Write};

use crate::{
    World,
    load::{self, Items},
    refresh::{job::is_live, unknown},
};

/// Attempts to change a control while a refresh answers it.
const ATTEMPTS_MAX: u32 = 8;

/// Pauses or resumes a live model; resuming also clears its backoff.
///
/// # Errors
/// `NotFound` when no live model has this name.
pub async fn set_paused(world: &World, model: &TableName, paused: bool) -> Result<()> {
    change(
        world,
        model,
        |control| Control { paused, ..control },
        !paused,
    )
    .await
}

/// Asks for a refresh at the next cycle, whatever backoff and interval say.
///
/// # Errors
/// `NotFound` when no live model has this name.
pub async fn refresh_now(world: &World, model: &TableName) -> Result<()> {
    change(
        world,
        model,
        |control| Control {
            retry: true,
            ..control
        },
        false,
    )
    .await
}

/// Changes a model's control, and ends its backoff if asked to.
async fn change(
    world: &World,
    model: &TableName,
    edit: impl Fn(Control) -> Control,
    eager: bool,
) -> Result<()> {
    match world.project.models.get(model) {
        Some(found) if is_live(found) => {}
        Some(_) => {
            return Err(Error::new(Kind::NotFound, "control model", model)
                .because("only live incremental models are refreshed by the runner"));
        }
        None => return Err(unknown(world, model)),
    }
    let (control, state) = (load::control(model), load::state(model));
    for _ in 0..ATTEMPTS_MAX {
        let items = Items::load(&*world.state, [control.clone(), state.clone()]).await?;
        let changed = edit(items.control(model)?);
        let mut writes = vec![Write::put(
            control.clone(),
            &changed,
            items.expect(&control),
        )];
        let mut refreshes = items.state(model)?;
        if eager && refreshes.retry_at.take().is_some() {
            writes.push(Write::put(state.clone(), &refreshes, items.expect(&state)));
        }
        if world.state.transact(writes).await?.is_committed() {
            return Ok(());
        }
    }
    Err(Error::new(Kind::Conflict, "control model", model).because("it changes all the time"))
}

/// Commits what other writers left for a landing table, and announces it.
///
/// # Errors
/// `Invalid` when the table is no landing table, `NotFound` when nothing of that name exists.
pub async fn advance(world: &World, table: &TableName) -> Result<Advanced> {
    if !table.is_landing() {
        return Err(Error::new(Kind::Invalid, "advance table", table)
            .because("only landing tables are advanced; write `landing.` and the source's name"));
    }
    let Some(advanced) = world.landing.advance(table, world.clock.now()).await? else {
        let error = Error::new(Kind::NotFound, "advance table", table);
        return Err(error.because(format!(
            "there is neither a table nor an object under `landing/{}/incoming/` of the warehouse",
            table.name()
        )));
    };
    if advanced.rows > 0 {
        let announcement = Announcement {
            table: table.clone(),
            position: advanced.position,
        };
        if let Err(error) = world.queue.send(&[announcement]).await {
            // Committed all the same: the next poll finds it.
            tracing::warn!(error = error.chain(), %table, "the advance was not announced");
        }
    }
    Ok(advanced)
}
