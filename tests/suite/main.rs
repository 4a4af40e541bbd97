//! The suite: one binary, one outcome per conformance case and adapter.
//!
//! Tests are registered by hand instead of by attribute because the cases are files found when the suite starts.

mod access;
mod alerting;
mod auto;
mod aws_faults;
mod bad_input;
mod bedrock;
mod bugs;
mod cdc_edges;
mod cdc_http;
mod change_bugs;
mod checks;
mod client;
mod conformance;
mod controls;
mod deploying;
mod durability;
mod edges;
mod emulated;
mod entries;
mod feeds;
mod flights;
mod freshness;
mod full_disk;
mod gateway;
mod github;
mod maintenance;
mod plain;
mod quarantine;
mod readers;
mod rebuilds;
mod requests;
mod said;
mod sequences;
mod sources;
mod tidy;
mod upkeep;
mod week;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = conformance::trials();
    trials.extend(tidy::trials());
    trials.extend(bugs::trials());
    trials.extend(access::trials());
    trials.extend(auto::trials());
    trials.extend(alerting::trials());
    trials.extend(bad_input::trials());
    trials.extend(bedrock::trials());
    trials.extend(change_bugs::trials());
    trials.extend(checks::trials());
    trials.extend(cdc_edges::trials());
    trials.extend(sequences::trials());
    trials.extend(client::trials());
    trials.extend(cdc_http::trials());
    trials.extend(controls::trials());
    trials.extend(deploying::trials());
    trials.extend(full_disk::trials());
    trials.extend(gateway::trials());
    trials.extend(emulated::trials());
    trials.extend(aws_faults::trials());
    trials.extend(requests::trials());
    trials.extend(said::trials());
    trials.extend(durability::trials());
    trials.extend(edges::trials());
    trials.extend(entries::trials());
    trials.extend(feeds::trials());
    trials.extend(freshness::trials());
    trials.extend(github::trials());
    trials.extend(flights::trials());
    trials.extend(maintenance::trials());
    trials.extend(quarantine::trials());
    trials.extend(quarantine::drops::trials());
    trials.extend(readers::trials());
    trials.extend(rebuilds::trials());
    trials.extend(sources::trials());
    trials.extend(upkeep::trials());
    trials.extend(week::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
