//! What a batch run or a cycle would do, and why, before it runs.

use std::collections::BTreeMap;

use domain::{
    Materialized, Model, Position, Strategy, TableName,
    items::ModelState,
    plan::{Decision, Hold},
};
use ports::Result;
use serde::Serialize;

use crate::{
    World, cycle,
    known::Known,
    pins,
    refresh::job::{Input, Job, Loaded, Reason, is_edited, is_live},
};

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
    let decisions = Known::load(world).await?.outlook(world);
    let mut steps = Vec::with_capacity(world.project.order.len());
    for name in &world.project.order {
        let Some(model) = world.project.models.get(name) else {
            continue;
        };
        steps.push(match pins::is_view(model) {
            true => view(model),
            false => step(world, model, &decisions).await?,
        });
    }
    Ok(steps)
}

fn view(model: &Model) -> Step {
    let (action, reason) = match model.config.materialized {
        Materialized::Ephemeral => ("ephemeral", "inlined into its readers"),
        Materialized::View | Materialized::Table | Materialized::Incremental => {
            ("view", "computed when it is read")
        }
    };
    let reads = model.reads.iter().map(ToString::to_string).collect();
    let (model, reason) = (model.name.clone(), reason.to_owned());
    Step {
        model,
        action,
        reason,
        reads,
        strategy: String::from("none"),
    }
}

async fn step(
    world: &World,
    model: &Model,
    decisions: &BTreeMap<TableName, Decision>,
) -> Result<Step> {
    let job = Job::new(&world.project, model, None, Reason::Batch);
    let loaded = Loaded::read(world, &job).await?;
    let (action, reason) = match decisions.get(&model.name) {
        Some(decision) if is_live(model) => live(decision, &loaded),
        Some(_) | None => batch(&job, &loaded),
    };
    let (action, mut reason) = match loaded.is_reshaped(model) {
        true => (
            "rebuild",
            String::from("its materialization, strategy or key changed"),
        ),
        false => (action, reason),
    };
    if is_live(model) && loaded.is_built() && is_edited(&loaded.state, &job.digest) {
        reason.push_str(&format!("; {}", edited(model)));
    }
    Ok(Step {
        model: model.name.clone(),
        action,
        reason,
        reads: loaded.inputs.iter().map(range).collect(),
        strategy: strategy(world, model),
    })
}

/// What an edit of a live model waits for.
#[must_use]
pub fn edited(model: &Model) -> String {
    let name = &model.name;
    match model.is_auto() {
        // A refresh that finds nothing new is none, whatever the definition says.
        true => format!(
            "edited since its rows were built: once something new arrives in what it reads, the new definition is applied \
             to all rows; `headwater run {name} --full` does it now"
        ),
        false => format!(
            "edited since its rows were built: new rows follow the definition that their refresh knew (restart `serve` after an \
             edit); then `headwater run {name} --full` applies it to all"
        ),
    }
}

fn live(decision: &Decision, loaded: &Loaded) -> (&'static str, String) {
    match decision {
        Decision::Idle if loaded.is_built() => ("idle", String::from("caught up")),
        Decision::Idle => ("idle", String::from("its inputs have not advanced yet")),
        Decision::Hold(hold @ Hold::Target { .. }) => (
            "held",
            format!("{}; {}", ahead(loaded), cycle::reason(hold)),
        ),
        Decision::Hold(hold) => ("held", held(hold, &loaded.state)),
        Decision::Refresh if loaded.is_outdated() => {
            ("rebuild", String::from("an input was rebuilt"))
        }
        Decision::Refresh if loaded.is_built() => ("refresh", ahead(loaded)),
        Decision::Refresh => ("create", String::from("never built")),
        Decision::After(other) if loaded.is_built() => ("refresh", format!("after {other}")),
        Decision::After(other) => ("create", format!("never built; after {other}")),
    }
}

fn held(hold: &Hold, state: &ModelState) -> String {
    match (hold, &state.last_error) {
        (Hold::Backoff(_), Some(error)) => format!("{}: {error}", cycle::reason(hold)),
        _ => cycle::reason(hold),
    }
}

fn batch(job: &Job<'_>, loaded: &Loaded) -> (&'static str, String) {
    let rebuilds = job.model.config.materialized == Materialized::Table;
    let action = if rebuilds { "rebuild" } else { "refresh" };
    if !loaded.is_built() {
        ("create", String::from("never built"))
    } else if loaded.is_edited(job) {
        (action, String::from("its definition changed"))
    } else if loaded.is_due(job) {
        (action, ahead(loaded))
    } else {
        (
            "idle",
            String::from("its inputs have not changed since it was built"),
        )
    }
}

/// Which inputs are ahead, and by how much.
fn ahead(loaded: &Loaded) -> String {
    let parts: Vec<_> = loaded
        .inputs
        .iter()
        .filter(|i| i.is_behind())
        .map(distance)
        .collect();
    parts.join(", ")
}

fn distance(
    Input {
        table,
        consumed,
        to,
        landing,
        ..
    }: &Input,
) -> String {
    // Sequences of a landing table count its rows; those of a model may skip numbers.
    let (number, word) = match to.sequence.saturating_sub(consumed.sequence) {
        rows if *landing && rows > 0 => (rows, "row"),
        _ => (to.commits.saturating_sub(consumed.commits), "commit"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{table} is {number} {word}{plural} ahead")
}

/// What is read of an input: `landing.orders (12, 40]`.
fn range(
    Input {
        table,
        consumed,
        to,
        ..
    }: &Input,
) -> String {
    let (Position { sequence: from, .. }, Position { sequence: to, .. }) = (consumed, to);
    format!("{table} ({from}, {to}]")
}

fn strategy(world: &World, model: &Model) -> String {
    let key = model.config.unique_key.join(", ");
    match (model.config.materialized, model.config.strategy) {
        (Materialized::Table | Materialized::View | Materialized::Ephemeral, _) => {
            String::from("overwrite")
        }
        (Materialized::Incremental, Strategy::Merge) if key.is_empty() => String::from("append"),
        (Materialized::Incremental, Strategy::Merge) => format!("merge on {key}"),
        (Materialized::Incremental, Strategy::DeleteInsert) => format!("delete+insert on {key}"),
        (Materialized::Incremental, Strategy::Append) => String::from("append"),
        (Materialized::Incremental, Strategy::Auto) => match world.project.traced(model) {
            Some(Ok(trace)) => format!("auto on {}", trace.key.join(", ")),
            Some(Err(why)) => format!("auto: {why}"),
            None => String::from("auto"),
        },
    }
}
