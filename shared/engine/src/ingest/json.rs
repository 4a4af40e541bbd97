//! JSON, validated without building a tree.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Deepest nesting of arrays and objects.
pub(super) const DEPTH_MAX: usize = 128;

/// Why a text is no JSON value we take, and where: line and column from 1, the column in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at line {}, column {}",
            self.reason, self.line, self.column
        )
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let end = text.rfind(" at line ").unwrap_or(text.len());
        Self {
            line,
            column,
            reason: text[..end].to_owned(),
        }
    }
}

/// The position of a byte.
pub(super) fn position(text: &[u8], byte: usize) -> (usize, usize) {
    let before = &text[..byte.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    (line, before.len() - start + 1)
}

/// Whether the text is exactly one JSON value, no deeper than [`DEPTH_MAX`].
pub(super) fn check(text: &str) -> Result<(), Problem> {
    serde_json::from_str::<IgnoredAny>(text)?;
    check_depth(text)
}

/// Where a valid JSON text has the escape of one half of a surrogate pair: valid by the grammar (RFC 8259, section 8.2),
/// and no text that anything can hold.
pub(super) fn lone_surrogate(text: &str) -> Option<usize> {
    let unit = |at: usize| {
        let digits = text.get(at + 2..at + 6)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut from = 0;
    while let Some(found) = text.get(from..)?.find('\\') {
        let at = from + found;
        if text.as_bytes().get(at + 1) != Some(&b'u') {
            from = at + 2;
            continue;
        }
        from = at + 6;
        match unit(at)? {
            0xd800..=0xdbff => {
                let low = text.get(from..from + 2) == Some("\\u")
                    && matches!(unit(from), Some(0xdc00..=0xdfff));
                if !low {
                    return Some(at);
                }
                from += 6;
            }
            0xdc00..=0xdfff => return Some(at),
            _ => {}
        }
    }
    None
}

/// Checks a text that is valid JSON.
fn check_depth(text: &str) -> Result<(), Problem> {
    // A valid text that is this short closes whatever it opens before the limit.
    if text.len() <= 2 * DEPTH_MAX {
        return Ok(());
    }
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            let (line, column) = position(text.as_bytes(), at);
            let reason = format!("nested deeper than {DEPTH_MAX} levels");
            return Err(Problem {
                line,
                column,
                reason,
            });
        }
    }
    Ok(())
}

/// Checks the text as [`check`] does, and shows each entry of an object: its key, and its value's text as sent. A key
/// that comes twice is shown twice. Returns whether the value is an object.
pub(super) fn entries<'a>(text: &'a str, show: impl FnMut(&str, &'a str)) -> Result<bool, Problem> {
    if !text.trim_ascii_start().starts_with('{') {
        return check(text).map(|()| false);
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    Entries(show).deserialize(&mut reader)?;
    reader.end()?;
    check_depth(text).map(|()| true)
}

struct Entries<F>(F);

impl<'de, F: FnMut(&str, &'de str)> DeserializeSeed<'de> for Entries<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de, F: FnMut(&str, &'de str)> Visitor<'de> for Entries<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            let value: &'de RawValue = map.next_value()?;
            (self.0)(&key, value.get());
        }
        Ok(())
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }

        reader.deserialize_str(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_a_position() {
        let found = check("{\"a\": 1,\n \"b\" 2}").expect_err("no colon");
        assert_eq!((found.line, found.column), (2, 6), "{found}");
        let found = check("{} x").expect_err("trailing garbage");
        assert_eq!(found.to_string(), "trailing characters at line 1, column 4");
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check(&nested(DEPTH_MAX)), Ok(()));
        let found = check(&nested(DEPTH_MAX + 1)).expect_err("too deep");
        assert_eq!(
            found.to_string(),
            "nested deeper than 128 levels at line 1, column 129"
        );
        assert!(check(&nested(10_000)).is_err());
        let text = format!("[\"{}\", \"\\\"[\"]", "[".repeat(500));
        assert_eq!(check(&text), Ok(()), "brackets in a text are text");
    }

    #[test]
    fn half_a_surrogate_pair_is_found() {
        for (text, found) in [
            (r#"{"a":"plain \n \u00e9"}"#, None),
            (r#"{"a":"\ud83d\ude00"}"#, None),
            (r#"{"a":"\\ud83d"}"#, None),
            (r#"{"\ud800":1}"#, Some(2)),
            (r#"{"a":"\ude00\ud83d"}"#, Some(6)),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, Some(6)),
        ] {
            assert_eq!(lone_surrogate(text), found, "{text}");
        }
    }

    #[test]
    fn entries_keep_the_text_of_each_value() {
        let mut seen = Vec::new();
        let object = entries(
            "{\"a\\n\": 1.50 , \"b\":{\"c\":[1, 2]},\"a\":null}",
            |key, raw| {
                seen.push((key.to_owned(), raw.to_owned()));
            },
        );
        assert_eq!(object, Ok(true));
        let expected = [("a\n", "1.50"), ("b", "{\"c\":[1, 2]}"), ("a", "null")];
        assert_eq!(
            seen,
            expected.map(|(key, raw)| (key.to_owned(), raw.to_owned()))
        );
        for other in [
            "1",
            "-1.5",
            "\"x\"",
            "[{}]",
            "null",
            "true",
            "123456789012345678901234567890",
        ] {
            assert_eq!(entries(other, |_, _| {}), Ok(false), "{other}");
        }
    }
}
