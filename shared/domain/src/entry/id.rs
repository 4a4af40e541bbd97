//! Names of entries.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Fingerprint;

/// Longest tenant, in bytes.
pub const TENANT_BYTES_MAX: usize = 64;

/// An entry: a fingerprint, and whose it is. Tenants share nothing, not even what they both computed. Written
/// `<fingerprint>`, or `<fingerprint>@<tenant>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntryId {
    fingerprint: Fingerprint,
    tenant: Option<String>,
}

/// A text that names no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The fingerprint is none.
    #[error(transparent)]
    Fingerprint(#[from] crate::fingerprint::Malformed),
    /// The tenant is none.
    #[error(
        "`{0}` is no tenant: it has 1 to {TENANT_BYTES_MAX} lower-case letters, digits, `-` or `_`"
    )]
    Tenant(String),
}

impl EntryId {
    /// An entry of everybody, or of a tenant.
    ///
    /// # Errors
    /// A tenant that is none.
    pub fn new(fingerprint: Fingerprint, tenant: Option<&str>) -> Result<Self, IdError> {
        if let Some(tenant) = tenant {
            let plain =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
            if tenant.is_empty() || tenant.len() > TENANT_BYTES_MAX || !tenant.bytes().all(plain) {
                return Err(IdError::Tenant(tenant.chars().take(80).collect()));
            }
        }
        Ok(Self {
            fingerprint,
            tenant: tenant.map(str::to_owned),
        })
    }

    /// What is identified.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Whose it is; none when it is everybody's.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenant {
            None => self.fingerprint.fmt(f),
            Some(tenant) => write!(f, "{}@{tenant}", self.fingerprint),
        }
    }
}

impl FromStr for EntryId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.split_once('@') {
            None => Self::new(text.parse()?, None),
            Some((fingerprint, tenant)) => Self::new(fingerprint.parse()?, Some(tenant)),
        }
    }
}

impl TryFrom<String> for EntryId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<EntryId> for String {
    fn from(id: EntryId) -> Self {
        id.to_string()
    }
}
