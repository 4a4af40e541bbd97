//! What a service answered to a call that failed.

use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

/// A failed call, after the client's own retries: what decides, and what people read.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// HTTP status; none when nothing came back.
    pub(crate) status: Option<u16>,
    /// The service's own word, such as `NoSuchKey`. Answers to HEAD have none.
    pub(crate) code: Option<String>,
    /// Code, status, message and request id; or why nothing came back.
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let status = error.raw_response().map(|raw| raw.status().as_u16());
        let code = error.code().map(str::to_owned);
        let text = match (error, status) {
            (SdkError::ServiceError(_), Some(status)) => {
                let mut text = format!("{} ({status})", code.as_deref().unwrap_or("refused"));
                if let Some(message) = error.message() {
                    text.push_str(": ");
                    text.push_str(message);
                }
                if let Some(request) = error.meta().extra("aws_request_id") {
                    text.push_str(", request ");
                    text.push_str(request);
                }
                text
            }
            _ => ports::error::chain(error),
        };
        Self { status, code, text }
    }

    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        self.code
            .as_deref()
            .is_some_and(|code| codes.contains(&code))
    }

    /// Whether the call may have taken effect although it failed: no answer, a broken one, or an error inside a success,
    /// which S3 sends when it has begun to answer before it was done.
    pub(crate) fn is_unsure(&self) -> bool {
        self.status
            .is_none_or(|status| status >= 500 || status == 408 || status < 300)
    }
}
