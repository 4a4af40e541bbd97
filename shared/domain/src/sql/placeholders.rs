//! Placeholders and aliases, found and replaced as tokens: never inside strings, comments or quoted names.

use std::collections::BTreeMap;

use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::{SqlError, tokenize};
use crate::{DELETED, DELETED_ALIAS, SEQUENCE, SEQUENCE_ALIAS, TableName};

/// A placeholder of the model language.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placeholder {
    /// `{watermark}`: of the model's only live input.
    Watermark,
    /// `{watermark:schema.table}`.
    WatermarkOf(TableName),
    /// `{this}`: the model's own table.
    This,
    /// `{changes}`: of the model's only live input.
    Changes,
    /// `{changes:schema.table}`.
    ChangesOf(TableName),
}

/// What placeholders stand for in one build.
#[derive(Clone, Debug)]
pub struct Bindings<'a> {
    /// The model's table.
    pub this: &'a TableName,
    /// Watermark of the only live input.
    pub watermark: Option<u64>,
    /// Watermarks by input; the change feeds of these can be read.
    pub watermarks: BTreeMap<TableName, u64>,
    /// The only live input: the one that `{changes}` is the feed of.
    pub changes: Option<&'a TableName>,
}

/// What schema and name of a change feed begin with. No model may have a schema that does.
pub const FEED_PREFIX: &str = "_changes_";

/// The generated name that the change feed of a table goes by in a statement; none when it would be too long.
#[must_use]
pub fn feed(table: &TableName) -> Option<TableName> {
    let part = |part: &str| format!("{FEED_PREFIX}{part}");
    TableName::new(&part(table.schema()), &part(table.name())).ok()
}

/// The table that a generated name is the change feed of; none for any other name.
#[must_use]
pub fn fed_by(name: &TableName) -> Option<TableName> {
    let part = |part: &str| part.strip_prefix(FEED_PREFIX).map(str::to_owned);
    TableName::new(&part(name.schema())?, &part(name.name())?).ok()
}

/// A placeholder or an alias and its bytes in the text.
struct Found {
    what: What,
    at: Location,
    bytes: std::ops::Range<usize>,
}

enum What {
    Placeholder(Placeholder),
    Alias(&'static str),
}

/// The placeholders of a text, in order.
///
/// # Errors
/// A text that cannot be split into tokens, or a braced word that starts like a placeholder and is none.
pub fn placeholders(sql: &str) -> Result<Vec<Placeholder>, SqlError> {
    let placed = placed(sql)?.into_iter();
    Ok(placed.map(|(placeholder, _)| placeholder).collect())
}

/// A placeholder and where it begins: line and column, from 1.
pub type Placed = (Placeholder, (usize, usize));

/// The placeholders of a text, in order, with line and column of each, from 1.
///
/// # Errors
/// As [`placeholders`].
pub fn placed(sql: &str) -> Result<Vec<Placed>, SqlError> {
    let number = |n: u64| usize::try_from(n).unwrap_or(0);
    let found = find(sql)?.into_iter();
    Ok(found
        .filter_map(|found| match found.what {
            What::Placeholder(placeholder) => Some((
                placeholder,
                (number(found.at.line), number(found.at.column)),
            )),
            What::Alias(_) => None,
        })
        .collect())
}

/// Replaces placeholders by what they stand for, and `_havn_seq` and `_havn_deleted` by our names.
///
/// # Errors
/// A placeholder that stands for nothing here, with its place.
pub fn substitute(sql: &str, bindings: &Bindings<'_>) -> Result<String, SqlError> {
    let mut out = String::with_capacity(sql.len() + 32);
    let mut copied = 0;
    for found in find(sql)? {
        out.push_str(&sql[copied..found.bytes.start]);
        match &found.what {
            What::Alias(name) => out.push_str(name),
            What::Placeholder(placeholder) => {
                out.push_str(&value(placeholder, bindings, found.at)?)
            }
        }
        copied = found.bytes.end;
    }
    out.push_str(&sql[copied..]);
    Ok(out)
}

fn value(what: &Placeholder, bindings: &Bindings<'_>, at: Location) -> Result<String, SqlError> {
    let number = match what {
        Placeholder::This => return Ok(bindings.this.to_string()),
        Placeholder::Watermark => bindings.watermark,
        Placeholder::WatermarkOf(input) => bindings.watermarks.get(input).copied(),
        Placeholder::Changes => {
            let message = "{changes} needs exactly one live input: name it, {changes:schema.table}";
            let input = bindings.changes.ok_or_else(|| SqlError::at(at, message))?;
            return table_of(input, at);
        }
        Placeholder::ChangesOf(input) if bindings.watermarks.contains_key(input) => {
            return table_of(input, at);
        }
        Placeholder::ChangesOf(_) => None,
    };
    number.map(|number| number.to_string()).ok_or_else(|| {
        let message = match what {
            Placeholder::WatermarkOf(input) | Placeholder::ChangesOf(input) => {
                format!("`{input}` is no live input of this model")
            }
            _ => "{watermark} needs exactly one live input: name it, {watermark:schema.table}"
                .to_owned(),
        };
        SqlError::at(at, message)
    })
}

/// A change feed as a table of a statement. Quoted, so that no word of it is ever a keyword.
fn table_of(input: &TableName, at: Location) -> Result<String, SqlError> {
    let long = || {
        SqlError::at(
            at,
            format!("the name `{input}` is too long for {{changes}}"),
        )
    };
    let name = feed(input).ok_or_else(long)?;
    Ok(format!("\"{}\".\"{}\"", name.schema(), name.name()))
}

fn find(sql: &str) -> Result<Vec<Found>, SqlError> {
    let tokens = tokenize(sql)?;
    let offsets = Offsets::of(sql);
    let mut found = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let start = &tokens[index];
        match &start.token {
            Token::Word(word) if word.quote_style.is_none() => {
                if let Some(name) = alias(&word.value) {
                    let bytes = offsets.at(start.span.start)..offsets.at(start.span.end);
                    found.push(Found {
                        what: What::Alias(name),
                        at: start.span.start,
                        bytes,
                    });
                }
            }
            Token::LBrace => {
                if let Some((placeholder, length)) = braced(&tokens[index..])? {
                    let end = tokens[index + length - 1].span.end;
                    let bytes = offsets.at(start.span.start)..offsets.at(end);
                    let what = What::Placeholder(placeholder);
                    found.push(Found {
                        what,
                        at: start.span.start,
                        bytes,
                    });
                    index += length - 1;
                }
            }
            _ => {}
        }
        index += 1;
    }
    Ok(found)
}

fn alias(word: &str) -> Option<&'static str> {
    if word.eq_ignore_ascii_case(SEQUENCE_ALIAS) {
        Some(SEQUENCE)
    } else if word.eq_ignore_ascii_case(DELETED_ALIAS) {
        Some(DELETED)
    } else {
        None
    }
}

/// Reads `{word}` or `{word:schema.table}`; the number is how many tokens it is. Other braces are left alone.
fn braced(tokens: &[TokenWithSpan]) -> Result<Option<(Placeholder, usize)>, SqlError> {
    // White space inside the braces means nothing: the parts are the other tokens, with their indexes.
    let parts: Vec<(usize, &Token)> = tokens
        .iter()
        .enumerate()
        .map(|(index, token)| (index, &token.token))
        .filter(|(_, token)| !matches!(token, Token::Whitespace(_)))
        .take(7)
        .collect();
    let word = |index: usize| match parts.get(index) {
        Some((_, Token::Word(word))) if word.quote_style.is_none() => Some(word.value.as_str()),
        _ => None,
    };
    let is = |index: usize, token: &Token| parts.get(index).is_some_and(|part| part.1 == token);
    let fail = |message| Err(SqlError::at(tokens[0].span.start, message));
    let Some(name) = word(1).map(str::to_ascii_lowercase) else {
        return Ok(None);
    };
    if is(2, &Token::RBrace) {
        let length = parts[2].0 + 1;
        return match name.as_str() {
            "watermark" => Ok(Some((Placeholder::Watermark, length))),
            "this" => Ok(Some((Placeholder::This, length))),
            "changes" => Ok(Some((Placeholder::Changes, length))),
            _ => fail(format!(
                "`{{{name}}}` is no placeholder: there are {{watermark}}, {{changes}}, \
                 both also with `:schema.table`, and {{this}}"
            )),
        };
    }
    if !matches!(name.as_str(), "watermark" | "changes") || !is(2, &Token::Colon) {
        return Ok(None);
    }
    let table = match (
        word(3),
        is(4, &Token::Period),
        word(5),
        is(6, &Token::RBrace),
    ) {
        (Some(schema), true, Some(table), true) => TableName::new(schema, table).ok(),
        _ => None,
    };
    let Some(table) = table else {
        return fail(format!(
            "`{{{name}:..}}` needs a table: {{{name}:schema.table}}"
        ));
    };
    let placeholder = if name == "watermark" {
        Placeholder::WatermarkOf(table)
    } else {
        Placeholder::ChangesOf(table)
    };
    Ok(Some((placeholder, parts[6].0 + 1)))
}

/// Byte offsets of lines, to turn places into ranges.
pub(super) struct Offsets<'a> {
    sql: &'a str,
    lines: Vec<usize>,
}

impl<'a> Offsets<'a> {
    pub(super) fn of(sql: &'a str) -> Self {
        let mut lines = vec![0];
        lines.extend(sql.match_indices('\n').map(|(index, _)| index + 1));
        Self { sql, lines }
    }

    /// The byte at a place; the end of the text for a place beyond it.
    pub(super) fn at(&self, location: Location) -> usize {
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).saturating_sub(1);
        let Some(start) = self.lines.get(number(location.line)).copied() else {
            return self.sql.len();
        };
        let chars = self.sql[start..]
            .char_indices()
            .nth(number(location.column));
        chars.map_or(self.sql.len(), |(index, _)| start + index)
    }
}
