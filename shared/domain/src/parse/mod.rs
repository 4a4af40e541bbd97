//! Model files: directives and one query.
//!
//! ```
//! let header = domain::parse::header(
//!     "@config materialized=incremental, live=true,\n        unique_key=id\n@assert no_nulls(id)\n\nSELECT id FROM landing.o",
//! );
//! assert_eq!(header.config[2].0, "unique_key");
//! assert_eq!((header.config[2].2, header.config[2].3), (2, 9));
//! assert_eq!((header.sql.as_str(), header.sql_line), ("SELECT id FROM landing.o", 5));
//! ```

use std::collections::BTreeMap;

use crate::{Assert, Severity, TableName, name::nearest};

mod body;
#[cfg(test)]
mod forms;
mod lines;
mod pairs;
#[cfg(test)]
mod tests;

use body::Body;
use lines::{Directive, Form};

/// A model file, taken apart but not judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// `@config` pairs: key, value, and the key's line and column in the file, both from 1.
    pub config: Vec<(String, String, usize, usize)>,
    /// `@assert`: the parenthesised ones first, then the others, each in file order; `@grain` as `unique(..)`.
    pub asserts: Vec<Assert>,
    /// `@depends_on`: lower case, no repeats, first-seen order.
    pub depends_on: Vec<String>,
    /// `@description`; several are joined by a space.
    pub description: Option<String>,
    /// `@col name: text`, by column.
    pub columns: BTreeMap<String, String>,
    /// `@owner`.
    pub owner: Option<String>,
    /// `@source_freshness`, verbatim.
    pub source_freshness: Vec<String>,
    /// `@grain`: the columns, as written.
    pub grain: Vec<String>,
    /// The query: its lines as they were, directives blanked, blank lines at both ends dropped.
    pub sql: String,
    /// Line of the file at which `sql` starts, from 1.
    pub sql_line: usize,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

/// A directive that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Stable word: `unknown_directive`, `config_invalid`, `assert_invalid`, `directive_invalid`, `name_invalid`.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub message: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

/// The keys `@config` knows.
pub const CONFIG_KEYS: &[&str] = &[
    "materialized",
    "schema",
    "unique_key",
    "incremental_strategy",
    "incremental_filter",
    "partition_by",
    "on_schema_change",
    "live",
    "live_interval",
    "cdc_op",
    "cdc_seq",
    "cdc_deletes",
    "on_bad_row",
    "tags",
    "target_lag",
    "description",
    "owner",
];

/// The directives there are.
pub const DIRECTIVES: &[&str] = &[
    "config",
    "description",
    "col",
    "assert",
    "grain",
    "depends_on",
    "owner",
    "source_freshness",
];

/// Splits a model file's text into directives and SQL: `@name ..` bare or parenthesised, and the comment-prefixed
/// `-- name: ..`. A directive continues on indented lines and until its parentheses are closed. Directives may stand
/// anywhere outside strings and comments of the SQL.
#[must_use]
pub fn header(text: &str) -> Header {
    let file = lines::split(text);
    let mut header = Header {
        sql: file.sql,
        sql_line: file.sql_line,
        ..Header::default()
    };
    let (mut first, mut then) = (Vec::new(), Vec::new());
    for directive in &file.directives {
        match directive.name.as_str() {
            "config" => pairs::read(directive, &mut header),
            "assert" => {
                let into = if directive.form == Form::Parenthesised {
                    &mut first
                } else {
                    &mut then
                };
                assertion(directive, into, &mut header.problems);
            }
            "grain" => then.extend(grain(directive, &mut header)),
            "depends_on" => depends_on(directive, &mut header),
            "col" => column(directive, &mut header),
            "description" => {
                let text = directive.body.flat();
                header.description = Some(match header.description.take() {
                    Some(before) => format!("{before} {text}"),
                    None => text,
                });
            }
            "owner" => header.owner = Some(directive.body.flat()),
            "source_freshness" => header.source_freshness.push(directive.body.flat()),
            unknown => header.problems.push(unknown_directive(unknown, directive)),
        }
    }
    first.append(&mut then);
    header.asserts = first;
    header.problems.extend(unindented(&header));
    header
}

/// Pairs where the query should begin.
fn unindented(header: &Header) -> Option<Problem> {
    let key = pairs::key_at(&header.sql)?;
    CONFIG_KEYS.contains(&key).then(|| Problem {
        code: "config_invalid",
        message: format!(
            "`{key}=` stands where the query begins: lines that go on with `@config` are indented"
        ),
        line: header.sql_line,
        column: 1,
    })
}

fn unknown_directive(name: &str, directive: &Directive) -> Problem {
    let message = match nearest(name, DIRECTIVES.iter().copied()) {
        Some(known) => format!("`@{name}` is no directive; did you mean `@{known}`?"),
        None => format!(
            "`@{name}` is no directive; there are {}",
            listed(DIRECTIVES)
        ),
    };
    directive.problem("unknown_directive", message)
}

fn listed(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`@{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// `expression[, severity=warn]`.
fn assertion(directive: &Directive, asserts: &mut Vec<Assert>, problems: &mut Vec<Problem>) {
    let text = directive.body.flat();
    let (expression, severity) = match severity_of(&text) {
        Some((expression, word)) => match word.to_ascii_lowercase().as_str() {
            "warn" | "warning" => (expression, Severity::Warning),
            "error" => (expression, Severity::Error),
            _ => {
                let message =
                    format!("`{word}` is no severity: write `severity=warn` or `severity=error`");
                problems.push(directive.problem("assert_invalid", message));
                return;
            }
        },
        None => (text.as_str(), Severity::Error),
    };
    if let Some((_, last)) = expression.rsplit_once(char::is_whitespace)
        && last.to_ascii_lowercase().starts_with("severity=")
    {
        let message = format!("a comma stands before `{last}`: `@assert x > 0, {last}`");
        problems.push(directive.problem("assert_invalid", message));
        return;
    }
    if expression.is_empty() {
        let message =
            "`@assert` needs a check, such as `no_nulls(id)` or `row_count > 0`".to_owned();
        problems.push(directive.problem("assert_invalid", message));
        return;
    }
    asserts.push(Assert {
        expression: expression.to_owned(),
        severity,
        line: directive.line,
    });
}

/// Splits off a trailing `, severity=word`.
fn severity_of(text: &str) -> Option<(&str, &str)> {
    let (expression, option) = text.rsplit_once(',')?;
    let (key, word) = option.split_once('=')?;
    (key.trim().eq_ignore_ascii_case("severity")).then(|| (expression.trim(), word.trim()))
}

fn grain(directive: &Directive, header: &mut Header) -> Option<Assert> {
    let columns: Vec<String> = list(&directive.body.flat());
    if columns.is_empty() {
        let message = "`@grain` needs the columns that tell rows apart: `@grain id`".to_owned();
        header
            .problems
            .push(directive.problem("directive_invalid", message));
        return None;
    }
    let expression = format!("unique({})", columns.join(", "));
    header.grain = columns;
    Some(Assert {
        expression,
        severity: Severity::Error,
        line: directive.line,
    })
}

fn depends_on(directive: &Directive, header: &mut Header) {
    for name in list(&directive.body.flat()) {
        let name = name.to_lowercase();
        if let Err(error) = name.parse::<TableName>() {
            header
                .problems
                .push(directive.problem("name_invalid", error.to_string()));
        } else if !header.depends_on.contains(&name) {
            header.depends_on.push(name);
        }
    }
}

fn column(directive: &Directive, header: &mut Header) {
    let text = directive.body.flat();
    match text.split_once(':') {
        Some((name, meaning)) if !name.trim().is_empty() => {
            header
                .columns
                .insert(name.trim().to_owned(), meaning.trim().to_owned());
        }
        _ => {
            let message = "write `@col name: what it means`".to_owned();
            header
                .problems
                .push(directive.problem("directive_invalid", message));
        }
    }
}

/// The parts of a comma-separated list; empty ones are left out.
pub(crate) fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}
