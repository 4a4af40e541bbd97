//! The format of a conformance case: one JSON file each.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

mod materialize;

pub use materialize::{EntryStep, Function, Materialize, Pair, Served};

/// Cells of a table, row by row.
pub type Cells = Vec<Vec<Value>>;

/// Columns of a landing table: name and SQL type.
pub type Columns = Vec<(String, String)>;

/// One case.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Its name: `L01`.
    pub id: String,
    /// What it says.
    pub title: String,
    /// How it is replayed, and what it holds.
    #[serde(flatten)]
    pub kind: Kind,
}

/// Kinds of cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// Data in, cycles, data out.
    Live(Live),
    /// Commits and deliveries in any order.
    Delivery(Live),
    /// Requests against a fresh project.
    Http(Http),
    /// Models in, findings out.
    Validate {
        /// Independent checks.
        cases: Vec<Validate>,
    },
    /// Header text in, parsed parts out.
    ConfigParse {
        /// Independent checks.
        cases: Vec<Parse>,
    },
    /// Arrivals in, cycle starts out.
    Schedule(Schedule),
    /// Cached functions, calls of them, faults.
    Materialize(Materialize),
    /// Pairs of calls that share an entry or do not.
    Fingerprint {
        /// The pairs.
        pairs: Vec<Pair>,
    },
    /// Chained look-ups of a client; not part of this program yet.
    Facade {
        /// The entry's rows.
        rows: Vec<Value>,
        /// Chains of look-ups.
        cases: Vec<Chain>,
    },
}

/// A model, not yet a file.
#[derive(Clone, Debug, Deserialize)]
pub struct ModelText {
    /// `schema.name`.
    pub name: String,
    /// The `@config` keys.
    pub config: BTreeMap<String, String>,
    /// The query.
    pub sql: String,
    /// `@assert` lines.
    #[serde(default)]
    pub asserts: Vec<String>,
}

/// Kind `live` and `delivery`.
#[derive(Clone, Debug, Deserialize)]
pub struct Live {
    /// Landing tables without the sequence column.
    #[serde(default)]
    pub landing: BTreeMap<String, Columns>,
    /// The models.
    pub models: Vec<ModelText>,
    /// Overrides of the `live:` section; durations in seconds.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// One step of a `live` or `delivery` case.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "the words are those of the case format, described in its README"
)]
pub enum Step {
    Land {
        table: String,
        rows: Cells,
        #[serde(default = "yes")]
        advance: bool,
    },
    Advance {
        source: String,
        expect: Option<Range>,
    },
    Cycle {
        #[serde(default)]
        expect: BTreeMap<String, String>,
    },
    BatchRun {},
    Clock {
        advance_seconds: f64,
    },
    Pause {
        model: String,
    },
    Resume {
        model: String,
    },
    RefreshNow {
        model: String,
    },
    EditModel {
        name: String,
        sql: Option<String>,
        config: Option<BTreeMap<String, String>>,
        asserts: Option<Vec<String>>,
    },
    Deliver {
        advances: Vec<usize>,
    },
    ExpectTable {
        table: String,
        columns: Vec<String>,
        order_by: Vec<String>,
        rows: Cells,
    },
    ExpectAbsent {
        table: String,
    },
    ExpectTombstones {
        model: String,
        columns: Vec<String>,
        rows: Cells,
    },
    ExpectWatermarks {
        values: BTreeMap<String, u64>,
    },
    ExpectConsumed {
        values: BTreeMap<String, BTreeMap<String, u64>>,
    },
    ExpectStatus {
        models: BTreeMap<String, serde_json::Map<String, Value>>,
    },
    ExpectFresh {
        models: BTreeMap<String, bool>,
    },
    ExpectAlerts {
        alerts: Vec<(String, String)>,
    },
}

fn yes() -> bool {
    true
}

/// What an advance found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Range {
    /// Rows stamped.
    pub rows: u64,
    /// Sequence before.
    pub from: u64,
    /// Sequence after.
    pub to: u64,
}

/// Kind `http`.
#[derive(Clone, Debug, Deserialize)]
pub struct Http {
    /// The models.
    #[serde(default)]
    pub models: Vec<ModelText>,
    /// What happens.
    pub steps: Vec<Exchange>,
}

/// One step of an `http` case: a request or a query.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Exchange {
    /// A request and what its answer must hold.
    Request {
        /// Method and path.
        req: (String, String),
        /// A JSON body.
        json: Option<Value>,
        /// A body as it is.
        raw: Option<String>,
        /// Text repeated this often is the body.
        repeat: Option<(String, usize)>,
        /// Request headers.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// The status.
        status: u16,
        /// A subset of the body.
        body: Option<Value>,
        /// Keys of the body.
        #[serde(default)]
        has: Vec<String>,
    },
    /// A read and its rows.
    Query {
        /// The statement.
        query: String,
        /// Its rows.
        rows: Cells,
    },
}

/// One check of kind `validate`.
#[derive(Clone, Debug, Deserialize)]
pub struct Validate {
    /// What it is about.
    pub name: String,
    /// The models.
    pub models: Vec<ModelText>,
    /// Tables that exist beside them.
    #[serde(default)]
    pub known_tables: Vec<String>,
    /// The findings, in any order.
    pub expect: Vec<Expected>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Expected {
    /// The model.
    pub model: String,
    /// `error` or `warning`.
    pub severity: String,
    /// The neutral code.
    pub code: String,
}

/// One check of kind `config_parse`.
#[derive(Clone, Debug, Deserialize)]
pub struct Parse {
    /// What it is about.
    pub name: String,
    /// The model file.
    pub text: String,
    /// Its parts; those left out are not compared.
    pub expect: Parts,
}

/// Parts of a header.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Parts {
    /// `@config`.
    pub config: Option<BTreeMap<String, String>>,
    /// `@assert`: expression and severity.
    pub asserts: Option<Vec<(String, String)>>,
    /// `@depends_on`.
    pub depends_on: Option<Vec<String>>,
    /// The query.
    pub sql: Option<String>,
}

/// Kind `schedule`.
#[derive(Clone, Debug, Deserialize)]
pub struct Schedule {
    /// Overrides of the `live:` section; durations in seconds.
    pub settings: BTreeMap<String, Value>,
    /// Advances.
    pub arrivals: Vec<Arrival>,
    /// Nothing after this many seconds is looked at.
    pub horizon: f64,
    /// What comes out.
    pub expect: Cycles,
}

/// An advance.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Arrival {
    /// Seconds from the start.
    pub at: f64,
    /// Whether it was announced.
    pub notified: bool,
}

/// The cycles of a schedule.
#[derive(Clone, Debug, Deserialize)]
pub struct Cycles {
    /// In order.
    pub cycles: Vec<Start>,
}

/// The start of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Start {
    /// Seconds from the start.
    pub at: f64,
    /// Advances it covers.
    pub advances: usize,
}

impl Case {
    /// Reads a case, its tokens replaced by our names.
    ///
    /// # Errors
    /// Says what is wrong with the file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Parses a case, its tokens replaced by our names.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.replace("$seq", "_seq").replace("$deleted", "_deleted");
        Ok(serde_json::from_str(&text)?)
    }
}

impl ModelText {
    /// The model's file: path relative to the project, and text.
    #[must_use]
    pub fn file(&self) -> (String, String) {
        let config: Vec<_> = self
            .config
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let mut text = String::new();
        if !config.is_empty() {
            text.push_str(&format!("@config {}\n", config.join(", ")));
        }
        for check in &self.asserts {
            text.push_str(&format!("@assert {check}\n"));
        }
        text.push_str(&format!("\n{}\n", self.sql));
        (
            format!("transform/{}.sql", self.name.replace('.', "/")),
            text,
        )
    }
}

/// Applies overrides of the `live:` section to its defaults, jitter off.
///
/// # Errors
/// Names a key that is none.
pub fn live_settings(overrides: &BTreeMap<String, Value>) -> Result<domain::LiveSettings> {
    let mut live = domain::LiveSettings {
        jitter: 0.0,
        ..domain::LiveSettings::default()
    };
    for (key, value) in overrides {
        let seconds =
            domain::Duration::from_secs_f64(value.as_f64().context("a duration in seconds")?);
        match key.as_str() {
            "min_interval" => live.min_interval = seconds,
            "debounce" => live.debounce = seconds,
            "max_latency" => live.max_latency = seconds,
            "poll_interval" => live.poll_interval = seconds,
            "log_interval" => live.log_interval = seconds,
            "backoff_base" => live.backoff_base = seconds,
            "backoff_max" => live.backoff_max = seconds,
            "assertion_interval" => live.assertion_interval = seconds,
            "profile_interval" => live.profile_interval = seconds,
            "max_lag" => live.max_lag = seconds,
            _ => anyhow::bail!("`{key}` is no setting of `live:`"),
        }
    }
    Ok(live)
}

/// A chain of look-ups, and the rows it has to find.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// Calls: a word and its argument.
    pub chain: Vec<(String, Value)>,
    /// Ids of the rows, in order.
    #[serde(default)]
    pub ids: Vec<i64>,
    /// Whether it is refused.
    #[serde(default)]
    pub error: bool,
}
