//! Every rule a project must keep, as findings with a stable code and a place.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Finding, Materialized, Model, Project, Severity, Strategy, TableName,
    parse::{self, Header},
    sql::{self, Bindings, Placeholder, SqlError},
};

mod config;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use rules::project;

/// A finding about a whole model.
pub(crate) fn about(
    model: &Model,
    severity: Severity,
    code: &'static str,
    message: String,
) -> Finding {
    Finding {
        model: model.name.to_string(),
        severity,
        code,
        message,
        file: model.file.clone(),
        line: 1,
        column: 1,
    }
}

/// Where findings about one file go.
struct File<'a> {
    path: &'a str,
    model: String,
    header: &'a Header,
    findings: &'a mut Vec<Finding>,
}

impl File<'_> {
    fn push(
        &mut self,
        severity: Severity,
        code: &'static str,
        message: String,
        at: (usize, usize),
    ) {
        let (model, file) = (self.model.clone(), self.path.to_owned());
        self.findings.push(Finding {
            model,
            severity,
            code,
            message,
            file,
            line: at.0,
            column: at.1,
        });
    }

    /// An error at the place of a config key, or at the top when it is not there.
    fn error_at_key(&mut self, code: &'static str, key: &str, message: String) {
        self.at_key(Severity::Error, code, key, message);
    }

    fn at_key(&mut self, severity: Severity, code: &'static str, key: &str, message: String) {
        let place = self.header.config.iter().rfind(|(k, ..)| k == key);
        let at = place.map_or((1, 1), |(_, _, line, column)| (*line, *column));
        self.push(severity, code, message, at);
    }

    /// An error in the query, its place moved from the query to the file.
    fn sql_error(&mut self, code: &'static str, error: SqlError) {
        let line = if error.line == 0 {
            self.header.sql_line
        } else {
            self.header.sql_line + error.line - 1
        };
        self.push(
            Severity::Error,
            code,
            error.message,
            (line.max(1), error.column.max(1)),
        );
    }
}

/// Reads one model file. `None` when it has no usable name or query; findings say why.
pub(crate) fn model(path: &str, text: &str, findings: &mut Vec<Finding>) -> Option<Model> {
    let header = parse::header(text);
    let mut file = File {
        path,
        model: path.to_owned(),
        header: &header,
        findings,
    };
    let name = name(path, &mut file)?;
    file.model = name.to_string();
    for problem in &header.problems {
        let at = (problem.line, problem.column);
        file.push(Severity::Error, problem.code, problem.message.clone(), at);
    }
    let config = config::read(&mut file);
    if header.sql.trim().trim_end_matches(';').is_empty() {
        no_query(&mut file);
        return None;
    }
    let reads = reads(&name, &config, &mut file)?;
    let model = Model {
        name,
        file: path.to_owned(),
        config,
        description: header.description.clone(),
        columns: header.columns.clone(),
        asserts: header.asserts.clone(),
        owner: header.owner.clone(),
        source_freshness: header.source_freshness.clone(),
        sql: header.sql.clone(),
        sql_line: header.sql_line,
        reads,
    };
    rules::model(&model, &mut file);
    Some(model)
}

/// The file holds directives or comments only: a finding about the whole file.
fn no_query(file: &mut File<'_>) {
    let message = "the model has no query: write one SELECT below the directives".to_owned();
    file.push(Severity::Error, "empty_query", message, (0, 0));
}

/// `transform/<schema>/<name>.sql`; `schema=` wins over the folder.
fn name(path: &str, file: &mut File<'_>) -> Option<TableName> {
    let mut parts = path.trim_end_matches(".sql").rsplit(['/', '\\']);
    let stem = parts.next().unwrap_or_default();
    let configured = file.header.config.iter().rfind(|(key, ..)| key == "schema");
    // A file right in `transform/` has no schema unless it says so.
    let folder = parts
        .next()
        .filter(|_| parts.next().is_some())
        .unwrap_or_default();
    let schema = configured.map_or(folder, |(_, value, ..)| value.as_str());
    match TableName::new(schema, stem) {
        Ok(name) => Some(name),
        Err(error) => {
            let message = format!("{error}; a model is `transform/<schema>/<name>.sql`");
            file.push(Severity::Error, "name_invalid", message, (1, 1));
            None
        }
    }
}

/// Tables the query, the filter and `@depends_on` name, without the model itself.
fn reads(name: &TableName, config: &crate::Config, file: &mut File<'_>) -> Option<Vec<TableName>> {
    let mut found: Vec<TableName> = Vec::new();
    let query = neutral(name, &file.header.sql).and_then(|sql| sql::tables(&sql::parse(&sql)?));
    match query {
        Ok(tables) => {
            for (feed, at) in misplaced(name, &file.header.sql, &tables) {
                let (message, line) = (no_table(&feed), file.header.sql_line + at.0 - 1);
                file.push(Severity::Error, NO_TABLE, message, (line.max(1), at.1));
            }
            if tables.contains(name)
                && let Some(why) = unreadable_by_itself(config, file.header)
            {
                let at = own_name(name, file.header);
                let message = format!("`{name}` reads itself, {why}: {name} -> {name}");
                file.push(Severity::Error, "cycle", message, at);
            }
            found.extend(tables);
        }
        Err(error) => {
            if error.message == sql::NO_STATEMENT {
                no_query(file);
                return None;
            }
            file.sql_error("sql_invalid", error);
            return None;
        }
    }
    if let Some(filter) = &config.filter {
        let tables = neutral(name, filter)
            .and_then(|filter| sql::tables(&sql::parse(&format!("SELECT 1 {filter}"))?));
        match tables {
            Ok(tables) => {
                for (feed, _) in misplaced(name, filter, &tables) {
                    file.error_at_key(NO_TABLE, "incremental_filter", no_table(&feed));
                }
                found.extend(tables);
            }
            Err(error) => {
                file.error_at_key("filter_invalid", "incremental_filter", error.message);
                return None;
            }
        }
    }
    for text in &file.header.depends_on.clone() {
        match text.parse() {
            Ok(table) => found.push(table),
            Err(error) => {
                file.push(
                    Severity::Error,
                    "depends_on_invalid",
                    format!("@depends_on: {error}"),
                    (1, 1),
                );
            }
        }
    }
    // Who reads a feed reads its table; the feed of the only input stands under the model's own name.
    for table in &mut found {
        if let Some(input) = sql::fed_by(table) {
            *table = input;
        }
    }
    let mut seen = BTreeSet::from([name.clone()]);
    found.retain(|table| seen.insert(table.clone()));
    Some(found)
}

/// Why a model cannot read its own rows in its query; none where it may, as it is kept up to date from what it holds.
fn unreadable_by_itself(config: &crate::Config, header: &Header) -> Option<&'static str> {
    match (config.materialized, config.strategy) {
        (Materialized::View | Materialized::Ephemeral, _) => Some("and has no rows of its own"),
        (Materialized::Table, _) => Some(
            "and is made anew from what its query reads: its first build would have nothing to read (an incremental model \
             may read {this} in its incremental_filter)",
        ),
        // Of a placeholder in such a query there is a finding already.
        (Materialized::Incremental, Strategy::Auto) => {
            let placed = sql::placeholders(&header.sql).unwrap_or_default();
            let by_name = !placed.contains(&Placeholder::This);
            by_name.then_some(
                "and with auto holds what its query gives from scratch, when there is nothing of its own to read",
            )
        }
        (
            Materialized::Incremental,
            Strategy::Merge | Strategy::DeleteInsert | Strategy::Append,
        ) => None,
    }
}

/// Where a query names its own model: as `{this}`, or by its name; its first line otherwise.
fn own_name(name: &TableName, header: &Header) -> (usize, usize) {
    let placed = sql::placed(&header.sql).unwrap_or_default().into_iter();
    let mut this = placed.filter_map(|(found, at)| (found == Placeholder::This).then_some(at));
    let text = name.to_string();
    let by_name = header.sql.lines().enumerate().find_map(|(line, text_of)| {
        let lower = text_of.to_ascii_lowercase();
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        // Another name may begin or end with it.
        let is_whole = |(byte, found): &(usize, &str)| {
            let (before, after) = (lower.get(..*byte), lower.get(byte + found.len()..));
            !before.unwrap_or_default().ends_with(is_part)
                && !after.unwrap_or_default().starts_with(is_part)
        };
        let (byte, _) = lower.match_indices(&text).find(is_whole)?;
        Some((
            line + 1,
            text_of.get(..byte).map_or(0, |head| head.chars().count()) + 1,
        ))
    });
    let (line, column) = this.next().or(by_name).unwrap_or((1, 1));
    ((header.sql_line + line).saturating_sub(1).max(1), column)
}

/// The code of a change feed that is no table where it stands.
const NO_TABLE: &str = "changes_no_table";

fn no_table(feed: &str) -> String {
    format!("{feed} stands for a table: name it in FROM or JOIN, and its columns by an alias")
}

/// Change feeds that a text names, but not as a table: as written, with their places.
fn misplaced(this: &TableName, text: &str, tables: &[TableName]) -> Vec<(String, (usize, usize))> {
    // A text that cannot be read is a finding already.
    let placed = sql::placed(text).unwrap_or_default().into_iter();
    let feeds = placed.filter_map(|(placeholder, at)| match placeholder {
        Placeholder::Changes => Some((this.clone(), "{changes}".to_owned(), at)),
        Placeholder::ChangesOf(input) => {
            let written = format!("{{changes:{input}}}");
            Some((input, written, at))
        }
        Placeholder::Watermark | Placeholder::WatermarkOf(_) | Placeholder::This => None,
    });
    let is_table = |input: &TableName| {
        tables
            .iter()
            .any(|table| sql::fed_by(table).as_ref() == Some(input))
    };
    feeds
        .filter(|(input, ..)| !is_table(input))
        .map(|(_, written, at)| (written, at))
        .collect()
}

/// A text whose placeholders are all bound to something, so that it can be parsed.
fn neutral(this: &TableName, text: &str) -> Result<String, SqlError> {
    let named = sql::placeholders(text)?
        .into_iter()
        .filter_map(|placeholder| match placeholder {
            Placeholder::WatermarkOf(table) | Placeholder::ChangesOf(table) => Some((table, 0)),
            _ => None,
        });
    let watermarks: BTreeMap<TableName, u64> = named.collect();
    sql::substitute(
        text,
        &Bindings {
            this,
            watermark: Some(0),
            watermarks,
            changes: Some(this),
        },
    )
}

/// Whether a table is a model or known to exist.
pub(crate) fn known_inputs<'a>(
    project: &'a Project,
    known: Option<&'a BTreeSet<TableName>>,
) -> impl Fn(&TableName) -> bool + 'a {
    move |table| {
        project.models.contains_key(table)
            || known.map_or(table.is_landing(), |known| known.contains(table))
    }
}

#[cfg(test)]
mod autos;
#[cfg(test)]
mod codes;
#[cfg(test)]
mod feeds;
#[cfg(test)]
mod selves;
