//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::Duration;

pub use crate::commands::entries::Entries;

/// SQL models that stay fresh within a second of new data, on files of an open format.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "headwater",
    version,
    about,
    after_help = "Start with:\n  headwater demo          see webhooks become gold, live\n  headwater init shop     a project to change\n\nExit codes: 0 done, 1 the project or its data has errors, 2 usage, 3 something is unavailable."
)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What flags of every command stand under.
const COMMON: &str = "Common flags";

/// Flags of every command.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The project's folder [default: .]
    #[arg(long, global = true, value_name = "DIR", help_heading = COMMON)]
    pub project: Option<PathBuf>,
    /// Answer with JSON, for programs
    #[arg(long, global = true, help_heading = COMMON)]
    pub json: bool,
    /// Log more to stderr; twice for still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = COMMON)]
    pub verbose: u8,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Make a project that runs
    #[command(after_help = "Example:\n  headwater init shop && headwater --project shop serve")]
    Init {
        /// Where [default: the project's folder]
        dir: Option<PathBuf>,
    },
    /// Serve webhooks, queries and the status page, and keep live models fresh
    #[command(after_help = "Example:\n  headwater serve --listen 127.0.0.1:9000")]
    Serve {
        /// Address to listen on, `9000` and `localhost:9000` are this machine's; port 0 takes a free one
        #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDR", value_parser = listen)]
        listen: SocketAddr,
    },
    /// See orders stream through landing, bronze, silver and gold
    #[command(after_help = "Example:\n  headwater demo --seconds 30 --seed 7")]
    Demo(Demo),
    /// Keep live models fresh in the foreground, without a server
    #[command(
        after_help = "Examples:\n  headwater live                      until Ctrl-C\n  headwater live --once               one cycle\n  headwater live status\n  headwater live lag gold.revenue\n  headwater live pause silver.orders\n  headwater live advance landing.orders"
    )]
    Live {
        /// Run one cycle and end
        #[arg(long)]
        once: bool,
        /// A control instead of a runner.
        #[command(subcommand)]
        control: Option<Control>,
    },
    /// Build models in order, live or not
    #[command(after_help = "Examples:\n  headwater run\n  headwater run gold.revenue --full")]
    Run {
        /// Only these models; what they read is brought up to date before them
        models: Vec<String>,
        /// Build the named models from nothing, or all when none is named
        #[arg(long)]
        full: bool,
    },
    /// Fold landing commits, let old snapshots go, remove what nothing names
    #[command(
        after_help = "Example:\n  headwater maintain\n\n`serve`, `live` and `run` do the same by themselves, a little at a time."
    )]
    Maintain,
    /// Rows that broke a model with `on_bad_row=quarantine`: list them, put them through it again, drop them
    #[command(
        after_help = "Examples:\n  headwater quarantine list\n  headwater quarantine show silver.orders 5\n  headwater quarantine replay silver.orders --id 5 --id 7\n  headwater quarantine drop silver.orders"
    )]
    Quarantine {
        /// What to do with them.
        #[command(subcommand)]
        what: Quarantine,
    },
    /// Check settings and models without running anything
    #[command(after_help = "Example:\n  headwater validate --project shop")]
    Validate,
    /// Judge models by `max_lag` and `target_lag`, sources by `@source_freshness`; the exit code says whether all are fresh
    #[command(after_help = "Example:\n  headwater check || page-somebody")]
    Check,
    /// Make a token for callers of the server, and the digest to configure
    #[command(after_help = "Example:\n  headwater token")]
    Token,
    /// Show what a run would do, and why
    #[command(after_help = "Example:\n  headwater plan")]
    Plan,
    /// List the tables that a statement can read, or the columns of one
    #[command(after_help = "Examples:\n  headwater tables\n  headwater tables silver.orders")]
    Tables {
        /// The table [default: a line for each]
        table: Option<String>,
    },
    /// Run a read-only SQL statement over the lake
    #[command(
        after_help = "Examples:\n  headwater query \"SELECT * FROM gold.revenue\"\n  headwater query --csv - < report.sql > report.csv"
    )]
    Query {
        /// One SELECT, or `-` to read it from stdin
        sql: String,
        /// Answer with CSV
        #[arg(long, conflicts_with = "json")]
        csv: bool,
    },
    /// Look after materialized entries: results that are kept until they expire
    #[command(
        subcommand,
        after_help = "Examples:\n  headwater entries run \"SELECT region, sum(amount) AS n FROM silver.orders GROUP BY region\" --ttl 10m\n  headwater entries list\n  headwater entries query 3f2a \"SELECT max(n) FROM this\"\n\nAn entry is named by its fingerprint, or the beginning of it."
    )]
    Entries(Entries),
    /// Load a file (NDJSON, CSV or parquet) into a landing table
    #[command(after_help = "Example:\n  headwater ingest flights.csv --table landing.flights")]
    Ingest {
        /// The file
        file: PathBuf,
        /// The landing table [default: landing.<name of the file>]
        #[arg(long, value_name = "TABLE")]
        table: Option<String>,
    },
    /// Deploy the project on AWS: show what is created, ask, and do it
    #[command(
        after_help = "Examples:\n  headwater deploy                    without a terminal: only what would be created\n  headwater deploy --name shop --build --set AlarmEmail=ops@example.com"
    )]
    Deploy(Deploy),
    /// Look whether a deployment is complete and well
    #[command(
        after_help = "Example:\n  headwater doctor --name shop\n\nExit codes: 0 nothing fails, 1 something does, 3 AWS cannot be reached."
    )]
    Doctor(Target),
}

/// Controls of the live runner; a running server takes them up by itself.
#[derive(Clone, Debug, Subcommand)]
pub enum Control {
    /// Show where every live model and source stands
    Status,
    /// Show how old data was when models applied it: the last hour by minutes, the last day by quarters of an hour
    Lag {
        /// The model [default: a line for each]
        model: Option<String>,
    },
    /// Show what a model's columns hold: NULLs, least and greatest value, about how many distinct ones
    Profile {
        /// The model
        model: String,
        /// Look now instead of showing what was found last
        #[arg(long)]
        now: bool,
    },
    /// Stop refreshing a model until it is resumed
    Pause {
        /// The model
        model: String,
    },
    /// Refresh a paused or failing model again
    Resume {
        /// The model
        model: String,
    },
    /// Refresh a model at the next cycle, whatever backoff and interval say
    Refresh {
        /// The model
        model: String,
    },
    /// Commit what other writers left under landing/<table>/incoming/, and announce it
    Advance {
        /// The landing table
        source: String,
    },
}

/// What is done with rows in quarantine. A row is named by its sequence in the model's input.
#[derive(Clone, Debug, Subcommand)]
pub enum Quarantine {
    /// Show which rows are in quarantine, why, and the tables of all that was ever quarantined
    List {
        /// Only this model's
        model: Option<String>,
    },
    /// Show one row
    Show {
        /// The model
        model: String,
        /// The row
        id: u64,
    },
    /// Put rows through the model again; those that pass leave the quarantine with the same commit. `--id` may name a dropped row too
    Replay {
        /// The model
        model: String,
        /// Only this row; may be repeated
        #[arg(long = "id", value_name = "ID")]
        ids: Vec<u64>,
    },
    /// Leave rows out for good: no refresh and no rebuild reads them again
    Drop {
        /// The model
        model: String,
        /// Only this row; may be repeated
        #[arg(long = "id", value_name = "ID")]
        ids: Vec<u64>,
    },
}

/// Which deployment, and where.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// What the names of all its resources begin with
    #[arg(long, default_value = "headwater", value_name = "NAME")]
    pub name: String,
    /// The region [default: the environment's]
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
    /// Of an emulator [default: AWS]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The folder of the templates [default: `infra` here, beside here, or above this program]
    #[arg(long, value_name = "DIR")]
    pub infra: Option<PathBuf>,
}

/// What is deployed.
#[derive(Clone, Debug, Args)]
pub struct Deploy {
    /// Which deployment, and where.
    #[command(flatten)]
    pub target: Target,
    /// The folder of the functions' programs [default: target/lambda, as cargo-lambda leaves them]
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// A parameter of a template; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    pub settings: Vec<String>,
    /// What the programs are built for
    #[arg(long, value_enum, default_value_t = Architecture::Arm64)]
    pub arch: Architecture,
    /// Build the programs first, with cargo-lambda
    #[arg(long)]
    pub build: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// Processors that functions run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Architecture {
    /// Graviton.
    Arm64,
    /// Intel and AMD.
    #[value(name = "x86_64")]
    X86_64,
}

impl Architecture {
    /// As the templates spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86_64 => "x86_64",
        }
    }
}

/// What the demonstration does.
#[derive(Clone, Copy, Debug, Args)]
pub struct Demo {
    /// End after this long
    #[arg(long, default_value = "15", value_name = "N", value_parser = seconds)]
    pub seconds: Duration,
    /// End after this many events instead
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub events: Option<u64>,
    /// Seed of the stream: one seed, one stream
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(String::from("a number of seconds from 0.1 to 86400")),
    }
}

fn assignment(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some(("Architecture", _)) => Err(String::from("say it with --arch")),
        Some(("Name", _)) => Err(String::from("say it with --name")),
        Some((key, _)) if !key.is_empty() => Ok(text.to_owned()),
        _ => Err(String::from("a parameter and its value, as in LogDays=90")),
    }
}

/// An address to listen on: a socket address, or a port of this machine alone as `9000`, `:9000` or `localhost:9000`.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let host = text.strip_prefix("localhost:").or(text.strip_prefix(':'));
    match host.unwrap_or(text).parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse().map_err(|_| {
            String::from("write an address and a port such as `127.0.0.1:9000`, or a port alone")
        }),
    }
}
