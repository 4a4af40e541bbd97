//! Change envelopes: what a change feed of a database sends, read as changes to rows.
//!
//! Three shapes are understood, each as one JSON value:
//! * plain: `{"op", "lsn", "payload"}`, with `received_at` when the sender knows it;
//! * Debezium: `{"op", "before", "after", "source", ..}`, alone or inside `{"schema", "payload"}`;
//! * nothing to store: `null` (what follows a delete in a Kafka topic), heartbeats and messages (`op` `m`).
//!
//! Rows are slices of the text they came in, byte for byte, so numbers stay as exact as they were sent.
//!
//! **Order.** Every change has an [`Lsn`], or is refused: what cannot be put in order is never stored as if it could.
//!
//! **Changed keys.** Most feeds send a changed key as a delete and an insert. Where one update holds both rows, it is
//! read as the delete of the row before and the update that follows it, both with the update's number: their keys
//! differ, so they never tie. It takes the key's columns to see it ([`Reading::key`]).

mod envelope;
mod lsn;
mod placeholder;
mod row;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::value::RawValue;

pub use lsn::Lsn;
pub use placeholder::Placeholder;

use crate::Timestamp;

/// What the reader of a source's envelopes knows beforehand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading<'a> {
    /// Where the number that orders changes is, as fields with dots between, from the envelope (`source.ts_ms`,
    /// `payload.version`). Without it: `lsn`, then what the database of `source` has for one.
    pub lsn: Option<&'a str>,
    /// Columns of the row's key, all of which an update's new row must have. When empty, `id` is the key if the row
    /// before has one (in any case), else the only column of a row before that has one column.
    pub key: &'a [String],
    /// What stands for a value that did not change; Debezium's when there is none.
    pub placeholder: Option<&'a Placeholder>,
}

/// What happened to a row, or to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The row is new.
    Insert,
    /// The row has other values.
    Update,
    /// The row is gone.
    Delete,
    /// The row was there when the feed began.
    Read,
    /// All rows are gone.
    Truncate,
}

impl Op {
    /// The letter that stands for it in a landing table.
    #[must_use]
    pub fn letter(self) -> &'static str {
        match self {
            Self::Insert => "I",
            Self::Update => "U",
            Self::Delete => "D",
            Self::Read => "R",
            Self::Truncate => "T",
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// What happened.
    pub op: Op,
    /// Where it stands among the changes of its source.
    pub lsn: Lsn<'a>,
    /// When the sender received it, if it says so.
    pub received_at: Option<Timestamp>,
    /// The row as sent: the new one, or of a delete the old one. None for a truncate.
    pub payload: Option<&'a str>,
    /// Columns whose value the sender did not have because it did not change: the row holds a placeholder there.
    pub unavailable: Vec<String>,
}

/// Why an envelope is no change that can be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The field that is wrong, with dots between; empty when it is the envelope as a whole.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            write!(f, "the envelope {}", self.reason)
        } else {
            write!(f, "field `{}` {}", self.field, self.reason)
        }
    }
}

impl std::error::Error for Refusal {}

/// The envelopes of one JSON value: the elements of an array, or the value itself.
///
/// # Errors
/// When the text is no JSON.
pub fn envelopes(text: &str) -> Result<Vec<&str>, Refusal> {
    if !text.trim_ascii_start().starts_with('[') {
        return Ok(vec![text]);
    }
    let elements: Vec<&RawValue> = serde_json::from_str(text)
        .map_err(|error| refuse("", format!("cannot be read: {error}")))?;
    Ok(elements.into_iter().map(RawValue::get).collect())
}

/// The changes of one envelope, in order; none when it has nothing to store.
///
/// # Errors
/// The field that is wrong, and why.
pub fn decode<'a>(text: &'a str, reading: &Reading<'_>) -> Result<Vec<Change<'a>>, Refusal> {
    envelope::decode(text.trim_ascii(), reading)
}

fn refuse(field: impl Into<String>, reason: impl Into<String>) -> Refusal {
    Refusal {
        field: field.into(),
        reason: reason.into(),
    }
}
