//! One error for every port: a kind for machines, a chain for people.

use std::fmt;

/// What a port answers with.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What was being done, to what, and what to do next. Its message never repeats its source.
#[derive(Debug, thiserror::Error)]
#[error("{action} `{subject}`")]
pub struct Error {
    /// What the caller should do about it.
    pub kind: Kind,
    /// What was being done, in lower case: "commit table".
    pub action: &'static str,
    /// To what: "silver.orders".
    pub subject: String,
    source: Option<Source>,
}

/// Answers to "what now?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong; fix it. HTTP 400.
    Invalid,
    /// The thing does not exist. HTTP 404.
    NotFound,
    /// Somebody else was first; reload and retry, bounded. HTTP 409.
    Conflict,
    /// The request is larger than a limit. HTTP 413.
    TooLarge,
    /// The world is not answering, or is full; back off. HTTP 503.
    Unavailable,
    /// Stored data is not what we wrote; stop and alarm. HTTP 500.
    Corrupt,
}

/// What a caller does with an error of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Give the request back.
    Reject,
    /// Load again, decide again.
    ReloadAndRetry,
    /// Wait, then the same again.
    RetryLater,
    /// Tell a person.
    Alarm,
}

impl Kind {
    /// What a caller does about it.
    #[must_use]
    pub fn recovery(self) -> Recovery {
        match self {
            Self::Invalid | Self::NotFound | Self::TooLarge => Recovery::Reject,
            Self::Conflict => Recovery::ReloadAndRetry,
            Self::Unavailable => Recovery::RetryLater,
            Self::Corrupt => Recovery::Alarm,
        }
    }
}

impl Error {
    /// An error without a source.
    pub fn new(kind: Kind, action: &'static str, subject: impl fmt::Display) -> Self {
        Self {
            kind,
            action,
            subject: subject.to_string(),
            source: None,
        }
    }

    /// The same with what caused it: an error, or a sentence that says why.
    #[must_use]
    pub fn because(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The whole chain on one line: `commit table `silver.orders`: disk full`.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// Prints an error and all its sources on one line, joined by `: `, without saying one thing twice.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    text
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        let (kind, subject) = match &error {
            object_store::Error::NotFound { path, .. } => (Kind::NotFound, path.clone()),
            object_store::Error::AlreadyExists { path, .. }
            | object_store::Error::Precondition { path, .. } => (Kind::Conflict, path.clone()),
            object_store::Error::InvalidPath { .. } => (Kind::Invalid, String::from("path")),
            _ => (Kind::Unavailable, String::from("object store")),
        };
        Self::new(kind, "access object", subject).because(error)
    }
}
