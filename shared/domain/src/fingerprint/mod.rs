//! Fingerprints: the identity of a call, so that two callers of the same thing share one entry, and nobody else does.
//!
//! A fingerprint is the SHA-256 of a typed, length-prefixed encoding of a name, a version and arguments. It depends on
//! values alone, never on a process, a language or the order in which a map was filled; `examples/fingerprints` has the
//! encoding in words, a second implementation and test vectors.
//!
//! ## Invariants
//! * **E-1** no two different calls share a fingerprint: every value begins with its type, every length is written
//! * equal values of one type agree: 1.50 and 1.5 as decimals, 0.0 and -0.0, one moment in two zones, a set in any order
//!
//! ```
//! use domain::fingerprint::{Call, Value};
//! let call = |argument: Value| Call::new("report", 1).with(argument).fingerprint();
//! assert_eq!(call(Value::from(1)), call(Value::from(1)));
//! assert_ne!(call(Value::from(1)), call(Value::from("1")));
//! ```

mod decimal;
mod encode;
mod json;
mod serialize;
#[cfg(test)]
mod tests;
mod time;
mod value;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use decimal::{Decimal, Integer};
pub use encode::DEPTH_MAX;
pub use json::{from_json, value_from_json};
pub use serialize::to_value;
pub use value::{Moment, Value};

/// The identity of a call: 32 bytes, written as 64 hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

/// A text that is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no fingerprint: it has 64 hexadecimal digits in lower case")]
pub struct Malformed(pub String);

/// An argument that has no encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` {why}")]
pub struct Unencodable {
    /// Where it is: `args[0].x`, `kwargs.since`.
    pub path: String,
    /// Why, and what to pass instead.
    pub why: String,
}

/// What is identified: a function of a version, called with arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The function's full name.
    pub name: String,
    /// Raised when the function means something else than before.
    pub version: i64,
    /// Arguments by position.
    pub positional: Vec<Value>,
    /// Arguments by name, in any order.
    pub named: Vec<(String, Value)>,
}

impl Call {
    /// A call without arguments.
    #[must_use]
    pub fn new(name: impl Into<String>, version: i64) -> Self {
        Self {
            name: name.into(),
            version,
            positional: Vec::new(),
            named: Vec::new(),
        }
    }

    /// The same with one more argument by position.
    #[must_use]
    pub fn with(mut self, argument: impl Into<Value>) -> Self {
        self.positional.push(argument.into());
        self
    }

    /// The same with one more argument by name.
    #[must_use]
    pub fn with_named(mut self, name: impl Into<String>, argument: impl Into<Value>) -> Self {
        self.named.push((name.into(), argument.into()));
        self
    }

    /// What is hashed.
    ///
    /// # Errors
    /// The first argument that has no encoding, by its path.
    pub fn encoding(&self) -> Result<Vec<u8>, Unencodable> {
        encode::call(self)
    }

    /// The identity.
    ///
    /// # Errors
    /// The first argument that has no encoding, by its path.
    pub fn fingerprint(&self) -> Result<Fingerprint, Unencodable> {
        Ok(Fingerprint(Sha256::digest(self.encoding()?).into()))
    }
}

impl Fingerprint {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// SHA-256 of some bytes as hexadecimal digits: for what must not be stored as it is.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    Fingerprint(Sha256::digest(bytes).into()).to_string()
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed(text.chars().take(80).collect());
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(malformed());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            };
            let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(malformed)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Malformed> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}
