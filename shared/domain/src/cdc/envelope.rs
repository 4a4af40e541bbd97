//! An envelope, picked apart.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{
    Change, Lsn, Op, Placeholder, Reading, Refusal, lsn, refuse,
    row::{self, Text},
};
use crate::{Timestamp, time::parse_timestamp};

/// The only fields of a heartbeat.
const HEARTBEAT: [&str; 3] = ["ts_ms", "ts_us", "ts_ns"];

/// The fields that matter, as sent; of one that is there, `null` is a value too.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    op: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) lsn: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    received_at: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    before: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    after: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) source: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(reader).map(Some)
}

/// The text of a field that is there and not `null`.
pub(super) fn value(field: Option<&RawValue>) -> Option<&str> {
    field.map(RawValue::get).filter(|text| *text != "null")
}

/// Where an envelope is: its text, and what its fields are called from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) text: &'a str,
    at: &'static str,
}

impl Place<'_> {
    pub(super) fn refuse(&self, field: &str, reason: impl Into<String>) -> Refusal {
        refuse(format!("{}{field}", self.at), reason)
    }
}

pub(super) fn decode<'a>(text: &'a str, reading: &Reading<'_>) -> Result<Vec<Change<'a>>, Refusal> {
    if text == "null" {
        return Ok(Vec::new());
    }
    let outer = Place { text, at: "" };
    let envelope = read(outer)?;
    match (envelope.op, envelope.payload) {
        (None, Some(inner)) if has_only(text, &["schema", "payload"]) => {
            if inner.get() == "null" {
                return Ok(Vec::new());
            }
            let inner = Place {
                text: inner.get(),
                at: "payload.",
            };
            changes(inner, &read(inner)?, reading)
        }
        _ => changes(outer, &envelope, reading),
    }
}

fn read<'a>(place: Place<'a>) -> Result<Envelope<'a>, Refusal> {
    let name = place.at.trim_end_matches('.');
    if !row::is_object(place.text) {
        return Err(refuse(name, "is no object"));
    }
    serde_json::from_str(place.text)
        .map_err(|error| refuse(name, format!("cannot be read: {error}")))
}

/// Whether the object has fields, and none but these.
fn has_only(text: &str, names: &[&str]) -> bool {
    row::columns(text).is_ok_and(|found| {
        !found.is_empty() && found.keys().all(|name| names.contains(&name.as_ref()))
    })
}

/// What all changes of an envelope share.
struct Common<'a, 'r> {
    lsn: Lsn<'a>,
    received_at: Option<Timestamp>,
    placeholder: Option<&'r Placeholder>,
}

impl<'a> Common<'a, '_> {
    fn change(&self, op: Op, payload: Option<&'a str>) -> Change<'a> {
        Change {
            op,
            lsn: self.lsn.clone(),
            received_at: self.received_at,
            payload,
            unavailable: payload
                .map(|row| row::unavailable(row, self.placeholder))
                .unwrap_or_default(),
        }
    }
}

fn changes<'a>(
    place: Place<'a>,
    envelope: &Envelope<'a>,
    reading: &Reading<'_>,
) -> Result<Vec<Change<'a>>, Refusal> {
    let Some(op) = value(envelope.op) else {
        // A row whose only column had such a name would need a table of nothing but that.
        return if has_only(place.text, &HEARTBEAT) {
            Ok(Vec::new())
        } else {
            Err(place.refuse("op", "is missing: what happened to the row is not known"))
        };
    };
    let Some(op) = operation(place, op)? else {
        return Ok(Vec::new());
    };
    let common = Common {
        lsn: lsn::find(place, envelope, reading)?,
        received_at: received_at(place, envelope)?,
        placeholder: reading.placeholder,
    };
    let row = |op| row_of(place, envelope, op);
    Ok(match op {
        Op::Truncate => vec![common.change(op, None)],
        Op::Insert | Op::Read | Op::Delete => vec![common.change(op, Some(row(op)?))],
        Op::Update => {
            let new = row(op)?;
            let mut changes = Vec::with_capacity(2);
            if let Some(old) = value(envelope.before) {
                let old = object(place, "before", old)?;
                let moved = row::key_changed(old, new, reading.key)
                    .map_err(|reason| place.refuse(new_field(envelope), reason))?;
                if moved {
                    changes.push(common.change(Op::Delete, Some(old)));
                }
            }
            changes.push(common.change(op, Some(new)));
            changes
        }
    })
}

/// What an operation's name says; none for a message, which is about no row.
fn operation(place: Place<'_>, raw: &str) -> Result<Option<Op>, Refusal> {
    let Ok(Text(name)) = serde_json::from_str(raw) else {
        return Err(place.refuse("op", format!("is {raw}, and must be a text")));
    };
    Ok(Some(match name.trim().to_ascii_lowercase().as_str() {
        "i" | "c" | "insert" | "create" => Op::Insert,
        "u" | "update" => Op::Update,
        "r" | "read" => Op::Read,
        "t" | "truncate" => Op::Truncate,
        "m" | "message" => return Ok(None),
        "d" | "delete" => Op::Delete,
        _ => {
            let reason = format!(
                "is {raw}: known are I, U, D, R and T, their words (insert, update, delete, read, truncate), \
                 and c and m of Debezium"
            );
            return Err(place.refuse("op", reason));
        }
    }))
}

fn received_at(place: Place<'_>, envelope: &Envelope<'_>) -> Result<Option<Timestamp>, Refusal> {
    let Some(raw) = value(envelope.received_at) else {
        return Ok(None);
    };
    let moment = serde_json::from_str(raw)
        .ok()
        .and_then(|Text(text)| parse_timestamp(&text));
    match moment {
        Some(moment) => Ok(Some(moment)),
        None => Err(place.refuse(
            "received_at",
            format!("is {raw}, and must be a timestamp such as \"2026-11-29T16:44:49Z\""),
        )),
    }
}

/// The row that a change of this kind is about.
fn row_of<'a>(place: Place<'a>, envelope: &Envelope<'a>, op: Op) -> Result<&'a str, Refusal> {
    let name = match op {
        Op::Delete => "before",
        _ => "after",
    };
    let row = match op {
        Op::Delete => value(envelope.before),
        _ => value(envelope.after),
    };
    match (row, value(envelope.payload)) {
        (Some(row), None) => object(place, name, row),
        (None, Some(row)) => object(place, "payload", row),
        (Some(_), Some(_)) => {
            let reason = format!("stands beside `{name}`: which of them is the row is not known");
            Err(place.refuse("payload", reason))
        }
        (None, None) => {
            let plain = envelope.payload.is_some()
                || (envelope.before.is_none()
                    && envelope.after.is_none()
                    && envelope.source.is_none());
            let reason = match op {
                Op::Delete => "is missing: a delete needs the row, or at least its key",
                _ => "is missing: the row is not known",
            };
            Err(place.refuse(if plain { "payload" } else { name }, reason))
        }
    }
}

/// The name of the field that holds an update's new row.
fn new_field(envelope: &Envelope<'_>) -> &'static str {
    if value(envelope.after).is_some() {
        "after"
    } else {
        "payload"
    }
}

fn object<'a>(place: Place<'_>, field: &str, row: &'a str) -> Result<&'a str, Refusal> {
    if row::is_object(row) {
        Ok(row)
    } else {
        Err(place.refuse(field, "must be the row as an object"))
    }
}
