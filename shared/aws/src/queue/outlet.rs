//! Sending in batches, until every message is taken.

use aws_sdk_sqs::{
    operation::send_message_batch::SendMessageBatchOutput,
    types::{MessageAttributeValue, SendMessageBatchRequestEntry},
};
use ports::{Error, Kind, Result};

use super::errors::error;
use crate::{
    answer::Answer,
    patience::{ATTEMPTS, Patience},
};

/// Most messages that SQS takes in one call.
const MESSAGES_MAX: usize = 10;
/// Most bytes of a message, and of all messages of one call: what every queue takes.
pub(super) const BYTES_MAX: usize = 256 * 1024;

/// A message to be sent.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) body: String,
    pub(super) attributes: Vec<(&'static str, String)>,
    /// On FIFO queues: group and deduplication id.
    pub(super) order: Option<(String, String)>,
    /// On standard queues: seconds before it is delivered.
    pub(super) delay: i32,
}

impl Outgoing {
    /// As SQS counts it: the body, and names, types and values of attributes.
    fn bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(name, value)| name.len() + "String".len() + value.len());
        self.body.len() + attributes.sum::<usize>()
    }

    fn entry(&self, id: usize) -> SendMessageBatchRequestEntry {
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(id.to_string())
            .message_body(&self.body);
        for (name, value) in &self.attributes {
            let value = MessageAttributeValue::builder()
                .data_type("String")
                .string_value(value)
                .build();
            entry = entry.message_attributes(*name, value.expect("it has a type"));
        }
        if let Some((group, deduplication)) = &self.order {
            entry = entry
                .message_group_id(group)
                .message_deduplication_id(deduplication);
        }
        if self.delay > 0 {
            entry = entry.delay_seconds(self.delay);
        }
        entry.build().expect("it has an id and a body")
    }
}

/// Where messages go.
#[derive(Debug)]
pub(super) struct Outlet {
    client: aws_sdk_sqs::Client,
    url: String,
    patience: Patience,
}

impl Outlet {
    pub(super) fn new(client: aws_sdk_sqs::Client, url: String, patience: Patience) -> Self {
        Self {
            client,
            url,
            patience,
        }
    }

    pub(super) fn client(&self) -> &aws_sdk_sqs::Client {
        &self.client
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn patience(&self) -> &Patience {
        &self.patience
    }

    fn failed(&self, kind: Kind, why: String) -> Error {
        Error::new(kind, "send messages to", &self.url).because(why)
    }

    /// Sends all messages, or says that some may not have been sent. Nothing is sent when one of them is too large.
    pub(super) async fn send(&self, messages: Vec<Outgoing>) -> Result<()> {
        if let Some(large) = messages.iter().find(|message| message.bytes() > BYTES_MAX) {
            let bytes = large.bytes();
            let why = format!("a message of {bytes} bytes, at most {BYTES_MAX} are taken");
            return Err(self.failed(Kind::TooLarge, why));
        }
        for batch in batches(messages) {
            self.send_batch(batch).await?;
        }
        Ok(())
    }

    /// Sends one batch, and what fails of it again.
    async fn send_batch(&self, mut waiting: Vec<Outgoing>) -> Result<()> {
        let mut refused = Vec::new();
        let mut failures = Vec::new();
        for attempt in 1..=ATTEMPTS {
            let output = self.call(&waiting).await?;
            failures.clear();
            waiting = left(waiting, &output, &mut failures, &mut refused);
            if waiting.is_empty() {
                break;
            }
            tracing::debug!(
                url = self.url,
                attempt,
                ?failures,
                "messages were not taken"
            );
            if attempt < ATTEMPTS {
                self.patience.wait(attempt).await;
            }
        }
        if !refused.is_empty() {
            let why = format!("{} refused: {}", refused.len(), refused.join(", "));
            return Err(self.failed(Kind::Invalid, why));
        }
        if !waiting.is_empty() {
            let (count, reasons) = (waiting.len(), failures.join(", "));
            let why = format!("{count} not taken in {ATTEMPTS} attempts: {reasons}");
            return Err(self.failed(Kind::Unavailable, why));
        }
        Ok(())
    }

    async fn call(&self, messages: &[Outgoing]) -> Result<SendMessageBatchOutput> {
        let entries = messages.iter().enumerate();
        let entries = entries.map(|(id, message)| message.entry(id)).collect();
        let request = self
            .client
            .send_message_batch()
            .queue_url(&self.url)
            .set_entries(Some(entries));
        let output = request.send().await;
        output.map_err(|e| error("send messages to", &self.url, Answer::of(&e)))
    }
}

/// The messages that are still to be sent: those that the answer does not say were taken. What it says is the sender's
/// fault is refused for good.
fn left(
    sent: Vec<Outgoing>,
    output: &SendMessageBatchOutput,
    failures: &mut Vec<String>,
    refused: &mut Vec<String>,
) -> Vec<Outgoing> {
    let mut left = Vec::new();
    for (id, message) in sent.into_iter().enumerate() {
        let id = id.to_string();
        if output.successful().iter().any(|entry| entry.id() == id) {
            continue;
        }
        let failure = output.failed().iter().find(|entry| entry.id() == id);
        let reason = match failure {
            Some(failure) => {
                let message = failure.message().unwrap_or_default();
                format!("{}: {message}", failure.code())
            }
            None => "the answer does not name it".to_owned(),
        };
        if failure.is_some_and(|failure| failure.sender_fault()) {
            refused.push(reason);
        } else {
            failures.push(reason);
            left.push(message);
        }
    }
    left
}

/// Cuts messages into what one call takes, in order.
pub(super) fn batches(messages: Vec<Outgoing>) -> Vec<Vec<Outgoing>> {
    let mut batches: Vec<Vec<Outgoing>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        let more = message.bytes();
        match batches.last_mut() {
            Some(batch) if batch.len() < MESSAGES_MAX && bytes + more <= BYTES_MAX => {
                batch.push(message);
                bytes += more;
            }
            _ => {
                batches.push(vec![message]);
                bytes = more;
            }
        }
    }
    batches
}
