//! The `headwater` program.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    headwater::run(headwater::cli::Cli::parse())
}
