//! `headwater live`: the runner in the foreground, one cycle, and the controls.

use std::time::Duration;

use domain::TableName;
use engine::{
    World, control,
    cycle::{self, Silent},
    runner::{self, Event, Numbered, Runner},
    status,
};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::{Context, alerted, history, interrupted, named, print_json, run};
use crate::{
    cli::Control,
    failure::Failure,
    remarks,
    screen::{Canvas, counted, is_terminal, say},
    tables, world,
};

/// Between two drawings of the table.
const FRAME: Duration = Duration::from_millis(250);

/// Runs one cycle and shows it.
pub(super) async fn once(context: &Context) -> Result<(), Failure> {
    let world = world::open_sound(&context.settings()?)?;
    require_live(&world)?;
    let report = cycle::run(&world, &Silent).await?;
    alerted(&world).await;
    run::show(context, &world, &report).await
}

/// Runs until interrupted, with a table on a terminal and a line per refresh elsewhere.
pub(super) async fn foreground(context: &Context) -> Result<(), Failure> {
    let world = world::open_sound(&context.settings()?)?;
    require_live(&world)?;
    let runner = Runner::new(world.clone());
    if !context.json && !is_terminal() {
        say(&format!(
            "live runner on: {}; Ctrl-C ends",
            counted(world.project.live().count() as u64, "model")
        ))?;
    }
    let shown = async {
        if is_terminal() && !context.json {
            table(&world, &runner).await
        } else {
            lines(context, &runner).await
        }
    };
    tokio::select! {
        ended = runner::run_until(&runner, interrupted()) => {
            alerted(&world).await;
            Ok(ended?)
        }
        ended = shown => ended,
    }
}

fn require_live(world: &World) -> Result<(), Failure> {
    if world.project.live().next().is_some() {
        return Ok(());
    }
    Err(Failure::project(if world.project.models.is_empty() {
        "the project has no models: add `transform/<schema>/<name>.sql`"
    } else {
        "the project has no live incremental model; add `live=true` to the `@config` of one, or use `headwater run`"
    }))
}

async fn table(world: &World, runner: &Runner) -> Result<(), Failure> {
    let mut canvas = Canvas::default();
    loop {
        let now = status::status(world, Some(runner.status())).await?;
        let mut block = tables::models(&now).to_string();
        for trouble in remarks::of_status(&now) {
            block.push_str(&format!("\n{trouble}"));
        }
        let cycles = now.runner.map_or(0, |runner| runner.cycles);
        block.push_str(&format!("\n{cycles} cycles; Ctrl-C ends"));
        canvas.draw(&block)?;
        tokio::time::sleep(FRAME).await;
    }
}

async fn lines(context: &Context, runner: &Runner) -> Result<(), Failure> {
    let (past, mut feed) = runner.events(0);
    let mut last = 0;
    let mut show = |numbered: Numbered| -> Result<(), Failure> {
        if numbered.id <= last {
            return Ok(());
        }
        last = numbered.id;
        if context.json {
            let line = serde_json::to_string(&numbered)
                .map_err(|error| Failure::defect(error.to_string()))?;
            return Ok(say(&line)?);
        }
        match &numbered.event {
            Event::Refreshed { model, how, .. } => match tables::sentence(model, how) {
                Some(sentence) => Ok(say(&sentence)?),
                None => Ok(()),
            },
            Event::Advanced { .. } | Event::CycleStarted { .. } | Event::Control { .. } => Ok(()),
        }
    };
    for numbered in past {
        show(numbered)?;
    }
    loop {
        match feed.recv().await {
            Ok(numbered) => show(numbered)?,
            Err(RecvError::Lagged(missed)) => say(&format!("({missed} events not shown)"))?,
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

/// Uses a control; a running server takes it up by itself.
pub(super) async fn control(context: &Context, what: Control) -> Result<(), Failure> {
    let settings = context.settings()?;
    let world = world::open_any(&settings)?;
    match what {
        Control::Status => show_status(context, &world).await,
        Control::Lag { model } => history::lag(context, &world, model.as_deref()).await,
        Control::Profile { model, now } => {
            history::profile(context, &world, &named(&model)?, now).await
        }
        Control::Pause { model } => paused(context, &world, named(&model)?, true).await,
        Control::Resume { model } => paused(context, &world, named(&model)?, false).await,
        Control::Refresh { model } => {
            let model = named(&model)?;
            control::refresh_now(&world, &model).await?;
            let status = status::status(&world, None).await?;
            let paused = status.models.iter().any(|m| m.model == model && m.paused);
            let line = match paused {
                true => format!(
                    "{model} is paused: it is refreshed once it is resumed (`headwater live resume {model}`)"
                ),
                false => format!("{model} is refreshed at the next cycle of the runner"),
            };
            answer(
                context,
                &json!({ "model": model, "status": "scheduled" }),
                &line,
            )
        }
        Control::Advance { source } => {
            let source = match TableName::landing(&source) {
                Ok(landing) if !source.contains('.') => {
                    return Err(Failure::usage(format!(
                        "`{source}` is no table name: landing tables are named with their schema, `{landing}`"
                    )));
                }
                _ => named(&source)?,
            };
            let found = control::advance(&world, &source).await?;
            let line = match found.rows {
                0 => format!("{source}: nothing new, still at {}", found.to),
                rows => format!(
                    "{source}: {}, from {} to {}",
                    counted(rows, "row"),
                    found.from,
                    found.to
                ),
            };
            let body = json!({
                "source": source, "rows": found.rows, "advanced": found.rows > 0, "from": found.from, "to": found.to,
            });
            answer(context, &body, &line)
        }
    }
}

async fn paused(
    context: &Context,
    world: &World,
    model: TableName,
    paused: bool,
) -> Result<(), Failure> {
    control::set_paused(world, &model, paused).await?;
    let (status, line) = match paused {
        true => ("paused", format!("{model} is paused")),
        false => ("active", format!("{model} is resumed")),
    };
    answer(
        context,
        &json!({ "model": model, "paused": paused, "status": status }),
        &line,
    )
}

async fn show_status(context: &Context, world: &World) -> Result<(), Failure> {
    let status = status::status(world, None).await?;
    if context.json {
        return print_json(&status);
    }
    match status.models.is_empty() {
        true => say("no live models")?,
        false => say(&tables::models(&status).to_string())?,
    }
    let troubles = remarks::of_status(&status);
    for trouble in troubles.iter().chain(&remarks::of_standstill(&status)) {
        say(trouble)?;
    }
    match status.sources.is_empty() {
        true => say("nothing has landed")?,
        false => say(&tables::sources(&status).to_string())?,
    }
    Ok(())
}

fn answer(context: &Context, body: &serde_json::Value, line: &str) -> Result<(), Failure> {
    if context.json {
        print_json(body)
    } else {
        Ok(say(line)?)
    }
}
