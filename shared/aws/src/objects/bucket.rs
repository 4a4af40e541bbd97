//! Where objects are: keys from paths and back, the bound on calls, errors in the port's words.

use object_store::{Error, path::Path};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{answer::Answer, patience::Patience};

/// Answers of S3 to a conditional write that met another one under way.
const CONFLICTS: [&str; 2] = ["ConditionalRequestConflict", "OperationAborted"];
/// Answers to credentials that are wrong or old, whatever their status.
const STRANGERS: [&str; 4] = [
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
];

/// A bucket, the folder in it, and what every call needs.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) client: aws_sdk_s3::Client,
    pub(super) name: String,
    prefix: Path,
    pub(super) patience: Patience,
    calls: Semaphore,
}

impl Bucket {
    pub(super) fn new(
        client: aws_sdk_s3::Client,
        name: String,
        prefix: Path,
        patience: Patience,
        calls_max: usize,
    ) -> Self {
        Self {
            client,
            name,
            prefix,
            patience,
            calls: Semaphore::new(calls_max.max(1)),
        }
    }

    pub(super) fn with_calls_max(&self, calls_max: usize) -> Self {
        Self::new(
            self.client.clone(),
            self.name.clone(),
            self.prefix.clone(),
            self.patience.clone(),
            calls_max,
        )
    }

    /// Leave to make one call. It is given back when the answer's head is there, not its body: a reader of many objects
    /// at once would otherwise wait for itself.
    pub(super) async fn call(&self) -> SemaphorePermit<'_> {
        let permit = self.calls.acquire().await;
        permit.expect("the semaphore is never closed")
    }

    /// The key of an object.
    pub(super) fn key(&self, location: &Path) -> String {
        if self.prefix.is_root() {
            location.to_string()
        } else if location.is_root() {
            self.prefix.to_string()
        } else {
            format!("{}/{location}", self.prefix)
        }
    }

    /// What keys under a folder begin with.
    pub(super) fn folder(&self, folder: Option<&Path>) -> String {
        let mut key = self.key(folder.unwrap_or(&Path::default()));
        if !key.is_empty() {
            key.push('/');
        }
        key
    }

    /// The path of a key; none for a key that no path has, such as the empty objects `folder/` that consoles make.
    pub(super) fn location(&self, key: &str) -> Option<Path> {
        let key = key.strip_prefix(&self.folder(None))?;
        let path = Path::parse(key).ok()?;
        (path.as_ref() == key && !key.is_empty()).then_some(path)
    }

    /// How people name an object: `s3://bucket/key`.
    pub(super) fn address(&self, location: &Path) -> String {
        format!("s3://{}/{}", self.name, self.key(location))
    }

    /// An error about an object that no word of the port fits better.
    pub(super) fn generic(&self, location: &Path, why: impl std::fmt::Display) -> Error {
        Error::Generic {
            store: "S3",
            source: format!("{}: {why}", self.address(location)).into(),
        }
    }

    /// A failed call in the port's words.
    pub(super) fn error(&self, location: &Path, answer: &Answer) -> Error {
        let path = location.to_string();
        let source = format!("{}: {}", self.address(location), answer.text).into();
        if answer.has_code(&STRANGERS) {
            return Error::Unauthenticated { path, source };
        }
        match answer.status {
            // A missing bucket must not read as a missing object: an empty warehouse would be a right answer then.
            Some(404) if answer.has_code(&["NoSuchBucket", "NoSuchUpload"]) => {
                self.generic(location, &answer.text)
            }
            Some(404) => Error::NotFound { path, source },
            Some(401) => Error::Unauthenticated { path, source },
            // Without the right to list, S3 says this of missing objects too.
            Some(403) => Error::PermissionDenied { path, source },
            Some(304) => Error::NotModified { path, source },
            Some(412) => Error::Precondition { path, source },
            _ if is_conflict(answer) => Error::Precondition { path, source },
            _ => self.generic(location, &answer.text),
        }
    }
}

/// Whether a conditional write met another one under way: neither has won yet, so it is sent again.
pub(super) fn is_conflict(answer: &Answer) -> bool {
    answer.status == Some(409) && answer.has_code(&CONFLICTS)
}
