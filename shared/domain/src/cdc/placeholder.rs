//! What stands for a value that a database did not log because it did not change.

/// The text that stands for a value that the sender of a change did not have, in the forms it takes: as it is, in Base64
/// in a column of bytes, and as the only element of a list in a column of lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder {
    text: String,
    base64: String,
}

impl Default for Placeholder {
    /// Debezium's.
    fn default() -> Self {
        Self::new("__debezium_unavailable_value")
    }
}

impl Placeholder {
    /// A text that is not empty.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            base64: base64(text.as_bytes()),
            text,
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the text of a column stands for a value that was not there.
    #[must_use]
    pub fn is_text(&self, value: &str) -> bool {
        // Most values are told by their length alone.
        value.len() >= self.text.len()
            && (value == self.text || value == self.base64 || self.is_list(value))
    }

    /// Whether the bytes of a column stand for a value that was not there.
    #[must_use]
    pub fn is_bytes(&self, value: &[u8]) -> bool {
        value == self.text.as_bytes()
    }

    /// Whether a JSON value stands for a value that was not there.
    pub(super) fn is_json(&self, value: &str) -> bool {
        self.is_string(value) || self.is_list(value)
    }

    /// Whether a JSON text has it anywhere.
    pub(super) fn is_in(&self, text: &str) -> bool {
        text.contains(&self.text) || text.contains(&self.base64)
    }

    fn is_list(&self, value: &str) -> bool {
        let inner = value.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
        inner.is_some_and(|inner| self.is_string(inner.trim_ascii()))
    }

    fn is_string(&self, value: &str) -> bool {
        let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        inner.is_some_and(|inner| inner == self.text || inner == self.base64)
    }
}

/// Base64 with padding, of the standard alphabet.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = (0..3).fold(0_u32, |word, at| {
            word << 8 | u32::from(three.get(at).copied().unwrap_or(0))
        });
        for at in 0..4_usize {
            let digit = ALPHABET[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_it_is_known() {
        let placeholder = Placeholder::default();
        for value in [
            "__debezium_unavailable_value",
            "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
            "[\"__debezium_unavailable_value\"]",
            "[ \"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\" ]",
        ] {
            assert!(placeholder.is_text(value), "{value}");
        }
        for value in [
            "",
            "__debezium_unavailable_value ",
            "x__debezium_unavailable_value",
            "[\"__debezium_unavailable_value\", \"a\"]",
            "[__debezium_unavailable_value]",
        ] {
            assert!(!placeholder.is_text(value), "{value}");
        }
        assert!(placeholder.is_bytes(b"__debezium_unavailable_value"));
        assert!(!Placeholder::new("none").is_text("__debezium_unavailable_value"));
        let text = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(text, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }
}
