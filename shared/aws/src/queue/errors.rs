//! Failed calls in the port's words.

use ports::{Error, Kind};

use crate::answer::Answer;

/// What the older protocol puts before some of its words; the newer one still answers with them.
const OLD: &str = "AWS.SimpleQueueService.";

pub(super) fn error(action: &'static str, url: &str, answer: Answer) -> Error {
    let code = answer.code.as_deref().unwrap_or_default();
    let kind = match code.strip_prefix(OLD).unwrap_or(code) {
        "NonExistentQueue" | "QueueDoesNotExist" => Kind::NotFound,
        "BatchRequestTooLong" => Kind::TooLarge,
        "InvalidAddress"
        | "InvalidMessageContents"
        | "InvalidParameterValue"
        | "MessageNotInflight"
        | "MissingParameter"
        | "ReceiptHandleIsInvalid"
        | "UnsupportedOperation" => Kind::Invalid,
        // Refused rights among them: a person may grant them while we wait.
        _ => Kind::Unavailable,
    };
    Error::new(kind, action, url).because(answer.text)
}
