//! The number that orders changes, whatever each database calls it.

use std::{borrow::Cow, fmt};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Reading, Refusal,
    envelope::{Envelope, Place, value},
    row::{self, Text},
};
use crate::time::parse_nanos;

/// Numbers of more digits are refused: no type of a table holds them.
const LARGEST: i128 = 10_i128.pow(38) - 1;

/// Where a change stands among the changes of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lsn<'a> {
    /// A whole number, of at most 38 digits.
    Number(i128),
    /// A moment, as it was sent: `2026-11-29T16:44:49Z`.
    Moment(Cow<'a, str>),
}

impl Lsn<'_> {
    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<i128> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Moment(_) => None,
        }
    }

    /// The number, if it is one and a BIGINT holds it.
    #[must_use]
    pub fn bigint(&self) -> Option<i64> {
        i64::try_from(self.number()?).ok()
    }

    /// Whether both are numbers or both moments: others cannot be put in order.
    #[must_use]
    pub fn is_like(&self, other: &Lsn<'_>) -> bool {
        matches!(
            (self, other),
            (Self::Number(_), Lsn::Number(_)) | (Self::Moment(_), Lsn::Moment(_))
        )
    }
}

impl fmt::Display for Lsn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Moment(text) => text.fmt(f),
        }
    }
}

/// What databases put beside a change to say where it stands.
#[derive(Debug, Default, Deserialize)]
struct Source<'a> {
    /// PostgreSQL.
    #[serde(borrow)]
    lsn: Option<&'a RawValue>,
    /// MySQL, MariaDB: the log, the byte in it, and the row of the event there.
    #[serde(borrow)]
    file: Option<&'a RawValue>,
    #[serde(borrow)]
    pos: Option<&'a RawValue>,
    #[serde(borrow)]
    row: Option<&'a RawValue>,
    /// Oracle.
    #[serde(borrow)]
    scn: Option<&'a RawValue>,
    /// SQL Server; a row read at the start has only the commit's.
    #[serde(borrow)]
    change_lsn: Option<&'a RawValue>,
    #[serde(borrow)]
    commit_lsn: Option<&'a RawValue>,
}

/// The number of an envelope.
pub(super) fn find<'a>(
    place: Place<'a>,
    envelope: &Envelope<'a>,
    reading: &Reading<'_>,
) -> Result<Lsn<'a>, Refusal> {
    if let Some(path) = reading.lsn {
        let raw = follow(place.text, path).ok_or_else(|| {
            place.refuse(
                path,
                "is missing or null, and the settings order changes by it",
            )
        })?;
        return read(raw).map_err(|why| place.refuse(path, why));
    }
    if let Some(raw) = value(envelope.lsn) {
        return read(raw).map_err(|why| place.refuse("lsn", why));
    }
    let source: Source<'_> = match value(envelope.source) {
        Some(raw) if row::is_object(raw) => serde_json::from_str(raw)
            .map_err(|error| place.refuse("source", format!("cannot be read: {error}")))?,
        _ => Source::default(),
    };
    if let (Some(file), Some(pos)) = (source.file, source.pos) {
        return binlog(file.get(), pos.get(), source.row.map(RawValue::get))
            .map_err(|(field, why)| place.refuse(field, why));
    }
    let named = [
        ("source.lsn", source.lsn),
        ("source.scn", source.scn),
        ("source.change_lsn", source.change_lsn),
        ("source.commit_lsn", source.commit_lsn),
    ];
    for (field, raw) in named {
        if let Some(raw) = raw {
            return read(raw.get()).map_err(|why| place.refuse(field, why));
        }
    }
    let reason = "is missing or null, and `source` has no lsn, file and pos, scn or change_lsn: the change cannot be \
                  put in order; another field can be named as `lsn` in the source's settings";
    Err(place.refuse("lsn", reason))
}

/// The value at the end of a path, unless it is `null`.
fn follow<'a>(text: &'a str, path: &str) -> Option<&'a str> {
    let mut at = text;
    for name in path.split('.') {
        if !row::is_object(at) {
            return None;
        }
        at = row::columns(at).ok()?.get(name).copied()?;
    }
    (at != "null").then_some(at)
}

fn read(raw: &str) -> Result<Lsn<'_>, String> {
    let Ok(Text(text)) = serde_json::from_str(raw) else {
        return number(raw).ok_or_else(|| unordered(raw));
    };
    let known = number(text.trim())
        .or_else(|| postgres(text.trim()))
        .or_else(|| sql_server(text.trim()));
    match known {
        Some(known) => Ok(known),
        None if parse_nanos(text.trim()).is_some() => Ok(Lsn::Moment(text)),
        None => Err(unordered(raw)),
    }
}

fn unordered(raw: &str) -> String {
    format!(
        "is {raw}, and must be a whole number of at most 38 digits, an LSN such as \"0/16B3748\", or a timestamp such as \
         \"2026-11-29T16:44:49Z\": changes are put in order by it"
    )
}

fn number(text: &str) -> Option<Lsn<'static>> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i128 = text.parse().ok()?;
    (-LARGEST..=LARGEST)
        .contains(&number)
        .then_some(Lsn::Number(number))
}

/// `16/B374D848`: the upper and the lower half of 64 bits.
fn postgres(text: &str) -> Option<Lsn<'static>> {
    let (upper, lower) = text.split_once('/')?;
    let number = (hex(upper, 1..=8)? << 32) | hex(lower, 1..=8)?;
    Some(Lsn::Number(number))
}

/// `00000027:00000758:0005`: a log file, a block of it, a slot of that.
fn sql_server(text: &str) -> Option<Lsn<'static>> {
    let (file, rest) = text.split_once(':')?;
    let (block, slot) = rest.split_once(':')?;
    let number = (hex(file, 8..=8)? << 48) | (hex(block, 8..=8)? << 16) | hex(slot, 4..=4)?;
    Some(Lsn::Number(number))
}

fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<i128> {
    if !digits.contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    i128::from_str_radix(text, 16).ok()
}

/// Bits of a row's number in an event of a binary log: an event holds a few thousand rows at most.
const ROW_BITS: u32 = 13;
/// Bits of a byte's position: positions of a binary log have 32.
const POS_BITS: u32 = 32;

/// One number from the number of a binary log, the position in it and the row there. It fits a BIGINT until the log's
/// number passes 262,143.
fn binlog(
    file: &str,
    pos: &str,
    row: Option<&str>,
) -> Result<Lsn<'static>, (&'static str, String)> {
    let log = serde_json::from_str(file)
        .ok()
        .and_then(|Text(name)| name.rsplit_once('.')?.1.parse::<u32>().ok());
    let Some(log) = log else {
        let why = format!("is {file}, and must end in the log's number, as mysql-bin.000003 does");
        return Err(("source.file", why));
    };
    let bits = |field, raw: &str, bits: u32| match raw.parse::<i128>() {
        Ok(number) if (0..1 << bits).contains(&number) => Ok(number),
        _ => {
            let largest = (1_i128 << bits) - 1;
            let why = format!(
                "is {raw}, and must be a whole number from 0 to {largest}; changes can be ordered by another field, named \
                 as `lsn` in the source's settings"
            );
            Err((field, why))
        }
    };
    let pos = bits("source.pos", pos, POS_BITS)?;
    let row = bits("source.row", row.unwrap_or("0"), ROW_BITS)?;
    let number = (((i128::from(log) << POS_BITS) | pos) << ROW_BITS) | row;
    Ok(Lsn::Number(number))
}
