//! What goes wrong on the way to a frame.

use std::sync::Arc;

use domain::fingerprint::Unencodable;

/// Anything that went wrong, as functions and transports tell it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the calls of this crate answer with.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no frame, or no answer from one. Cheap to clone: callers that shared one computation share its error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that does not identify the call: never guessed, never left out (**E-1**).
    #[error("argument {0}")]
    Argument(#[from] Unencodable),
    /// The function itself failed. Nothing was stored.
    #[error("the function of `{key}` failed")]
    Function {
        /// The entry's key.
        key: String,
        /// What it said.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// What the function returned cannot be an entry.
    #[error("the result of `{key}` cannot be an entry: {why}")]
    Unfit {
        /// The entry's key.
        key: String,
        /// Why, and what to return instead.
        why: String,
    },
    /// The registry does not answer, or not in time.
    #[error("the registry does not answer: {0}")]
    Away(String),
    /// The registry refuses a request.
    #[error("the registry refuses the request: {detail} (HTTP {status})")]
    Refused {
        /// The status.
        status: u16,
        /// The type of the problem document.
        kind: String,
        /// What it says.
        detail: String,
    },
    /// Somebody else builds it, took longer than this caller waits, and the source is protected by `on_error = "raise"`.
    #[error("`{0}` is being built by somebody else: ask again in a moment")]
    Building(String),
    /// The entry is gone, and this frame cannot compute it anew.
    #[error("the entry `{0}` is gone: it was evicted or swept; call its function again")]
    Missing(String),
    /// An index is still being built.
    #[error("the index is not ready yet: {detail}")]
    IndexNotReady {
        /// The job that builds it.
        job: Option<String>,
        /// What the registry says.
        detail: String,
    },
    /// A chain of look-ups that makes no sense.
    #[error("{0}")]
    Lookup(String),
    /// A statement over rows in this process failed.
    #[error("{0}")]
    Statement(String),
    /// Rows that cannot be read, or not as the type asked for.
    #[error("the rows cannot be read: {0}")]
    Unreadable(String),
    /// The call needs the entry itself, and this result was not stored.
    #[error("`{key}` is in no registry ({why}): {what} works on stored entries only")]
    NotStored {
        /// The entry's key.
        key: String,
        /// Why it is not.
        why: String,
        /// What was asked for.
        what: &'static str,
    },
    /// No client was installed.
    #[error(
        "no client is installed: call `Client::install` when the program starts, or name one: #[materialize(client = ..)]"
    )]
    NoClient,
}

impl Error {
    /// Whether the registry is to blame, and not the function, its arguments or its rows.
    #[must_use]
    pub fn is_registry(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Refused { .. })
    }

    /// Rows that cannot be read.
    pub(crate) fn unreadable(why: impl std::fmt::Display) -> Self {
        Self::Unreadable(why.to_string())
    }

    /// An error and everything behind it, in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(source) = next {
            text.push_str(": ");
            text.push_str(&source.to_string());
            next = source.source();
        }
        text
    }
}
