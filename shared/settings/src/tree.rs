//! A YAML document as a tree in which every node knows its line and column.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::Complaint;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// `file:line:column`.
    pub(crate) place: String,
    /// The value.
    pub(crate) value: Value,
}

/// What a node holds; scalars keep their text and are typed by whoever reads them.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Nothing: `key:` with no value, or an empty file.
    Null,
    /// A scalar's text.
    Scalar(String),
    /// A list; no setting is one.
    List,
    /// A map, in file order.
    Map(Vec<(Key, Node)>),
}

/// A key and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// `file:line:column`.
    pub(crate) place: String,
    /// The key.
    pub(crate) name: String,
}

/// Reads a document; `file` is its name for messages.
pub(crate) fn parse(file: &str, text: &str) -> Result<Node, Complaint> {
    // serde-saphyr treats an empty document as an error for some shapes; to us it is a project with
    // defaults.
    let blank = |line: &str| {
        line.trim().is_empty() || line.trim_start().starts_with('#') || line.trim() == "---"
    };
    if text.lines().all(blank) {
        return Ok(Node {
            place: format!("{file}:1:1"),
            value: Value::Null,
        });
    }
    match serde_saphyr::from_str::<Spanned<Raw>>(text) {
        Ok(raw) => Ok(place_all(file, raw)),
        Err(error) => {
            let place = error
                .location()
                .map_or_else(|| file.to_owned(), |at| place(file, at));
            let message = error.without_snippet().to_string();
            let message = message.lines().next().unwrap_or("cannot be read as YAML");
            let message = message.split(" at line ").next().unwrap_or(message);
            Err(Complaint {
                place,
                message: format!("not valid YAML: {message}"),
            })
        }
    }
}

fn place(file: &str, at: serde_saphyr::Location) -> String {
    format!("{file}:{}:{}", at.line(), at.column())
}

fn place_all(file: &str, raw: Spanned<Raw>) -> Node {
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Scalar(text) => Value::Scalar(text),
        Raw::List => Value::List,
        Raw::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| {
                    (
                        Key {
                            place: place(file, key.referenced),
                            name: key.value,
                        },
                        place_all(file, value),
                    )
                })
                .collect(),
        ),
    };
    Node {
        place: place(file, raw.referenced),
        value,
    }
}

/// A node as the YAML reader delivers it.
enum Raw {
    Null,
    Scalar(String),
    List,
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        while items.next_element::<Raw>()?.is_some() {}
        Ok(Raw::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}
