//! The benchmarks: one command, JSON on stdout, progress on stderr.
//!
//! ```console
//! $ cargo run --release --bin bench -- [--quick] [--only NAME]
//! ```
//!
//! `NAME` is one of freshness, ingest, merge, auto, changes, burst, fleet, week, cold, entries, search and peer. Everything runs on this
//! machine: the real program as a child process, or its crates on files. The peer is measured in the same run when
//! `HEADWATER_PEER_PYTHON` names a Python that has it.

mod auto;
mod burst;
mod changes;
mod cold;
mod entries;
mod fleet;
mod freshness;
mod ingest;
mod merge;
mod peer;
mod sample;
mod search;
mod week;

use anyhow::{Result, bail, ensure};
use serde_json::{Map, Value, json};

/// What was asked for.
#[derive(Clone, Debug, Default)]
struct Options {
    quick: bool,
    only: Option<String>,
}

const NAMES: [&str; 12] = [
    "freshness",
    "ingest",
    "merge",
    "auto",
    "changes",
    "burst",
    "fleet",
    "week",
    "cold",
    "search",
    "entries",
    "peer",
];
/// What is measured: the program, and the functions of a deployment.
const PROGRAMS: [&str; 5] = ["headwater", "ingest", "coalesce", "sweep", "sql"];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, rest @ ..] = arguments.as_slice()
        && flag == "--merge-child"
    {
        return merge::child(rest);
    }
    if let [flag, rest @ ..] = arguments.as_slice()
        && flag == "--auto-child"
    {
        return auto::child(rest);
    }
    if let [flag, rest @ ..] = arguments.as_slice()
        && let Some(kind) = flag.strip_prefix("--search-")
    {
        return search::child(kind == "vectors-child", rest);
    }
    let options = parse(&arguments)?;
    build_programs()?;
    let mut results = Map::new();
    for name in NAMES {
        if options.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        eprintln!("{name}");
        let result = match name {
            "freshness" => freshness::run(&options),
            "ingest" => ingest::run(&options),
            "merge" => merge::run(&options),
            "auto" => auto::run(&options),
            "changes" => changes::run(&options),
            "burst" => burst::run(&options),
            "fleet" => fleet::run(&options),
            "week" => week::run(&options),
            "cold" => cold::run(&options),
            "search" => search::run(&options),
            "entries" => entries::run(&options),
            _ => peer::run(&options),
        };
        // One that fails does not take the others with it.
        results.insert(
            name.to_owned(),
            result.unwrap_or_else(|error| json!({ "error": format!("{error:#}") })),
        );
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let all = json!({ "quick": options.quick, "cores": cores, "results": results });
    println!("{}", serde_json::to_string_pretty(&all)?);
    if results_failed(&all["results"]) {
        bail!("a benchmark failed; see its `error`");
    }
    Ok(())
}

/// Measures each size in a process of its own, which is started with `flag SIZE ROUNDS` and prints JSON: memory peaks are of
/// one size then.
fn by_size(flag: &str, sizes: &[i64], rounds: usize) -> Result<Value> {
    let one = |size: &i64| {
        let output = std::process::Command::new(std::env::current_exe()?)
            .args([flag, &size.to_string(), &rounds.to_string()])
            .stderr(std::process::Stdio::inherit())
            .output()?;
        ensure!(output.status.success(), "{size} rows: {}", output.status);
        Ok(serde_json::from_slice::<Value>(&output.stdout)?)
    };
    sizes.iter().map(one).collect()
}

/// Builds the programs to measure, when cargo started this: never old ones.
fn build_programs() -> Result<()> {
    if let Some(cargo) = std::env::var_os("CARGO") {
        let built = std::process::Command::new(cargo)
            .args(["build", "--release"])
            .args(PROGRAMS.iter().flat_map(|name| ["--bin", name]))
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .status()?;
        ensure!(built.success(), "{PROGRAMS:?} do not build");
    }
    Ok(())
}

fn results_failed(results: &Value) -> bool {
    results
        .as_object()
        .is_some_and(|all| all.values().any(|result| result.get("error").is_some()))
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--only" => match arguments.next() {
                Some(name) if NAMES.contains(&name.as_str()) => options.only = Some(name.clone()),
                other => bail!("--only takes one of {NAMES:?}, not {other:?}"),
            },
            other => {
                bail!("`{other}`: usage: bench [--quick] [--only NAME], NAME one of {NAMES:?}")
            }
        }
    }
    Ok(options)
}

/// Runs a future to its end.
fn block_on<T>(run: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run)
}
