//! Webhooks that the HTTP API put on a queue: requests again, several at once, so that they share commits.
//!
//! A message's body is the request's; its attributes are `source`, `content-type` and `idempotency-key`. A queue delivers
//! at least once, so a request without a key gets its message's id for one (**S-2**). A body that lies in the warehouse,
//! because the queue would not take it, is named by the attribute `claim`. A message that is refused comes again until the
//! queue moves it to its dead letters, where a person sees it (**Q-1**).

use std::collections::BTreeSet;

use aws::queue::{self, Trace};
use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use lambda_http::http::StatusCode;
use object_store::{ObjectStoreExt, path::Path};
use ports::Objects;
use tower::ServiceExt;

use crate::{Answer, Message, each};

/// Attributes that become headers of the same name.
const HEADERS: [&str; 4] = [
    "authorization",
    "content-type",
    "content-encoding",
    "idempotency-key",
];
/// Where bodies lie that the queue would not take. A sender may have put the name of any object into a message.
const CLAIMS: &str = "claims";
/// Longest refusal that is logged, in bytes.
const REFUSAL_MAX: usize = 16 << 10;

/// Takes requests from messages.
#[derive(Clone, Debug)]
pub struct Buffered {
    router: Router,
    objects: Objects,
}

impl Buffered {
    /// Around the routes of ingest and the warehouse.
    #[must_use]
    pub fn new(router: Router, objects: Objects) -> Self {
        Self { router, objects }
    }

    /// Commits the bodies of messages and says which messages are to be delivered again.
    ///
    /// # Errors
    /// When the answer cannot be written.
    pub async fn take(&self, messages: &[Message]) -> Answer {
        let mut taking = tokio::task::JoinSet::new();
        for message in messages {
            let (buffered, message) = (self.clone(), message.clone());
            let trace = Trace {
                parent: message.attributes.get("traceparent").cloned(),
                batch: Some(message.id.clone()),
            };
            taking.spawn(queue::traced(trace, async move {
                let taken = buffered.one(&message).await;
                (message.id, taken)
            }));
        }
        let mut refused = std::collections::BTreeMap::new();
        let mut ended = BTreeSet::new();
        while let Some(taken) = taking.join_next().await {
            // A task that panicked says nothing about its message, which then counts as failed.
            let Ok((id, taken)) = taken else { continue };
            ended.insert(id.clone());
            if let Err(why) = taken {
                refused.insert(id, why);
            }
        }
        let outcomes = each(messages, |message: Message| {
            let taken = match (refused.remove(&message.id), ended.contains(&message.id)) {
                (Some(why), _) => Err(why),
                (None, true) => Ok(()),
                (None, false) => Err("its handler panicked".to_owned()),
            };
            Box::pin(async move { taken })
        })
        .await;
        Ok(serde_json::to_value(outcomes)?)
    }

    async fn one(&self, message: &Message) -> Result<(), String> {
        let source = attribute(message, "source")
            .ok_or("the message names no source: it has no attribute `source`")?;
        let mut request = Request::post(format!("/api/ingest/webhook/{}", encoded(source)));
        for header in HEADERS {
            if let Some(value) = attribute(message, header) {
                request = request.header(header, value);
            }
        }
        if attribute(message, "idempotency-key").is_none() {
            request = request.header("idempotency-key", format!("sqs-{}", message.id));
        }
        let body = match attribute(message, "claim") {
            Some(path) => self.claimed(path).await?,
            None => Body::from(message.body.clone()),
        };
        let request = request.body(body).map_err(|error| error.to_string())?;
        let response = self
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap_or_else(|never| match never {});
        if response.status() == StatusCode::ACCEPTED {
            return Ok(());
        }
        let status = response.status();
        let why = to_bytes(response.into_body(), REFUSAL_MAX).await;
        let why = why.unwrap_or_default();
        Err(format!("{status}: {}", String::from_utf8_lossy(&why)))
    }

    async fn claimed(&self, path: &str) -> Result<Body, String> {
        let failed = |error: &dyn std::fmt::Display| format!("the body at `{path}`: {error}");
        let place = Path::parse(path).map_err(|error| failed(&error))?;
        if !place.prefix_matches(&Path::from(CLAIMS)) {
            return Err(failed(&"bodies lie under claims/"));
        }
        let found = self
            .objects
            .get(&place)
            .await
            .map_err(|error| failed(&error))?;
        Ok(Body::from_stream(found.into_stream()))
    }
}

/// The text of an attribute; none when it is blank. An attribute must not be empty, and a header that was not sent would
/// make one so: the HTTP API therefore ends each with a space.
fn attribute<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let text = message.attributes.get(name)?.trim();
    (!text.is_empty()).then_some(text)
}

/// A path segment: whatever is no plain character is encoded.
fn encoded(segment: &str) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-2: a blank key shared by all who send none would make them repeats of each other.
    #[test]
    fn a_blank_attribute_is_none() {
        let attributes = [("source", "orders "), ("idempotency-key", " ")];
        let message = Message {
            attributes: attributes
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
            ..Message::default()
        };
        assert_eq!(attribute(&message, "source"), Some("orders"));
        assert_eq!(attribute(&message, "idempotency-key"), None);
        assert_eq!(attribute(&message, "claim"), None);
    }
}
