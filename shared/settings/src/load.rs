//! The keys of `headwater.yml`: which there are, and what they become.

use std::{collections::BTreeMap, io, path::Path};

use domain::{
    Duration, LiveSettings, Maintenance, SLOW_READS, cdc::Placeholder, duration::parse_duration,
};

use crate::{
    AlertChannels, Auth, Complaint, FILE, QueryLimits, Queues, Secret, Settings, Source,
    StateStore, Warehouse,
    materialize::{embedder, materialize},
    read::{Reader, Section},
    sources::sources,
    tree::{self, Node},
    words::{boolean, count, size},
};

/// Shortest time an object that nothing names any more must stay: reads that began before take so long.
const GRACE_MIN: Duration = Duration::from_secs(60);

impl Settings {
    /// Reads a project's settings: `headwater.yml` when there is one, and the variables over it.
    ///
    /// # Errors
    /// Every complaint at once, each with its line and column or its variable.
    pub fn load(project: &Path, vars: &BTreeMap<String, String>) -> Result<Self, Vec<Complaint>> {
        let file = project.join(FILE);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                let message = format!("cannot be read: {error}");
                return Err(vec![Complaint {
                    place: file.display().to_string(),
                    message,
                }]);
            }
        };
        Self::parse(project, &text, vars)
    }

    /// Reads settings from the text of a `headwater.yml`.
    ///
    /// # Errors
    /// Every complaint at once, each with its line and column or its variable.
    pub fn parse(
        project: &Path,
        text: &str,
        vars: &BTreeMap<String, String>,
    ) -> Result<Self, Vec<Complaint>> {
        // One project has one name for its folder, whichever way it is reached: Iceberg keeps absolute paths.
        let project = std::fs::canonicalize(project)
            .or_else(|_| std::path::absolute(project))
            .unwrap_or_else(|_| project.to_owned());
        let mut reader = Reader::new(vars);
        let root = match tree::parse(FILE, text) {
            Ok(root) => root,
            Err(complaint) => return Err(vec![complaint]),
        };
        let mut top = reader.section("", Some(root));
        let settings = Self {
            name: reader.value(&mut top, "name", folder_name(&project), accept),
            warehouse: reader.value(&mut top, "warehouse", default_warehouse(&project), |url| {
                warehouse(&project, url)
            }),
            state: reader.value(
                &mut top,
                "state",
                StateStore::Sqlite(project.join(".headwater/state.db")),
                |url| state(&project, url),
            ),
            queue: queues(&mut reader, top.take("queue")),
            live: LiveSettings {
                maintenance: maintenance(&mut reader, top.take("maintenance")),
                ..live(&mut reader, top.take("live"))
            },
            sources: sources(&mut reader, top.take("sources")),
            auth: auth(&mut reader, top.take("auth")),
            alerts: alerts(&mut reader, top.take("alerts")),
            query: query(&mut reader, top.take("query")),
            materialize: materialize(&mut reader, top.take("materialize")),
            embedder: embedder(&mut reader, top.take("embedder"), &project),
            project,
        };
        let known = top.known().to_vec();
        reader.finish(top);
        lasting(&mut reader, &settings);
        reader.finish_top(&known);
        if reader.complaints.is_empty() {
            Ok(settings)
        } else {
            Err(reader.complaints)
        }
    }

    /// The settings of a source; defaults when the file does not name it.
    #[must_use]
    pub fn source(&self, name: &str) -> Source {
        self.sources.get(name).cloned().unwrap_or_default()
    }
}

/// Where a section stands in the file, for what is wrong with several of its keys together.
pub(crate) fn place_of(node: Option<&Node>) -> String {
    node.map_or_else(|| FILE.to_owned(), |node| node.place.clone())
}

fn accept(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn folder_name(project: &Path) -> String {
    project.file_name().map_or_else(
        || String::from("headwater"),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn default_warehouse(project: &Path) -> Warehouse {
    Warehouse::Folder(project.join(".headwater/warehouse"))
}

fn warehouse(project: &Path, url: &str) -> Result<Warehouse, String> {
    match url.split_once("://") {
        Some(("memory", "" | "/")) => Ok(Warehouse::Memory),
        Some(("file", path)) if !path.is_empty() => Ok(Warehouse::Folder(project.join(path))),
        Some(("s3", place)) if !place.trim_matches('/').is_empty() => {
            let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
            Ok(Warehouse::S3 {
                bucket: bucket.to_owned(),
                prefix: prefix.trim_matches('/').to_owned(),
            })
        }
        None if !url.trim().is_empty() => Ok(Warehouse::Folder(project.join(url))),
        _ => Err(format!(
            "`{url}` is no warehouse: write a folder, `file:///absolute/folder`, `s3://bucket/prefix` or `memory://`"
        )),
    }
}

fn state(project: &Path, url: &str) -> Result<StateStore, String> {
    match url.split_once("://") {
        Some(("sqlite", path)) if !path.is_empty() => Ok(StateStore::Sqlite(project.join(path))),
        Some(("dynamodb", tables)) => match tables.split_once('/') {
            Some((table, catalog)) if is_table(table) && is_table(catalog) => {
                Ok(StateStore::DynamoDb {
                    table: table.to_owned(),
                    catalog: catalog.to_owned(),
                })
            }
            _ => Err(format!(
                "`{url}` names no two tables: write `dynamodb://state-table/catalog-table`"
            )),
        },
        _ => Err(format!(
            "`{url}` is no state store: write `sqlite://path/to/state.db` or `dynamodb://state-table/catalog-table`"
        )),
    }
}

/// Whether DynamoDB takes it as the name of a table: 3 to 255 of letters, digits, `_`, `-` and `.`.
fn is_table(name: &str) -> bool {
    (3..=255).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

fn queues(reader: &mut Reader<'_>, node: Option<Node>) -> Queues {
    let place = place_of(node.as_ref());
    let mut section = reader.section("queue", node);
    let mut url = |key| reader.value(&mut section, key, String::new(), queue_url);
    let (advances, refreshes) = (url("advances"), url("refreshes"));
    finish(reader, section, "queue");
    if advances.is_empty() != refreshes.is_empty() {
        reader.complain(place, "`queue.advances` and `queue.refreshes` go together");
    }
    match advances.is_empty() {
        true => Queues::Process,
        false => Queues::Sqs {
            advances,
            refreshes,
        },
    }
}

fn queue_url(url: &str) -> Result<String, String> {
    match url.split_once("://") {
        Some(("http" | "https", rest)) if rest.contains('/') => Ok(url.to_owned()),
        _ => Err(format!(
            "`{url}` is no queue: write the URL of an SQS queue"
        )),
    }
}

fn live(reader: &mut Reader<'_>, node: Option<Node>) -> LiveSettings {
    let mut section = reader.section("live", node);
    let d = LiveSettings::default();
    let enabled = reader.value(&mut section, "enabled", d.enabled, boolean);
    let unavailable_value = reader.value(
        &mut section,
        "unavailable_value",
        d.unavailable_value,
        placeholder,
    );
    let poll_interval =
        reader.value(
            &mut section,
            "poll_interval",
            d.poll_interval,
            |text| match parse_duration(text) {
                Ok(span) if span < Duration::from_millis(10) => Err(String::from(
                    "it must be at least 10ms, or the runner would only poll",
                )),
                span => span.map_err(|error| error.to_string()),
            },
        );
    let mut span = |key, default| reader.value(&mut section, key, default, parse_duration);
    let live = LiveSettings {
        enabled,
        min_interval: span("min_interval", d.min_interval),
        debounce: span("debounce", d.debounce),
        max_latency: span("max_latency", d.max_latency),
        poll_interval,
        log_interval: span("log_interval", d.log_interval),
        backoff_base: span("backoff_base", d.backoff_base),
        backoff_max: span("backoff_max", d.backoff_max),
        jitter: d.jitter,
        assertion_interval: span("assertion_interval", d.assertion_interval),
        profile_interval: span("profile_interval", d.profile_interval),
        max_lag: span("max_lag", d.max_lag),
        unavailable_value,
        tombstone_retention: span("tombstone_retention", d.tombstone_retention),
        maintenance: d.maintenance,
    };
    finish(reader, section, "live");
    live
}

fn placeholder(text: &str) -> Result<Placeholder, String> {
    match text.trim().is_empty() {
        true => Err(String::from(
            "it is empty, and every empty text would stand for a value that did not change",
        )),
        false => Ok(Placeholder::new(text)),
    }
}

fn alerts(reader: &mut Reader<'_>, node: Option<Node>) -> AlertChannels {
    let mut section = reader.section("alerts", node);
    let default = AlertChannels::default();
    let alerts = AlertChannels {
        log: reader.value(&mut section, "log", default.log, boolean),
        webhook: reader.value(&mut section, "webhook", default.webhook, address),
        slack: reader.value(&mut section, "slack", default.slack, address),
    };
    finish(reader, section, "alerts");
    alerts
}

/// An address that is a secret, which no message repeats. Private ones are fine: who writes settings runs the program.
fn address(text: &str) -> Result<Option<Secret>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let host = match text.split_once("://") {
        Some(("http" | "https", rest)) => rest.split(['/', '?', '#']).next().unwrap_or_default(),
        _ => "",
    };
    let sound = !host.is_empty() && !host.contains('@') && !text.contains(char::is_whitespace);
    match sound {
        true => Ok(Some(Secret(text.to_owned()))),
        false => Err(String::from(
            "it is no address: write `https://host/path`, without a user's name in it",
        )),
    }
}

fn auth(reader: &mut Reader<'_>, node: Option<Node>) -> Auth {
    let mut section = reader.section("auth", node);
    let auth = Auth {
        tokens: reader.value(&mut section, "tokens", Vec::new(), digests),
    };
    finish(reader, section, "auth");
    auth
}

fn digests(text: &str) -> Result<Vec<[u8; 32]>, String> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts.map(digest).collect()
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    // What is wrong may be the token itself, which no message repeats.
    let wrong = || {
        "it holds something that is no `blake3:` and 64 hexadecimal digits; `headwater token` makes a token and its digest"
            .to_owned()
    };
    let hex = text.strip_prefix("blake3:").ok_or_else(wrong)?;
    let mut digest = [0; 32];
    if hex.len() != 2 * digest.len() || !hex.is_ascii() {
        return Err(wrong());
    }
    for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(digest)
}

fn maintenance(reader: &mut Reader<'_>, node: Option<Node>) -> Maintenance {
    let place = place_of(node.as_ref());
    let mut section = reader.section("maintenance", node);
    let d = Maintenance::default();
    let enabled = reader.value(&mut section, "enabled", d.enabled, boolean);
    let mut span = |key, default| reader.value(&mut section, key, default, parse_duration);
    let maintenance = Maintenance {
        enabled,
        interval: span("interval", d.interval),
        budget: span("budget", d.budget),
        fold_after: span("fold_after", d.fold_after),
        retention: span("retention", d.retention),
        grace: span("grace", d.grace),
        orphans: span("orphans", d.orphans),
        idempotency: span("idempotency", d.idempotency),
    };
    if maintenance.grace < GRACE_MIN || maintenance.orphans < maintenance.grace {
        reader.complain(
            place,
            "`maintenance.grace` must be at least 1m, and `maintenance.orphans` no less than it: reads and refreshes \
             under way need the objects they began with",
        );
    }
    finish(reader, section, "maintenance");
    maintenance
}

/// A statement must not outlive the objects that it began to read.
fn lasting(reader: &mut Reader<'_>, settings: &Settings) {
    let (timeout, grace) = (settings.query.timeout, settings.live.maintenance.grace);
    // What is shorter than any grace may be has been told.
    if grace >= GRACE_MIN && timeout.saturating_mul(SLOW_READS) > grace {
        reader.complain(
            FILE,
            format!(
                "`maintenance.grace` ({grace:?}) must be at least {SLOW_READS} times `query.timeout` ({timeout:?}): a \
                 statement whose reader is slow lasts so long, and needs the objects it began with"
            ),
        );
    }
}

fn query(reader: &mut Reader<'_>, node: Option<Node>) -> QueryLimits {
    let mut section = reader.section("query", node);
    let default = QueryLimits::default();
    let limits = QueryLimits {
        memory: reader.value(&mut section, "memory", default.memory, size),
        timeout: reader.value(&mut section, "timeout", default.timeout, parse_duration),
        rows_max: reader.value(&mut section, "rows_max", default.rows_max, count),
    };
    finish(reader, section, "query");
    limits
}

pub(crate) fn finish(reader: &mut Reader<'_>, section: Section, path: &str) {
    let known = section.known().to_vec();
    reader.finish(section);
    reader.finish_variables(path, &known);
}

#[cfg(test)]
mod tests;
