//! DynamoDB's failures by the one thing that matters: whether something has happened.

use std::fmt;

use aws_sdk_dynamodb::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        get_item::GetItemError, put_item::PutItemError, query::QueryError,
        transact_get_items::TransactGetItemsError, transact_write_items::TransactWriteItemsError,
    },
    types::CancellationReason,
};
use ports::{Error, Kind, error::chain};

/// How a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing happened: these conditions, by their place in the request, did not hold.
    Unmet(Vec<usize>),
    /// Nothing happened: another transaction is at one of the items.
    Busy,
    /// Nothing happened: too many requests for the table or the account.
    Throttled(String),
    /// Nothing happened, and nothing will if it is sent again.
    Refused(Kind, String),
    /// The answer was lost, or is still being made.
    Unknown(String),
}

impl Failure {
    /// What to tell who asked, for requests without conditions.
    pub(super) fn into_error(self, action: &'static str, subject: impl fmt::Display) -> Error {
        let (kind, because) = match self {
            Self::Unmet(_) => (Kind::Conflict, "a condition did not hold".to_owned()),
            Self::Busy => (
                Kind::Unavailable,
                "other transactions are in the way".to_owned(),
            ),
            Self::Throttled(because) | Self::Unknown(because) => (Kind::Unavailable, because),
            Self::Refused(kind, because) => (kind, because),
        };
        Error::new(kind, action, subject).because(because)
    }
}

/// Errors that may say why each part of a transaction was cancelled.
pub(super) trait Reasons {
    fn reasons(&self) -> &[CancellationReason] {
        &[]
    }
}

impl Reasons for TransactWriteItemsError {
    fn reasons(&self) -> &[CancellationReason] {
        match self {
            Self::TransactionCanceledException(cancelled) => cancelled.cancellation_reasons(),
            _ => &[],
        }
    }
}

impl Reasons for TransactGetItemsError {
    fn reasons(&self) -> &[CancellationReason] {
        match self {
            Self::TransactionCanceledException(cancelled) => cancelled.cancellation_reasons(),
            _ => &[],
        }
    }
}

impl Reasons for GetItemError {}
impl Reasons for PutItemError {}
impl Reasons for QueryError {}

/// What an error of the SDK means.
pub(super) fn of<E>(error: &SdkError<E, HttpResponse>) -> Failure
where
    E: Reasons + ProvideErrorMetadata + std::error::Error + 'static,
{
    let said = chain(error);
    match error {
        SdkError::ConstructionFailure(_) => Failure::Refused(Kind::Unavailable, said),
        SdkError::ServiceError(context) => {
            let code = context.err().code().unwrap_or_default();
            if code == "TransactionCanceledException" {
                return cancelled(context.err().reasons(), said);
            }
            let failed_there = context.raw().status().is_server_error();
            by_code(code, failed_there, said)
        }
        _ => Failure::Unknown(said),
    }
}

fn by_code(code: &str, failed_there: bool, said: String) -> Failure {
    match code {
        "ConditionalCheckFailedException" => Failure::Unmet(vec![0]),
        "TransactionConflictException" => Failure::Busy,
        "ThrottlingException"
        | "ThrottlingError"
        | "Throttling"
        | "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "LimitExceededException" => Failure::Throttled(said),
        // The first sending is still at work; or its token is known with other content, which says that it arrived.
        "TransactionInProgressException" | "IdempotentParameterMismatchException" => {
            Failure::Unknown(said)
        }
        _ if failed_there => Failure::Unknown(said),
        "ValidationException" | "ItemCollectionSizeLimitExceededException" => {
            Failure::Refused(Kind::Invalid, said)
        }
        // No such table, no permission, no valid credentials: an operator's to mend, and then the same request is good.
        _ => Failure::Refused(Kind::Unavailable, said),
    }
}

/// What the reasons of a cancelled transaction come to. Nothing of it has happened. A condition that did not hold weighs
/// more than company at another item, because sending again will not change it.
fn cancelled(reasons: &[CancellationReason], said: String) -> Failure {
    let with = |codes: &[&str]| -> Vec<usize> {
        let coded = reasons.iter().enumerate();
        coded
            .filter(|(_, reason)| reason.code().is_some_and(|code| codes.contains(&code)))
            .map(|(index, _)| index)
            .collect()
    };
    let refused = with(&["ValidationError", "ItemCollectionSizeLimitExceeded"]);
    if let Some(first) = refused.first() {
        let because = reasons[*first].message().unwrap_or(&said);
        return Failure::Refused(Kind::Invalid, because.to_owned());
    }
    let unmet = with(&["ConditionalCheckFailed"]);
    if !unmet.is_empty() {
        return Failure::Unmet(unmet);
    }
    if !with(&["TransactionConflict"]).is_empty() {
        return Failure::Busy;
    }
    let throttled = with(&[
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
    ]);
    if !throttled.is_empty() {
        return Failure::Throttled(said);
    }
    Failure::Refused(Kind::Unavailable, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(codes: &[&str]) -> Vec<CancellationReason> {
        let reason = |code: &&str| CancellationReason::builder().code(*code).build();
        codes.iter().map(reason).collect()
    }

    fn check(codes: &[&str], expected: &str) {
        let failure = cancelled(&reasons(codes), "said".to_owned());
        assert_eq!(format!("{failure:?}"), expected, "{codes:?}");
    }

    #[test]
    fn the_gravest_reason_of_a_cancelled_transaction_counts() {
        check(&["None", "TransactionConflict"], "Busy");
        check(
            &[
                "ConditionalCheckFailed",
                "None",
                "TransactionConflict",
                "ConditionalCheckFailed",
            ],
            "Unmet([0, 3])",
        );
        check(&["TransactionConflict", "ThrottlingError"], "Busy");
        check(
            &["None", "ProvisionedThroughputExceeded"],
            "Throttled(\"said\")",
        );
        check(
            &["ConditionalCheckFailed", "ValidationError"],
            "Refused(Invalid, \"said\")",
        );
        check(&["SomethingNew"], "Refused(Unavailable, \"said\")");
    }

    #[test]
    fn an_error_of_the_server_leaves_the_outcome_open_but_its_throttling_does_not() {
        let of = |code, there| format!("{:?}", by_code(code, there, "said".to_owned()));
        assert_eq!(of("InternalServerError", true), "Unknown(\"said\")");
        assert_eq!(of("", true), "Unknown(\"said\")");
        assert_eq!(of("ThrottlingException", true), "Throttled(\"said\")");
        assert_eq!(
            of("TransactionInProgressException", false),
            "Unknown(\"said\")"
        );
        assert_eq!(
            of("ResourceNotFoundException", false),
            "Refused(Unavailable, \"said\")"
        );
    }
}
