//! Items as attributes.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use bytes::Bytes;
use domain::Timestamp;
use ports::{
    Error, Kind, Result,
    state::{Expect, Key},
};
use uuid::Uuid;

use super::keys::{self, Attributes};

/// The version.
pub(super) const VERSION: &str = "v";
/// The commit that wrote it.
pub(super) const COMMIT: &str = "c";
/// The version it replaced.
pub(super) const BEFORE: &str = "b";
/// When DynamoDB may remove it, in seconds.
pub(super) const TTL: &str = "ttl";
const VALUE: &str = "d";
const OBJECT: &str = "o";
const LENGTH: &str = "n";

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// In the item.
    Inline(Bytes),
    /// In an object of this path and length.
    Object { path: String, length: usize },
}

/// An item as stored.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) version: u64,
    pub(super) body: Body,
}

/// The version of what a commit puts: all keys of one commit share it.
///
/// Of a UUID's halves the lower has 62 random bits, and the upper the time, so that not even ids drawn with the same
/// random bits are alike. Never 0, which stands for "no version" in an outcome.
pub(super) fn version(commit: Uuid) -> u64 {
    let (high, low) = commit.as_u64_pair();
    ((high ^ low) & (u64::MAX >> 1)).max(1)
}

/// A number as an attribute.
pub(super) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// The commit as an attribute.
pub(super) fn commit_mark(commit: Uuid) -> AttributeValue {
    AttributeValue::B(Blob::new(commit.as_bytes().as_slice()))
}

/// The attributes of an item that a commit puts, which may go at a moment if there is one.
pub(super) fn attributes(
    key: Attributes,
    commit: Uuid,
    expect: Expect,
    body: Body,
    ends: Option<Timestamp>,
) -> Attributes {
    let mut all = key;
    let mut set = |name: &str, value| all.insert(name.to_owned(), value);
    if let Some(at) = ends {
        // Rather a second late than early.
        set(TTL, number(at.as_millis().div_euclid(1_000) + 1));
    }
    set(VERSION, number(version(commit)));
    set(COMMIT, commit_mark(commit));
    if let Expect::Version(before) = expect {
        set(BEFORE, number(before));
    }
    match body {
        Body::Inline(bytes) => {
            set(VALUE, AttributeValue::B(Blob::new(Vec::from(bytes))));
        }
        Body::Object { path, length } => {
            set(OBJECT, AttributeValue::S(path));
            set(LENGTH, number(length));
        }
    }
    all
}

/// An item out of its attributes.
pub(super) fn parse(table: &str, mut attributes: Attributes) -> Result<Stored> {
    let corrupt = |subject: String, because: &'static str| {
        Error::new(Kind::Corrupt, "read item", subject).because(because)
    };
    let Some(key) = keys::read(&attributes) else {
        let because = "an item of the table has no key of ours: is it another program's table?";
        return Err(corrupt(table.to_owned(), because));
    };
    let subject = || format!("{}/{}", key.partition, key.sort);
    let version =
        read_number(&attributes, VERSION).ok_or_else(|| corrupt(subject(), "it has no version"))?;
    let body = match (attributes.remove(VALUE), attributes.remove(OBJECT)) {
        (Some(AttributeValue::B(value)), None) => Body::Inline(Bytes::from(value.into_inner())),
        (None, Some(AttributeValue::S(path))) => {
            let length = read_number(&attributes, LENGTH).and_then(|n| usize::try_from(n).ok());
            let length = length.ok_or_else(|| corrupt(subject(), "its object has no length"))?;
            Body::Object { path, length }
        }
        _ => return Err(corrupt(subject(), "it has neither a value nor an object")),
    };
    Ok(Stored { key, version, body })
}

/// A whole number of an item.
pub(super) fn read_number(attributes: &Attributes, name: &str) -> Option<u64> {
    attributes.get(name)?.as_n().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(body: Body) -> Attributes {
        let key = keys::attributes(&Key::new("p", "a")).expect("a key");
        attributes(key, Uuid::from_u128(7), Expect::Version(3), body, None)
    }

    #[test]
    fn an_item_is_read_as_written() {
        let object = Body::Object {
            path: "state/x-0".to_owned(),
            length: 9,
        };
        for body in [Body::Inline(Bytes::from_static(b"\0\xff")), object] {
            let item = parse("t", stored(body.clone())).expect("an item");
            assert_eq!((item.key, item.version), (Key::new("p", "a"), 7));
            assert_eq!(item.body, body);
        }
    }

    #[test]
    fn what_we_did_not_write_is_corrupt() {
        let whole = || stored(Body::Inline(Bytes::new()));
        for missing in ["p", "s", "v", "d"] {
            let mut item = whole();
            item.remove(missing);
            let error = parse("t", item).expect_err(missing);
            assert_eq!(error.kind, Kind::Corrupt, "{missing}");
        }
        let mut other = whole();
        other.insert("v".to_owned(), AttributeValue::N("1.5".to_owned()));
        assert_eq!(
            parse("t", other).expect_err("a fraction").kind,
            Kind::Corrupt
        );
    }

    #[test]
    fn a_version_is_never_zero_and_fits_a_signed_number() {
        for bits in [0, u128::MAX, u128::from(u64::MAX), 1 << 127] {
            let version = version(Uuid::from_u128(bits));
            assert!(version > 0 && i64::try_from(version).is_ok(), "{bits:x}");
        }
    }
}
