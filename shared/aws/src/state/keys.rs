//! Keys as DynamoDB takes them: never empty, of bounded length, in the order of their bytes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use ports::{Error, Kind, Result, state::Key};

/// Hash key.
pub(super) const PARTITION: &str = "p";
/// Range key.
pub(super) const SORT: &str = "s";

/// What every stored key begins with.
const MARK: char = '=';
/// Most bytes of a partition: what DynamoDB takes, less the mark.
const PARTITION_MAX: usize = 2_048 - MARK.len_utf8();
/// Most bytes of a bound of a span.
const BOUND_MAX: usize = 1_024 - MARK.len_utf8();
/// Most bytes of a sort key: a bound just after it, or after all that it starts, needs up to four bytes more.
const SORT_MAX: usize = BOUND_MAX - char::MAX.len_utf8();

/// Attributes of an item.
pub(super) type Attributes = HashMap<String, AttributeValue>;

/// A key as its two attributes.
pub(super) fn attributes(key: &Key) -> Result<Attributes> {
    let sort = marked("sort key", &key.sort, SORT_MAX)?;
    Ok(HashMap::from([
        (PARTITION.to_owned(), partition(&key.partition)?),
        (SORT.to_owned(), sort),
    ]))
}

/// A partition as an attribute.
pub(super) fn partition(text: &str) -> Result<AttributeValue> {
    marked("partition", text, PARTITION_MAX)
}

/// The bound of a span as an attribute.
pub(super) fn bound(text: &str) -> Result<AttributeValue> {
    marked("bound of a span", text, BOUND_MAX)
}

fn marked(what: &'static str, text: &str, bytes_max: usize) -> Result<AttributeValue> {
    if text.len() > bytes_max {
        let start: String = text.chars().take(60).collect();
        let because = format!(
            "a {what} has at most {bytes_max} bytes, this one {}",
            text.len()
        );
        return Err(Error::new(Kind::Invalid, "use key", format!("{start}..")).because(because));
    }
    Ok(AttributeValue::S(format!("{MARK}{text}")))
}

/// The key of stored attributes, if they are one.
pub(super) fn read(attributes: &Attributes) -> Option<Key> {
    let text = |name| attributes.get(name)?.as_s().ok()?.strip_prefix(MARK);
    Some(Key::new(text(PARTITION)?, text(SORT)?))
}

#[cfg(test)]
mod tests {
    use ports::state::Span;

    use super::*;

    #[test]
    fn an_empty_key_is_stored_and_read_back() {
        let stored = attributes(&Key::new("", "")).expect("a key");
        assert!(
            stored
                .values()
                .all(|value| value.as_s().is_ok_and(|text| !text.is_empty()))
        );
        assert_eq!(read(&stored), Some(Key::new("", "")));
    }

    #[test]
    fn the_longest_sort_key_can_bound_a_span() {
        let longest = "ä".repeat(SORT_MAX / 2);
        assert!(attributes(&Key::new("p", longest.as_str())).is_ok());
        let span = Span::prefix("p", &longest, 10);
        assert!(bound(&span.until.expect("a prefix ends")).is_ok());
        assert!(bound(&format!("{longest}\0")).is_ok());
    }

    #[test]
    fn a_longer_key_is_refused_with_the_limit() {
        let error = attributes(&Key::new("p", "x".repeat(SORT_MAX + 1))).expect_err("too long");
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.chain().contains("1019"), "{}", error.chain());
        assert!(error.chain().len() < 200, "it is not repeated whole");
    }
}
