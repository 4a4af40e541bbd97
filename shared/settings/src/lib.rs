//! Everything the process was told, parsed once, all complaints at once.

use std::{collections::BTreeMap, path::PathBuf};

use domain::{Duration, LiveSettings, items::Column};

/// Settings of one project: `headwater.yml` with `HEADWATER_*` variables over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The project's folder.
    pub project: PathBuf,
    /// `name`: what the project is called; its folder's name by default.
    pub name: String,
    /// `warehouse`: where objects are.
    pub warehouse: Warehouse,
    /// `state`: the SQLite file, absolute.
    pub state: PathBuf,
    /// `live`: the runner.
    pub live: LiveSettings,
    /// `sources`: by source name.
    pub sources: BTreeMap<String, Source>,
    /// `query`: limits of reads.
    pub query: QueryLimits,
}

/// Where objects are: the scheme of the URL chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warehouse {
    /// `file://` or a plain path; absolute.
    Folder(PathBuf),
    /// `memory://`.
    Memory,
}

/// One webhook source.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// `headers`: request header (lower case) to the landing column that keeps it, VARCHAR.
    pub headers: BTreeMap<String, String>,
    /// `columns`: typed columns taken out of each event's top level beside `payload`, in order.
    pub columns: Vec<Column>,
    /// `body_max`: most bytes of a decoded body.
    pub body_max: usize,
}

impl Default for Source {
    fn default() -> Self {
        Self { headers: BTreeMap::new(), columns: Vec::new(), body_max: 16 << 20 }
    }
}

/// What one read may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// `memory`: the pool shared by all statements, bytes; beyond it they spill to disk.
    pub memory: usize,
    /// `timeout` of one statement.
    pub timeout: Duration,
    /// `rows_max` returned by one statement over HTTP or the CLI.
    pub rows_max: u64,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { memory: 256 << 20, timeout: Duration::from_secs(60), rows_max: 100_000 }
    }
}
