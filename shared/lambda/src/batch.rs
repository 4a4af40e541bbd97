//! Outcomes per message: what failed is delivered again, what succeeded is not.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use serde::Serialize;

use crate::Message;

/// The answer to a batch: ids of the messages to deliver again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcomes {
    /// Messages that failed, in order.
    pub batch_item_failures: Vec<Failure>,
}

/// One message to deliver again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The message's id.
    pub item_identifier: String,
}

/// Handles messages one after the other. After one that failed, the later ones of its group are not handled and fail
/// too, so that a FIFO queue keeps their order; messages of other groups, and of standard queues, go on.
pub async fn each<E: std::fmt::Display>(
    messages: &[Message],
    mut handle: impl FnMut(Message) -> BoxFuture<'static, Result<(), E>>,
) -> Outcomes {
    let mut stopped = BTreeSet::new();
    let mut outcomes = Outcomes::default();
    for message in messages {
        let behind = message
            .group
            .as_ref()
            .is_some_and(|group| stopped.contains(group));
        if !behind {
            let Err(error) = handle(message.clone()).await else {
                continue;
            };
            tracing::warn!(message = message.id, %error, "a message failed and is delivered again");
        }
        stopped.extend(message.group.clone());
        outcomes.batch_item_failures.push(Failure {
            item_identifier: message.id.clone(),
        });
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(group: Option<&str>, id: &str) -> Message {
        Message {
            id: id.to_owned(),
            group: group.map(str::to_owned),
            ..Message::default()
        }
    }

    async fn run(messages: &[Message], fails: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut handled = Vec::new();
        let outcomes = each(messages, |message: Message| {
            let answer = match fails.contains(&message.id.as_str()) {
                true => Err("refused"),
                false => Ok(()),
            };
            handled.push(message.id);
            Box::pin(async move { answer })
        })
        .await;
        let failed = outcomes.batch_item_failures.into_iter();
        (handled, failed.map(|f| f.item_identifier).collect())
    }

    /// bugs.md 29: after a failure the later messages of its group wait for it.
    #[tokio::test]
    async fn bug_29_fifo_order_after_a_failing_message() {
        let batch = [("g1", "m1"), ("g1", "m2"), ("g1", "m3"), ("g2", "m4")];
        let batch = batch.map(|(group, id)| message(Some(group), id));
        let (handled, failed) = run(&batch, &["m2"]).await;
        assert_eq!(handled, ["m1", "m2", "m4"]);
        assert_eq!(failed, ["m2", "m3"]);
    }

    #[tokio::test]
    async fn messages_of_a_standard_queue_do_not_wait_for_each_other() {
        let batch = ["m1", "m2", "m3"].map(|id| message(None, id));
        let (handled, failed) = run(&batch, &["m1"]).await;
        assert_eq!(handled, ["m1", "m2", "m3"]);
        assert_eq!(failed, ["m1"]);
    }
}
