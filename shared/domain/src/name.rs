//! Names of tables: `schema.name`, both plain identifiers in lower case.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest identifier accepted, in bytes.
pub const IDENTIFIER_BYTES_MAX: usize = 128;

/// A table of the lake, `schema.name`. Both parts match `[a-z_][a-z0-9_]*` and are stored in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    schema: String,
    name: String,
}

/// Why a text is no table name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is not exactly one dot.
    #[error("`{0}` is not of the form `schema.name`")]
    Form(String),
    /// A part is not an identifier.
    #[error(
        "`{0}` is not an identifier: use a letter or underscore, then letters, digits or underscores (at most 128 bytes)"
    )]
    Identifier(String),
}

/// Whether `text` is a plain identifier: `[A-Za-z_][A-Za-z0-9_]*`, at most [`IDENTIFIER_BYTES_MAX`] bytes.
#[must_use]
pub fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    text.len() <= IDENTIFIER_BYTES_MAX
        && chars
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl TableName {
    /// Builds a name from its two parts.
    ///
    /// # Errors
    /// [`NameError::Identifier`] names the part that is no identifier.
    pub fn new(schema: &str, name: &str) -> Result<Self, NameError> {
        for part in [schema, name] {
            if !is_identifier(part) {
                return Err(NameError::Identifier(part.to_owned()));
            }
        }
        Ok(Self {
            schema: schema.to_ascii_lowercase(),
            name: name.to_ascii_lowercase(),
        })
    }

    /// The landing table of a source: `landing.<source>`.
    ///
    /// # Errors
    /// [`NameError::Identifier`] when the source is no identifier.
    pub fn landing(source: &str) -> Result<Self, NameError> {
        Self::new(crate::LANDING, source)
    }

    /// The part before the dot.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The part after the dot.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is a landing table.
    #[must_use]
    pub fn is_landing(&self) -> bool {
        self.schema == crate::LANDING
    }
}

impl FromStr for TableName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('.') {
            Some((schema, name)) if !name.contains('.') => Self::new(schema, name),
            _ => Err(NameError::Form(text.to_owned())),
        }
    }
}

impl TryFrom<String> for TableName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// The candidate nearest to a mistyped word: fewest edits, at most a third of its length (but one edit always counts), and
/// never the word itself, which was not mistyped then.
#[must_use]
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = typed.to_ascii_lowercase();
    candidates
        .into_iter()
        .filter(|candidate| *candidate != typed)
        .map(|candidate| (edits(&word, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(edits, candidate)| *edits <= (candidate.len().max(word.len()) / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, by rows.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_two_identifiers_in_lower_case() {
        assert_eq!(
            "Silver.Orders"
                .parse::<TableName>()
                .map(|n| n.to_string())
                .as_deref(),
            Ok("silver.orders")
        );
        for bad in ["orders", "a.b.c", "1a.b", "a.b-c", ".b", "a.", "a.b;drop"] {
            assert!(bad.parse::<TableName>().is_err(), "{bad}");
        }
    }
}
