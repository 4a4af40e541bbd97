//! `headwater`: the command line, and every function of the system in one process on SQLite and
//! local files.
//!
//! What it never does: decide anything about models, rows or watermarks. Commands load a project,
//! hand it to `engine`, and show what came back. [`world::open`] is the one place that knows which
//! adapters a program of one machine uses.

pub mod cli;
pub mod commands;
pub mod failure;
pub mod infra;
pub mod project;
pub mod remarks;
pub mod screen;
pub mod server;
pub mod tables;
pub mod world;

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::{Parser, error::ErrorKind};
use tracing_subscriber::EnvFilter;

use crate::{cli::Cli, failure::Failure};

/// Stack of every thread that runs tasks, in bytes: deep statements recurse in the planner.
const STACK_BYTES: usize = 8 << 20;

/// Reads a command line and runs it. One that cannot be read is told to programs as they are told of everything else.
#[must_use]
pub fn start(arguments: Vec<OsString>) -> ExitCode {
    let mut flags = arguments.iter().take_while(|argument| *argument != "--");
    let json = flags.any(|argument| argument == "--json");
    match Cli::try_parse_from(arguments) {
        Ok(cli) => run(cli),
        Err(error) if json && error.use_stderr() => misread(&error).report(true),
        Err(error) => {
            // The exit code tells those who do not listen.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
    }
}

/// What is wrong with a command line, on one line.
fn misread(error: &clap::Error) -> Failure {
    use ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    if matches!(
        error.kind(),
        DisplayHelpOnMissingArgumentOrSubcommand | MissingSubcommand
    ) {
        return Failure::usage("it is not said what to do: `--help` lists the commands");
    }
    let told = error.render().to_string();
    let (what, _) = told.split_once("\n\nUsage:").unwrap_or((&told, ""));
    let words: Vec<&str> = what.split_whitespace().collect();
    let what = words.join(" ");
    Failure::usage(what.strip_prefix("error: ").unwrap_or(&what))
}

/// Longest the program's threads may take to end; one at work that cannot be cut short is left behind then.
const ENDING: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs a command and says how it ended: 0 done, 1 the project or its data has errors, 2 usage, 3
/// something is unavailable.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    log(cli.common.verbose);
    let json = cli.common.json;
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .build()
        .map_err(|error| Failure::unavailable(format!("start the runtime: {error}")))
        .and_then(|runtime| {
            // On a worker, whose stack is ours, and not on the main thread, whose stack is whatever
            // the shell said.
            let ended = runtime.block_on(async { tokio::spawn(commands::dispatch(cli)).await });
            // Connections that never end, such as event feeds, do not hold the program up; threads that are about to end are
            // waited for, as letting go of one just then can end the process (see `query`).
            runtime.shutdown_timeout(ENDING);
            ended.unwrap_or_else(|panic| Err(Failure::defect(panic.to_string())))
        });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

/// Logs go to stderr: warnings, more with `-v`, and what `HEADWATER_LOG` asks for.
fn log(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter =
        EnvFilter::try_from_env("HEADWATER_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    // A second subscriber in one process, as in tests, is not needed.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // It would tell of a failed write by one more, which panics: a program whose stderr is gone goes on without logs.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .try_init();
}
