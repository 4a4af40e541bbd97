//! Model files: directives and one query.

use std::collections::BTreeMap;

use crate::{Assert, Severity};

mod directive;
#[cfg(test)]
mod tests;

use directive::Directive;

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
    /// The query: lines kept where they were, directives blanked, blank lines at both ends dropped.
    pub sql: String,
    /// Line of the file at which `sql` starts, from 1.
    pub sql_line: usize,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

/// A directive that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Stable word: `unknown_directive`, `config_invalid`, ..
    pub code: &'static str,
    /// What is wrong and what to do.
    pub message: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

/// Directives there are, for "did you mean".
pub const DIRECTIVES: [&str; 8] = [
    "config",
    "description",
    "col",
    "assert",
    "grain",
    "depends_on",
    "owner",
    "source_freshness",
];

/// Splits a model file's text into directives and SQL; comment-prefixed forms included.
///
/// A directive is a line that starts with `@word` (or, as older projects write it, `-- word:`), and goes on over the
/// indented lines right below it, up to a line that starts the query.
#[must_use]
pub fn header(text: &str) -> Header {
    let mut header = Header::default();
    let (mut wrapped, mut plain) = (Vec::new(), Vec::new());
    let mut sql: Vec<&str> = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut index = 0;
    while index < lines.len() {
        let Some(mut directive) = Directive::begins(lines[index], index + 1) else {
            sql.push(lines[index]);
            index += 1;
            continue;
        };
        sql.push("");
        index += 1;
        while index < lines.len() && directive::continues(lines[index]) {
            directive.push(lines[index], index + 1);
            sql.push("");
            index += 1;
        }
        if directive.name == "assert" {
            let (assert, parenthesised) = read_assert(&directive.text);
            if parenthesised {
                &mut wrapped
            } else {
                &mut plain
            }
            .push(assert);
        } else {
            header.take(&directive, &mut plain);
        }
    }
    header.asserts = wrapped;
    header.asserts.extend(plain);
    header.set_sql(&sql);
    header
}

impl Header {
    /// Reads a directive other than `@assert` into its field.
    fn take(&mut self, directive: &Directive, asserts: &mut Vec<Assert>) {
        let text = directive.text.trim();
        match directive.name.as_str() {
            "config" => self.take_config(directive),
            "description" => {
                let joined = self
                    .description
                    .take()
                    .map_or_else(String::new, |said| said + " ");
                let words: Vec<&str> = text.split_whitespace().collect();
                self.description = Some(joined + &words.join(" "));
            }
            "col" => match text.split_once(':') {
                Some((column, words)) => {
                    let words: Vec<&str> = words.split_whitespace().collect();
                    self.columns
                        .insert(column.trim().to_owned(), words.join(" "));
                }
                None => self.problem("col_invalid", "write `@col name: text`", directive),
            },
            "grain" => {
                let columns = list(directive::unwrap(text));
                asserts.push(Assert {
                    expression: format!("unique({})", columns.join(", ")),
                    severity: Severity::Error,
                });
                self.grain.extend(columns);
            }
            "depends_on" => {
                for name in list(directive::unwrap(text)) {
                    let name = name.to_ascii_lowercase();
                    if !self.depends_on.contains(&name) {
                        self.depends_on.push(name);
                    }
                }
            }
            "owner" => self.owner = Some(text.to_owned()),
            "source_freshness" => self.source_freshness.push(text.to_owned()),
            other => {
                let near = crate::name::nearest(other, DIRECTIVES);
                let hint =
                    near.map_or_else(String::new, |near| format!(": did you mean `@{near}`?"));
                let message = format!("there is no directive `@{other}`{hint}");
                self.problem("unknown_directive", &message, directive);
            }
        }
    }

    fn take_config(&mut self, directive: &Directive) {
        for (range, pair) in directive.pairs() {
            let (line, column) = directive.place(range);
            match pair.split_once('=') {
                Some((key, value)) => {
                    let value = directive::unquote(value.trim()).to_owned();
                    self.config
                        .push((key.trim().to_ascii_lowercase(), value, line, column));
                }
                None => self.problems.push(Problem {
                    code: "config_invalid",
                    message: format!("`{pair}` is not of the form key=value"),
                    line,
                    column,
                }),
            }
        }
    }

    fn problem(&mut self, code: &'static str, message: &str, directive: &Directive) {
        let (line, column) = directive.place(0);
        self.problems.push(Problem {
            code,
            message: message.to_owned(),
            line,
            column,
        });
    }

    /// Keeps the query's lines where they were, without blank ones at the ends.
    fn set_sql(&mut self, lines: &[&str]) {
        let first = lines.iter().position(|line| !line.trim().is_empty());
        let last = lines.iter().rposition(|line| !line.trim().is_empty());
        if let (Some(first), Some(last)) = (first, last) {
            self.sql = lines[first..=last].join("\n").trim().to_owned();
            self.sql_line = first + 1;
        }
    }
}

/// `expression, severity=warn`, maybe in parentheses; whether it was.
fn read_assert(text: &str) -> (Assert, bool) {
    let text = text.trim();
    let inner = directive::unwrap(text);
    let parenthesised = inner.len() < text.len();
    let found = inner.to_ascii_lowercase().rfind("severity").and_then(|at| {
        let word = inner[at + "severity".len()..]
            .trim_start()
            .strip_prefix('=')?
            .trim();
        let before = inner[..at].trim_end().strip_suffix(',')?;
        Some((before.trim_end(), word))
    });
    let (expression, severity) = match found {
        Some((before, word)) if word.eq_ignore_ascii_case("warn") => (before, Severity::Warning),
        Some((before, word)) if word.eq_ignore_ascii_case("error") => (before, Severity::Error),
        _ => (inner, Severity::Error),
    };
    let expression = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    (
        Assert {
            expression,
            severity,
        },
        parenthesised,
    )
}

/// Names between commas.
pub(crate) fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}
