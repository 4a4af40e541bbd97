//! Taking announcements from the queue.

use std::{collections::BTreeMap, sync::Arc};

use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message};
use domain::{Position, TableName};
use ports::{Result, queue::Announcement};

use super::{
    Trace, decode,
    errors::error,
    trace::{BATCH, PARENT},
};
use crate::answer::Answer;

/// Longest wait that SQS allows.
const WAIT_SECONDS: i32 = 20;
/// Most messages that SQS gives in one call.
const MESSAGES_MAX: i32 = 10;

/// Where messages come from.
#[derive(Debug)]
pub(super) struct Inlet {
    client: aws_sdk_sqs::Client,
    url: String,
}

impl Inlet {
    pub(super) fn new(client: aws_sdk_sqs::Client, url: String) -> Self {
        Self { client, url }
    }

    /// Waits until there are announcements, deletes their messages, and hands them out.
    pub(super) async fn take(self: Arc<Self>) -> Result<Vec<Announcement>> {
        loop {
            let mut furthest: BTreeMap<TableName, Position> = BTreeMap::new();
            let mut read = Vec::new();
            for message in self.poll().await? {
                match decode(message.body().unwrap_or_default()) {
                    Ok(Announcement { table, position }) => {
                        let trace = Trace::of(message.message_attributes());
                        tracing::debug!(%table, ?position, ?trace, "received");
                        let known = furthest.entry(table).or_default();
                        *known = known.advance(position);
                        read.extend(message.receipt_handle);
                    }
                    Err(error) => tracing::error!(
                        url = self.url,
                        message = message.message_id(),
                        error = error.chain(),
                        "a message that cannot be read is left for the dead-letter queue"
                    ),
                }
            }
            self.delete(read).await;
            if !furthest.is_empty() {
                let announced = |(table, position)| Announcement { table, position };
                return Ok(furthest.into_iter().map(announced).collect());
            }
        }
    }

    async fn poll(&self) -> Result<Vec<Message>> {
        let request = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .wait_time_seconds(WAIT_SECONDS)
            .max_number_of_messages(MESSAGES_MAX)
            .message_attribute_names(PARENT)
            .message_attribute_names(BATCH);
        match request.send().await {
            Ok(output) => Ok(output.messages.unwrap_or_default()),
            Err(e) => Err(error("receive messages from", &self.url, Answer::of(&e))),
        }
    }

    /// Deletes what was read. What stays comes again, which announcements may.
    async fn delete(&self, receipts: Vec<String>) {
        if receipts.is_empty() {
            return;
        }
        let entry = |(id, receipt): (usize, String)| {
            DeleteMessageBatchRequestEntry::builder()
                .id(id.to_string())
                .receipt_handle(receipt)
                .build()
                .expect("it has an id and a receipt")
        };
        let request = self
            .client
            .delete_message_batch()
            .queue_url(&self.url)
            .set_entries(Some(receipts.into_iter().enumerate().map(entry).collect()));
        let failures = match request.send().await {
            Ok(output) => {
                let failed = output.failed.iter();
                failed.map(|entry| entry.code().to_owned()).collect()
            }
            Err(e) => vec![Answer::of(&e).text],
        };
        if !failures.is_empty() {
            tracing::warn!(url = self.url, ?failures, "announcements will come again");
        }
    }
}
