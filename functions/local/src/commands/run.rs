//! `headwater run`: every model in order.

use domain::{Finding, Severity, TableName};
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
    show(context, &world, &report).await
}

/// Where in its file a model is wrong that failed, if planning it tells.
async fn places(world: &World, report: &Report) -> Vec<Finding> {
    let failed: Vec<String> = report
        .models
        .iter()
        .filter(|(_, how)| matches!(how, Refreshed::Error { .. }))
        .map(|(model, _)| model.to_string())
        .collect();
    // Why they failed is known: what cannot be looked at now adds nothing.
    let mut findings = match failed.is_empty() {
        true => Vec::new(),
        false => {
            let planned = engine::check::models(world).await;
            planned.unwrap_or_default().findings
        }
    };
    findings
        .retain(|finding| finding.severity == Severity::Error && failed.contains(&finding.model));
    findings
}

/// Whether a finding says, with its place, what a remark says.
fn is_placed(remark: &str, finding: &Finding) -> bool {
    let of_model = remark.strip_prefix(finding.model.as_str());
    let said = of_model.and_then(|rest| rest.strip_prefix(": "));
    said.is_some_and(|said| said.contains(&finding.message))
}

/// Shows a report, each error once and with its place where that is known; fails when a model did.
pub(super) async fn show(context: &Context, world: &World, report: &Report) -> Result<(), Failure> {
    let remarks = remarks::of_report(report);
    if context.json {
        print_json(report)?;
    } else if report.models.is_empty() {
        say("nothing to build: there is no model under transform/")?;
    } else {
        say(&tables::report(report, &world.project.order).to_string())?;
        let findings = places(world, report).await;
        for (remark, is_error) in &remarks {
            if *is_error && findings.iter().any(|finding| is_placed(remark, finding)) {
                continue;
            }
            let word = if *is_error { "error" } else { "warning" };
            screen::remark(&format!("{word}: {remark}"));
        }
        for finding in &findings {
            screen::remark(&project::line(finding));
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
