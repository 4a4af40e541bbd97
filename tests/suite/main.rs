//! The suite: one binary, one outcome per conformance case and adapter.
//!
//! Tests are registered by hand instead of by attribute because the cases are files found when the suite starts.

mod bad_input;
mod bugs;
mod cdc_http;
mod conformance;
mod durability;
mod feeds;
mod flights;
mod full_disk;
mod github;
mod maintenance;
mod plain;
mod readers;
mod rebuilds;
mod requests;
mod tidy;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = conformance::trials();
    trials.extend(tidy::trials());
    trials.extend(bugs::trials());
    trials.extend(bad_input::trials());
    trials.extend(cdc_http::trials());
    trials.extend(full_disk::trials());
    trials.extend(requests::trials());
    trials.extend(durability::trials());
    trials.extend(feeds::trials());
    trials.extend(github::trials());
    trials.extend(flights::trials());
    trials.extend(maintenance::trials());
    trials.extend(readers::trials());
    trials.extend(rebuilds::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
