//! Whose value an object holds, noted beside its bytes.

use object_store::{Attribute, Attributes};
use ports::state::Key;

/// Metadata that holds the key of the item.
const ITEM: &str = "headwater-item";
/// Longest note: S3 keeps 2 KB of metadata, ours and the caller's.
const NOTE_BYTES_MAX: usize = 1_700;

/// The note; none for a key that it would be too long for. Such an object is never found to be garbage.
pub(super) fn note(key: &Key) -> Attributes {
    let text = format!("{}/{}", encoded(&key.partition), encoded(&key.sort));
    let mut attributes = Attributes::new();
    if text.len() <= NOTE_BYTES_MAX {
        attributes.insert(Attribute::Metadata(ITEM.into()), text.into());
    }
    attributes
}

/// The item that an object was written for, as far as it says.
pub(super) fn read(attributes: &Attributes) -> Option<Key> {
    let note = attributes.get(&Attribute::Metadata(ITEM.into()))?;
    let (partition, sort) = note.as_ref().split_once('/')?;
    Some(Key::new(decoded(partition)?, decoded(sort)?))
}

/// Text of characters that may stand in a header: whatever is no plain one is encoded.
fn encoded(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.#=".contains(&byte) {
            plain.push(char::from(byte));
        } else {
            plain.push_str(&format!("%{byte:02X}"));
        }
    }
    plain
}

fn decoded(plain: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(plain.len());
    let mut rest = plain;
    while let Some(at) = rest.find('%') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        bytes.push(u8::from_str_radix(rest.get(at + 1..at + 3)?, 16).ok()?);
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_whose_it_is() {
        for (partition, sort) in [("table#landing.x", "head"), ("seen#a/ä %", ""), ("", "\n=")] {
            let key = Key::new(partition, sort);
            assert_eq!(read(&note(&key)), Some(key));
        }
        assert_eq!(read(&note(&Key::new("ä".repeat(600), "x"))), None);
        assert_eq!(read(&Attributes::new()), None);
        assert_eq!(decoded("%4"), None);
    }
}
