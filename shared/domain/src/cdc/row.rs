//! Rows inside envelopes: looked into, never rewritten.

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Placeholder;
use crate::fingerprint::Decimal;

/// A JSON text, borrowed where it has no escapes.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

pub(super) fn is_object(text: &str) -> bool {
    text.starts_with('{')
}

/// The columns of a row, each with its value's text; of a name that comes twice, the last.
pub(super) fn columns(row: &str) -> Result<BTreeMap<Cow<'_, str>, &str>, serde_json::Error> {
    let columns: BTreeMap<Text<'_>, &RawValue> = serde_json::from_str(row)?;
    Ok(columns
        .into_iter()
        .map(|(name, value)| (name.0, value.get()))
        .collect())
}

/// Columns that hold the placeholder; Debezium's when none is given.
pub(super) fn unavailable(row: &str, placeholder: Option<&Placeholder>) -> Vec<String> {
    static USUAL: LazyLock<Placeholder> = LazyLock::new(Placeholder::default);
    let placeholder = placeholder.unwrap_or(&USUAL);
    // Most rows have none, and are not read again to find that out.
    if !placeholder.is_in(row) {
        return Vec::new();
    }
    let Ok(columns) = columns(row) else {
        return Vec::new();
    };
    columns
        .into_iter()
        .filter(|(_, value)| placeholder.is_json(value))
        .map(|(name, _)| name.into_owned())
        .collect()
}

/// Whether two JSON values are one value of a key: texts by their characters, numbers by value, however they are written,
/// and a number beside a text by the number that the text spells, since `->>` makes a text of both.
fn is_same(one: &str, other: &str) -> bool {
    let text = |raw| serde_json::from_str::<Text<'_>>(raw).ok();
    match (text(one), text(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one == other || same_number(one, other),
        (Some(text), None) => text.0 == other || same_number(&text.0, other),
        (None, Some(text)) => text.0 == one || same_number(one, &text.0),
    }
}

fn same_number(one: &str, other: &str) -> bool {
    let number = |text: &str| text.parse::<Decimal>().ok();
    number(one).is_some_and(|one| number(other) == Some(one))
}

/// Whether two rows have different keys. `key` names its columns; when it is empty they are guessed, and a row without
/// a likely key keeps it.
///
/// A column that the old row lacks, or has NULL in, is taken as unchanged: feeds that send no more than changed keys
/// leave the rest of the old row empty.
pub(super) fn key_changed(old: &str, new: &str, key: &[String]) -> Result<bool, String> {
    let unreadable = |error: serde_json::Error| format!("cannot be read: {error}");
    let (old, new) = (
        columns(old).map_err(unreadable)?,
        columns(new).map_err(unreadable)?,
    );
    let differs = |name: &str| match (old.get(name), new.get(name)) {
        (Some(&"null") | None, _) | (_, None) => false,
        (Some(old), Some(new)) => !is_same(old, new),
    };
    if let Some(missing) = key.iter().find(|name| !new.contains_key(name.as_str())) {
        return Err(format!(
            "has no column `{missing}`, which the settings name as key"
        ));
    }
    if !key.is_empty() {
        return Ok(key.iter().any(|name| differs(name)));
    }
    let id = old.keys().find(|name| name.eq_ignore_ascii_case("id"));
    let only = old.keys().next().filter(|_| old.len() == 1);
    Ok(id.or(only).is_some_and(|name| differs(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_another_spelling_is_the_same_key() {
        let moved = |old: &str, new: &str| {
            let row = |id: &str| format!("{{\"id\": {id}, \"v\": 1}}");
            key_changed(&row(old), &row(new), &[]).expect("rows")
        };
        for (one, other) in [
            ("1", "1.0"),
            ("2", "\"2\""),
            ("100", "1e2"),
            ("1.50", "15E-1"),
            ("0.0", "-0"),
            ("2.0", "\"2\""),
            ("\"a\"", "\"\\u0061\""),
            ("true", "\"true\""),
            ("9007199254740993", "9007199254740993.000"),
        ] {
            assert!(!moved(one, other) && !moved(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("1", "10"),
            ("1", "-1"),
            ("1.0", "1.01"),
            ("9007199254740993", "9007199254740992"),
            ("\"01\"", "\"1\""),
            ("\"a\"", "\"A\""),
            ("2", "\"2x\""),
            ("1e99999999999999999999", "1"),
        ] {
            assert!(moved(one, other) && moved(other, one), "{one} {other}");
        }
    }
}
