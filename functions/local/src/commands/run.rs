//! `headwater run`: every model in order.

use domain::{Severity, TableName};
use engine::{
    World, batch,
    cycle::{Observer, Report, Silent},
    refresh::Refreshed,
};

use super::{Context, alerted, maintain, named, print_json};
use crate::{
    failure::Failure,
    project, remarks,
    screen::{self, is_terminal, say},
    tables, world,
};

/// Builds models and shows how each ended.
pub(super) async fn run(context: &Context, models: &[String], full: bool) -> Result<(), Failure> {
    let only = models
        .iter()
        .map(|model| named(model))
        .collect::<Result<Vec<TableName>, Failure>>()?;
    let world = world::open_sound(&context.settings()?)?;
    let observer: &dyn Observer = if is_terminal() && !context.json {
        &Progress
    } else {
        &Silent
    };
    let report = batch::run(&world, &only, full, observer).await?;
    maintain::some(&world).await;
    alerted(&world).await;
    let shown = show(context, &world, &report);
    if shown.is_err() && !context.json {
        places(&world, &report).await;
    }
    shown
}

/// Says where in its file a model is wrong that failed, if planning it tells.
async fn places(world: &World, report: &Report) {
    let failed: Vec<String> = report
        .models
        .iter()
        .filter(|(_, how)| matches!(how, Refreshed::Error { .. }))
        .map(|(model, _)| model.to_string())
        .collect();
    // Why they failed is said already: what cannot be looked at now adds nothing.
    let findings = match failed.is_empty() {
        true => Vec::new(),
        false => engine::check::models(world).await.unwrap_or_default(),
    };
    for finding in findings {
        if finding.severity == Severity::Error && failed.contains(&finding.model) {
            screen::remark(&project::line(&finding));
        }
    }
}

/// Shows a report; fails when a model did.
pub(super) fn show(context: &Context, world: &World, report: &Report) -> Result<(), Failure> {
    let remarks = remarks::of_report(report);
    if context.json {
        print_json(report)?;
    } else if report.models.is_empty() {
        say("nothing to build: there is no model under transform/")?;
    } else {
        say(&tables::report(report, &world.project.order).to_string())?;
        for (remark, is_error) in &remarks {
            let word = if *is_error { "error" } else { "warning" };
            screen::remark(&format!("{word}: {remark}"));
        }
    }
    if remarks.iter().any(|(_, is_error)| *is_error) {
        Err(Failure::shown())
    } else {
        Ok(())
    }
}

/// Says on stderr which model is being built.
struct Progress;

impl Observer for Progress {
    fn started(&self, model: &TableName) {
        screen::remark(&format!("building {model}"));
    }

    fn ended(&self, _: &TableName, _: &Refreshed) {}
}
