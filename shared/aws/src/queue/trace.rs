//! Where a message comes from, told beside its body.

use std::collections::HashMap;

use aws_sdk_sqs::types::MessageAttributeValue;

/// Attribute with the W3C trace context.
pub(super) const PARENT: &str = "traceparent";
/// Attribute with the id of the webhook batch.
pub(super) const BATCH: &str = "batch";
/// Longest value sent. These come from callers, and must not make a message too large.
const BYTES_MAX: usize = 256;

/// What caused a message: it follows a webhook through landing and cycle to the refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The W3C `traceparent` of the request.
    pub parent: Option<String>,
    /// The id of the webhook batch.
    pub batch: Option<String>,
}

impl Trace {
    /// Reads the attributes of a message.
    #[must_use]
    pub fn of(attributes: Option<&HashMap<String, MessageAttributeValue>>) -> Self {
        let value = |name| {
            let attribute = attributes?.get(name)?;
            attribute.string_value().map(str::to_owned)
        };
        Self {
            parent: value(PARENT),
            batch: value(BATCH),
        }
    }

    /// What is sent: one odd value would make SQS refuse the message, and an announcement counts more than its trace.
    pub(super) fn attributes(&self) -> Vec<(&'static str, String)> {
        let given = [(PARENT, &self.parent), (BATCH, &self.batch)];
        let mut attributes = Vec::new();
        for (name, value) in given {
            let Some(value) = value else { continue };
            let plain = !value.is_empty()
                && value.len() <= BYTES_MAX
                && value.bytes().all(|byte| byte.is_ascii_graphic());
            if plain {
                attributes.push((name, value.clone()));
            } else {
                tracing::warn!(
                    name,
                    ?value,
                    "a trace that is no short plain text is left out"
                );
            }
        }
        attributes
    }
}
