//! SQLite's failures in the words of the ports.

use std::path::Path;

use ports::{Error, Kind};
use rusqlite::ErrorCode;

/// What a file that is no state file is called, in every error about one.
pub(super) const NOT_OURS: &str = "it is not a Headwater state file";

/// The error for what SQLite said while doing `action` to the state file.
pub(super) fn failure(action: &'static str, path: &Path, error: &rusqlite::Error) -> Error {
    let subject = path.display();
    let said = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            Error::new(Kind::Unavailable, action, subject).because("the disk is full")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let because = format!("another process holds it for too long ({said})");
            Error::new(Kind::Unavailable, action, subject).because(because)
        }
        Some(ErrorCode::NotADatabase) => {
            Error::new(Kind::Corrupt, action, subject).because(NOT_OURS)
        }
        Some(ErrorCode::TooBig) => Error::new(Kind::TooLarge, action, subject).because(said),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged,
        ) => Error::new(Kind::Unavailable, action, subject).because(said),
        // A malformed file, missing tables, values of other types: not what we wrote.
        _ => Error::new(Kind::Corrupt, action, subject).because(said),
    }
}

/// Whether one transaction of a group may have caused it, so that the others deserve an attempt
/// without that one.
pub(super) fn blames_one(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DiskFull | ErrorCode::TooBig)
    )
}
