//! The format of cases about entries.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// Kind `materialize`.
#[derive(Clone, Debug, Deserialize)]
pub struct Materialize {
    /// Cached functions.
    pub functions: BTreeMap<String, Function>,
    /// What happens.
    pub steps: Vec<EntryStep>,
}

/// A cached function.
#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    /// Seconds; none for ever.
    pub ttl: Option<f64>,
    /// Its version.
    #[serde(default)]
    pub version: i64,
    /// `swr`, or strict.
    pub mode: Option<String>,
    /// Its rows, or `raise`.
    pub result: Value,
}

/// One step of a `materialize` case.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "the words are those of the case format, described in its README"
)]
pub enum EntryStep {
    Call {
        #[serde(rename = "fn")]
        function: String,
        #[serde(default)]
        args: Vec<Value>,
        #[serde(default)]
        kwargs: Map<String, Value>,
        #[serde(default)]
        expect: Served,
    },
    Flush {
        #[serde(default)]
        expect_errors: usize,
    },
    ExpectRegistry {
        #[serde(rename = "fn")]
        function: String,
        #[serde(default)]
        args: Vec<Value>,
        row: Option<Value>,
    },
    ExpectDataSets {
        count: usize,
    },
    SetFunction {
        #[serde(rename = "fn")]
        function: String,
        version: Option<i64>,
        result: Option<Value>,
    },
    SetConfig {
        inline_threshold_bytes: Value,
    },
    RememberInlineLength {
        #[serde(rename = "as")]
        name: String,
    },
    Clock {
        advance_seconds: f64,
    },
    Fault {
        op: String,
        times: u64,
    },
    DeleteData {
        #[serde(rename = "fn")]
        function: String,
        #[serde(default)]
        args: Vec<Value>,
    },
    Evict {
        #[serde(rename = "fn")]
        function: String,
        #[serde(default)]
        args: Vec<Value>,
        #[serde(default)]
        expect_error: bool,
    },
    Sweep {
        expect: BTreeMap<String, u64>,
    },
    Reconcile {
        expect: BTreeMap<String, u64>,
    },
    ListExpired {
        expect: Vec<String>,
    },
    PlantRow {
        #[serde(rename = "fn")]
        function: String,
        #[serde(default)]
        args: Vec<Value>,
        #[serde(default)]
        row: Map<String, Value>,
    },
}

/// What a call must bring; what is absent is not asked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Served {
    /// Served from the registry.
    pub cached: Option<bool>,
    /// Served past its expiry.
    pub stale: Option<bool>,
    /// How often the function has run so far.
    pub calls: Option<usize>,
    /// Rows.
    pub rows: Option<Vec<Value>>,
    /// Whether it fails.
    #[serde(default)]
    pub error: bool,
    /// SQL that is run on the entry.
    pub sql: Option<String>,
    /// Its rows.
    pub sql_rows: Option<Vec<Value>>,
}

/// Two calls of kind `fingerprint`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// A call.
    pub a: Value,
    /// Another.
    pub b: Option<Value>,
    /// Whether they share an entry.
    #[serde(default)]
    pub same: bool,
    /// The first has no fingerprint.
    #[serde(default)]
    pub rejected: bool,
}
