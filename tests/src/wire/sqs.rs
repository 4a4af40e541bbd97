//! Both queues on SQS, with their dead letters.

use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use aws::queue::{SqsQueue, refreshes::SqsRefreshes};
use aws_sdk_sqs::{
    error::{ProvideErrorMetadata, SdkError},
    types::{MessageSystemAttributeName, QueueAttributeName},
};
use embedded::{SystemChance, SystemClock};
use ports::{Queue, Refreshes};

use super::{DELIVERIES_MAX, Lane, Left, Taken, Wire};
use crate::aws::Place;

/// How long who finds nothing waits for something.
const WAIT_SECONDS: i32 = 1;
/// How long a message is held: longer than any function of a test works.
const HELD_SECONDS: &str = "300";

/// Both queues on SQS.
#[derive(Debug)]
pub struct SqsWire {
    client: aws_sdk_sqs::Client,
    advances: Ends,
    refreshes: Ends,
}

/// URLs of a queue and of its dead letters.
#[derive(Debug)]
struct Ends {
    url: String,
    dead: String,
}

impl SqsWire {
    /// Fresh queues, set up as deployed.
    ///
    /// # Errors
    /// When the emulator refuses.
    pub async fn open(place: &Place) -> Result<Self> {
        let fifo = (QueueAttributeName::FifoQueue, "true");
        let refreshes = [fifo];
        Ok(Self {
            client: place.clients.sqs.clone(),
            advances: ends(place, "advances", "", &[]).await?,
            refreshes: ends(place, "refreshes", ".fifo", &refreshes).await?,
        })
    }

    fn url(&self, lane: Lane) -> &str {
        match lane {
            Lane::Advances => &self.advances.url,
            Lane::Refreshes => &self.refreshes.url,
        }
    }

    async fn count(&self, url: &str) -> Result<usize> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let request = self.client.get_queue_attributes().queue_url(url);
        let answer = request
            .set_attribute_names(Some(names.into()))
            .send()
            .await?;
        let mut count = 0;
        for number in answer.attributes.unwrap_or_default().into_values() {
            count += number.parse::<usize>().context("a count of messages")?;
        }
        Ok(count)
    }
}

async fn ends(
    place: &Place,
    name: &str,
    suffix: &str,
    attributes: &[(QueueAttributeName, &str)],
) -> Result<Ends> {
    let letters = format!("{name}-dead{suffix}");
    let dead = place.queue(&letters, attributes).await?;
    let arn = place.arn(&letters);
    let policy =
        format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"{DELIVERIES_MAX}"}}"#);
    let mut attributes = attributes.to_vec();
    attributes.push((QueueAttributeName::RedrivePolicy, &policy));
    attributes.push((QueueAttributeName::VisibilityTimeout, HELD_SECONDS));
    let url = place.queue(&format!("{name}{suffix}"), &attributes).await?;
    Ok(Ends { url, dead })
}

#[async_trait]
impl Wire for SqsWire {
    fn advances(&self) -> Arc<dyn Queue> {
        Arc::new(SqsQueue::new(
            self.client.clone(),
            &self.advances.url,
            Arc::new(SystemClock),
            Arc::new(SystemChance),
        ))
    }

    fn refreshes(&self) -> Arc<dyn Refreshes> {
        Arc::new(SqsRefreshes::new(
            self.client.clone(),
            &self.refreshes.url,
            Arc::new(SystemClock),
            Arc::new(SystemChance),
        ))
    }

    async fn take(&self, lane: Lane, most: usize) -> Result<Vec<Taken>> {
        let answer = self
            .client
            .receive_message()
            .queue_url(self.url(lane))
            .max_number_of_messages(i32::try_from(most)?)
            .wait_time_seconds(WAIT_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .send()
            .await?;
        let mut all = Vec::new();
        for message in answer.messages.unwrap_or_default() {
            let count = message
                .attributes
                .as_ref()
                .and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount));
            all.push(Taken {
                deliveries: count.context("a message has no count")?.parse()?,
                body: message.body.context("a message has no body")?,
                handle: message.receipt_handle.context("a message has no receipt")?,
            });
        }
        Ok(all)
    }

    async fn delete(&self, lane: Lane, taken: &Taken) -> Result<()> {
        let request = self.client.delete_message().queue_url(self.url(lane));
        over(request.receipt_handle(&taken.handle).send().await)
    }

    async fn give_back(&self, lane: Lane, taken: &Taken) -> Result<()> {
        let request = self.client.change_message_visibility();
        let request = request.queue_url(self.url(lane)).visibility_timeout(0);
        over(request.receipt_handle(&taken.handle).send().await)
    }

    async fn left(&self) -> Result<Left> {
        Ok(Left {
            advances: self.count(&self.advances.url).await?,
            refreshes: self.count(&self.refreshes.url).await?,
            dead: self.count(&self.advances.dead).await? + self.count(&self.refreshes.dead).await?,
        })
    }
}

/// A message that is not ours any more is somebody else's to delete or give back.
fn over<T, E>(answer: Result<T, SdkError<E>>) -> Result<()>
where
    SdkError<E>: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    match answer {
        Err(error) if !matches!(error, SdkError::ServiceError(_)) => Err(error.into()),
        Err(error) => {
            let code = error.code().unwrap_or_default();
            let known = [
                "ReceiptHandleIsInvalid",
                "InvalidParameterValue",
                "MessageNotInflight",
            ];
            anyhow::ensure!(known.iter().any(|known| code.ends_with(known)), "{error:?}");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}
