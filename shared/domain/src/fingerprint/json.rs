//! Calls as JSON, for callers that speak only that.
//!
//! Plain JSON values mean themselves: a number without `.` and exponent is a whole number of any size, an object is a map
//! with texts as keys. An object of one key that begins with `$` is a value of another type: `{"$date": "2026-07-22"}`.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{Call, DEPTH_MAX, Unencodable, Value, time};

/// Deepest nesting of a call as JSON: typed values take two levels, and the call has its own.
const NESTING_MAX: usize = 2 * DEPTH_MAX + 2;

/// The keys of typed values, for the message that lists them.
const KEYS: &str = "$bytes, $date, $datetime, $decimal, $duration, $float, $map, $query, $record, $set, $time, $tuple, $uuid";

/// Reads `{"name": .., "version": 0, "args": [..], "kwargs": {..}}`.
///
/// # Errors
/// What is wrong, by its path.
pub fn from_json(text: &str) -> Result<Call, Unencodable> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Raw<'a> {
        name: String,
        #[serde(default)]
        version: i64,
        #[serde(default, borrow)]
        args: Vec<&'a RawValue>,
        #[serde(default, borrow)]
        kwargs: Pairs<'a>,
    }
    flat("call", text)?;
    let raw: Raw<'_> = serde_json::from_str(text).map_err(|error| {
        refused(
            "call",
            format!("is not `{{\"name\", \"version\", \"args\", \"kwargs\"}}`: {error}"),
        )
    })?;
    Ok(Call {
        name: raw.name,
        version: raw.version,
        positional: list("args", &raw.args)?,
        named: fields("kwargs", raw.kwargs)?,
    })
}

/// Reads one argument.
///
/// # Errors
/// What is wrong, by its path.
pub fn value_from_json(path: &str, text: &str) -> Result<Value, Unencodable> {
    flat(path, text)?;
    let raw: &RawValue = serde_json::from_str(text)
        .map_err(|error| refused(path, format!("is not JSON: {error}")))?;
    value(path, raw)
}

/// Refuses nesting before anything recurses: a reader that puts raw values aside does not count it.
fn flat(path: &str, text: &str) -> Result<(), Unencodable> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING_MAX {
            return Err(refused(
                path,
                format!("is nested deeper than {DEPTH_MAX} levels"),
            ));
        }
    }
    Ok(())
}

/// An object's keys and values as they stand, also such as are there twice.
#[derive(Debug, Default)]
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<String, &RawValue>()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

fn refused(path: &str, why: impl Into<String>) -> Unencodable {
    Unencodable {
        path: path.to_owned(),
        why: why.into(),
    }
}

fn read<'a, T: Deserialize<'a>>(
    path: &str,
    raw: &'a RawValue,
    what: &str,
) -> Result<T, Unencodable> {
    serde_json::from_str(raw.get()).map_err(|_| refused(path, format!("is no {what}")))
}

fn list(path: &str, items: &[&RawValue]) -> Result<Vec<Value>, Unencodable> {
    let at = |(at, raw): (usize, &&RawValue)| value(&format!("{path}[{at}]"), raw);
    items.iter().enumerate().map(at).collect()
}

fn array(path: &str, raw: &RawValue) -> Result<Vec<Value>, Unencodable> {
    list(path, &read::<Vec<&RawValue>>(path, raw, "array")?)
}

fn fields(path: &str, pairs: Pairs<'_>) -> Result<Vec<(String, Value)>, Unencodable> {
    let each = |(name, raw): (String, &RawValue)| {
        let value = value(&format!("{path}.{name}"), raw)?;
        Ok((name, value))
    };
    pairs.0.into_iter().map(each).collect()
}

/// One value. How deep it is has been looked at.
fn value(path: &str, raw: &RawValue) -> Result<Value, Unencodable> {
    let text = raw.get();
    Ok(match text.as_bytes().first() {
        Some(b'n') => Value::Null,
        Some(b't' | b'f') => Value::Bool(text == "true"),
        Some(b'"') => Value::Text(read(path, raw, "text")?),
        Some(b'[') => Value::List(array(path, raw)?),
        Some(b'{') => return object(path, raw),
        _ if text.contains(['.', 'e', 'E']) => Value::Float(number(path, text)?),
        _ => Value::Int(
            text.parse()
                .map_err(|e| refused(path, format!("cannot be read: {e}")))?,
        ),
    })
}

/// A finite number: one that JSON spells but no `f64` holds is no argument.
fn number(path: &str, text: &str) -> Result<f64, Unencodable> {
    let number: f64 = text.parse().map_err(|_| refused(path, "is no number"))?;
    match number.is_finite() {
        true => Ok(number),
        false => Err(refused(
            path,
            "is beyond what a floating-point number holds: pass a `$decimal`",
        )),
    }
}

fn object(path: &str, raw: &RawValue) -> Result<Value, Unencodable> {
    let pairs: Pairs<'_> = read(path, raw, "object")?;
    if let [(key, inner)] = pairs.0.as_slice()
        && key.starts_with('$')
    {
        return typed(path, key, inner);
    }
    let text = |(name, value)| (Value::Text(name), value);
    Ok(Value::Map(
        fields(path, pairs)?.into_iter().map(text).collect(),
    ))
}

fn typed(path: &str, key: &str, raw: &RawValue) -> Result<Value, Unencodable> {
    let text = || read::<String>(path, raw, "text, as the value of its type is written");
    let wrong = |text: &str, what: &str| refused(path, format!("`{text}` is no {what}"));
    Ok(match key {
        "$tuple" => Value::Tuple(array(path, raw)?),
        "$set" => Value::Set(array(path, raw)?),
        "$map" => Value::Map(map(path, raw)?),
        "$record" => record(path, raw)?,
        "$query" => query(path, raw)?,
        "$float" => {
            let text = text()?;
            let number = text.parse().map_err(|_| wrong(&text, "number"))?;
            Value::Float(number)
        }
        "$decimal" => {
            let text = text()?;
            Value::Decimal(
                text.parse()
                    .map_err(|e| refused(path, format!("cannot be read: {e}")))?,
            )
        }
        "$bytes" => {
            let text = text()?;
            Value::Bytes(hex(&text).ok_or_else(|| wrong(&text, "bytes in hexadecimal digits"))?)
        }
        "$uuid" => {
            let text = text()?;
            Value::Uuid(uuid(&text).ok_or_else(|| wrong(&text, "UUID"))?)
        }
        "$date" => {
            let text = text()?;
            Value::Date(time::date(&text).ok_or_else(|| wrong(&text, "date"))?)
        }
        "$time" => {
            let text = text()?;
            Value::Time(time::time(&text).ok_or_else(|| wrong(&text, "time of day"))?)
        }
        "$datetime" => {
            let text = text()?;
            match time::datetime(&text).ok_or_else(|| wrong(&text, "date and time"))? {
                (moment, true) => Value::Instant(moment),
                (moment, false) => Value::DateTime(moment),
            }
        }
        "$duration" => {
            let text = text()?;
            let span = time::seconds(&text).ok_or_else(|| wrong(&text, "number of seconds"))?;
            Value::Duration(span)
        }
        other => {
            return Err(refused(
                path,
                format!(
                    "`{other}` is no type that has an encoding; there are {KEYS} (and `$map` for a plain map with such a key)"
                ),
            ));
        }
    })
}

fn map(path: &str, raw: &RawValue) -> Result<Vec<(Value, Value)>, Unencodable> {
    let pairs: Vec<(&RawValue, &RawValue)> = read(path, raw, "array of `[key, value]`")?;
    let each = |(at, (key, inner)): (usize, &(&RawValue, &RawValue))| {
        let path = format!("{path}[key {at}]");
        Ok((value(&path, key)?, value(&path, inner)?))
    };
    pairs.iter().enumerate().map(each).collect()
}

fn record(path: &str, raw: &RawValue) -> Result<Value, Unencodable> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Record<'a> {
        name: String,
        #[serde(borrow)]
        fields: Pairs<'a>,
    }
    let record: Record<'_> = read(path, raw, "`{\"name\", \"fields\"}`")?;
    Ok(Value::Record {
        name: record.name,
        fields: fields(path, record.fields)?,
    })
}

fn query(path: &str, raw: &RawValue) -> Result<Value, Unencodable> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Query<'a> {
        dialect: String,
        #[serde(default)]
        database: String,
        sql: String,
        #[serde(default, borrow)]
        parameters: Vec<&'a RawValue>,
    }
    let query: Query<'_> = read(
        path,
        raw,
        "`{\"dialect\", \"database\", \"sql\", \"parameters\"}`",
    )?;
    Ok(Value::Query {
        parameters: list(&format!("{path}.parameters"), &query.parameters)?,
        dialect: query.dialect,
        database: query.database,
        sql: query.sql,
    })
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks_exact(2).map(pair).collect()
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    if groups != [8, 4, 4, 4, 12] {
        return None;
    }
    hex(&text.replace('-', ""))?.try_into().ok()
}
