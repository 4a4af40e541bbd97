//! The commands, one module each.

mod check;
mod demo;
mod deploy;
mod doctor;
pub(crate) mod entries;
mod history;
mod ingest;
mod init;
mod live;
mod maintain;
mod plan;
mod quarantine;
mod query;
mod run;
mod serve;
mod tables;
mod token;
mod validate;

use std::path::PathBuf;

use settings::Settings;

use crate::{
    cli::{Cli, Command, Common},
    failure::Failure,
    project,
};

/// What every command gets.
#[derive(Clone, Debug)]
pub struct Context {
    /// The project's folder.
    pub project: PathBuf,
    /// Whether to answer with JSON.
    pub json: bool,
}

impl Context {
    /// The settings of an existing project.
    ///
    /// # Errors
    /// When the folder is no project, and every complaint about its settings.
    pub fn settings(&self) -> Result<Settings, Failure> {
        project::require(&self.project)?;
        Settings::load(
            &self.project,
            &std::env::vars_os().filter_map(text).collect(),
        )
        .map_err(|complaints| Failure::settings(&complaints))
    }
}

/// A variable, if it is text; others are nobody's settings.
fn text((name, value): (std::ffi::OsString, std::ffi::OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

/// Runs a command.
///
/// # Errors
/// Whatever ends it early.
pub async fn dispatch(cli: Cli) -> Result<(), Failure> {
    let Common { project, json, .. } = cli.common;
    let chosen = project.clone();
    let context = Context {
        project: project.unwrap_or_else(|| PathBuf::from(".")),
        json,
    };
    match cli.command {
        Command::Init { dir } => init::init(&context, dir),
        Command::Serve { listen } => serve::serve(&context, listen).await,
        Command::Demo(how) => demo::demo(&context, chosen, how).await,
        Command::Live {
            control: Some(control),
            ..
        } => live::control(&context, control).await,
        Command::Live {
            once: true,
            control: None,
        } => live::once(&context).await,
        Command::Live {
            once: false,
            control: None,
        } => live::foreground(&context).await,
        Command::Run { models, full } => run::run(&context, &models, full).await,
        Command::Check => check::check(&context).await,
        Command::Token => token::token(&context),
        Command::Validate => validate::validate(&context).await,
        Command::Maintain => maintain::maintain(&context).await,
        Command::Quarantine { what } => quarantine::quarantine(&context, what).await,
        Command::Plan => plan::plan(&context).await,
        Command::Tables { table } => tables::tables(&context, table.as_deref()).await,
        Command::Query { sql, csv } => query::query(&context, sql, csv).await,
        Command::Entries(what) => entries::entries(&context, what).await,
        Command::Deploy(how) => deploy::deploy(&context, &how).await,
        Command::Doctor(target) => doctor::doctor(&context, &target),
        Command::Ingest { file, table } => ingest::ingest(&context, &file, table.as_deref()).await,
    }
}

/// A table or model named on the command line.
fn named(text: &str) -> Result<domain::TableName, Failure> {
    text.parse()
        .map_err(|error: domain::name::NameError| Failure::usage(error.to_string()))
}

/// Waits a short while for alerts that are on their way, before the program ends.
async fn alerted(world: &engine::World) {
    world.alerts.flush(domain::Duration::from_secs(5)).await;
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::defect(error.to_string()))?;
    Ok(crate::screen::say(&text)?)
}

/// Resolves at Ctrl-C or, where there is such a thing, SIGTERM.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without a handler the signal ends the process, which is safe at any moment.
    let _ = tokio::signal::ctrl_c().await;
}
