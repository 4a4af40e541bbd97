//! The `headwater` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    headwater::start(std::env::args_os().collect())
}
