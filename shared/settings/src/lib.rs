//! Everything the process was told, parsed once, all complaints at once.
//!
//! Settings live in `headwater.yml` of the project; a variable `HEADWATER_<SECTION>_<KEY>`
//! overrides a key of the file. Nothing is read later, and nothing here opens anything but that one
//! file.
//!
//! ```
//! # use std::collections::BTreeMap;
//! let vars = BTreeMap::from([(String::from("HEADWATER_LIVE_DEBOUNCE"), String::from("10ms"))]);
//! let settings = settings::Settings::parse("shop".as_ref(), "live:\n  max_lag: 1m\n", &vars)?;
//! assert_eq!(settings.live.debounce.as_millis(), 10);
//! assert_eq!(settings.live.max_lag.as_secs(), 60);
//! # Ok::<(), Vec<settings::Complaint>>(())
//! ```

mod load;
mod materialize;
mod models;
mod read;
mod sources;
mod tree;
mod words;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use domain::{Duration, EntrySettings, LiveSettings, items::Column};

pub use models::{ModelFiles, TRANSFORM, model_files};

/// The name of the settings file in a project's folder.
pub const FILE: &str = "headwater.yml";

/// Something wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Complaint {
    /// `headwater.yml:3:5`, or the variable.
    pub place: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Settings of one project: `headwater.yml` with `HEADWATER_*` variables over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The project's folder.
    pub project: PathBuf,
    /// `name`: what the project is called; its folder's name by default.
    pub name: String,
    /// `warehouse`: where objects are.
    pub warehouse: Warehouse,
    /// `state`: where state is.
    pub state: StateStore,
    /// `queue`: what announcements and refreshes travel on.
    pub queue: Queues,
    /// `live`: the runner.
    pub live: LiveSettings,
    /// `sources`: by source name.
    pub sources: BTreeMap<String, Source>,
    /// `auth`: who may call.
    pub auth: Auth,
    /// `alerts`: where it is told that a model failed or recovered.
    pub alerts: AlertChannels,
    /// `query`: limits of reads.
    pub query: QueryLimits,
    /// `materialize`: what entries are held to.
    pub materialize: EntrySettings,
    /// `embedder`: what makes vectors of text.
    pub embedder: Embedding,
}

/// What makes vectors of text: the scheme of `embedder.url` chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Embedding {
    /// Nothing.
    #[default]
    None,
    /// `https://host/v1`: a service that speaks as OpenAI's does, `POST <url>/embeddings`.
    Http {
        /// The address, without a slash at its end.
        url: String,
        /// `model`: which one it is to use.
        model: String,
        /// `key`: sent as a bearer token.
        key: Option<Secret>,
    },
    /// `bedrock://model`: Amazon Bedrock, with the credentials and the region of the function.
    Bedrock(String),
    /// `file://folder`: a small model on this machine, `tokenizer.json` and `model.safetensors`.
    Model(PathBuf),
}

/// Where alerts go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertChannels {
    /// `log`: the log.
    pub log: bool,
    /// `webhook`: a POST of JSON to this address.
    pub webhook: Option<Secret>,
    /// `slack`: a sentence to this incoming webhook of Slack.
    pub slack: Option<Secret>,
}

impl Default for AlertChannels {
    fn default() -> Self {
        Self {
            log: true,
            webhook: None,
            slack: None,
        }
    }
}

/// A text that is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Who may call the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// `tokens`: BLAKE3 digests of the tokens that are let in, written `blake3:` and 64 hexadecimal digits, separated by
    /// commas. Tokens themselves are nowhere.
    pub tokens: Vec<[u8; 32]>,
}

/// Where objects are: the scheme of the URL chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warehouse {
    /// `file://` or a plain path; absolute.
    Folder(PathBuf),
    /// `memory://`.
    Memory,
    /// `s3://bucket/prefix`; the prefix may be empty, and neither begins nor ends with a slash.
    S3 {
        /// The bucket.
        bucket: String,
        /// What every path begins with.
        prefix: String,
    },
}

/// Where state is: the scheme of the URL chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateStore {
    /// `sqlite://`: the file, absolute.
    Sqlite(PathBuf),
    /// `dynamodb://table/catalog`.
    DynamoDb {
        /// The table of state items.
        table: String,
        /// The table that PyIceberg's DynamoDB catalog reads.
        catalog: String,
    },
}

/// What announcements and refreshes travel on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queues {
    /// In the process.
    Process,
    /// `queue.advances` and `queue.refreshes`: URLs of two SQS queues, the second FIFO.
    Sqs {
        /// Announcements of advances.
        advances: String,
        /// Refreshes.
        refreshes: String,
    },
}

/// One source of events or of changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// `headers`: request header (lower case) to the landing column that keeps it, VARCHAR.
    pub headers: BTreeMap<String, String>,
    /// `columns`: typed columns taken out of each event's top level beside `payload`, in order.
    pub columns: Vec<Column>,
    /// `body_max`: most bytes of a decoded body.
    pub body_max: usize,
    /// `lsn`: the field that orders changes, with dots between, from the envelope; none for the usual ones.
    pub lsn: Option<String>,
    /// `key`: columns of a changed row's key; empty when they are to be guessed.
    pub key: Vec<String>,
    /// Where the file names each column of `headers` and `columns`, for messages.
    pub places: BTreeMap<String, String>,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            headers: BTreeMap::new(),
            columns: Vec::new(),
            body_max: 16 << 20,
            lsn: None,
            key: Vec::new(),
            places: BTreeMap::new(),
        }
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
        Self {
            memory: 256 << 20,
            timeout: Duration::from_secs(60),
            rows_max: 100_000,
        }
    }
}
