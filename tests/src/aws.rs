//! Places on AWS, at an emulator. `HEADWATER_MINISTACK` holds its address, such as `http://127.0.0.1:4566`.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use aws::{
    clients::Clients,
    objects::S3Objects,
    state::{DynamoState, Tables},
};
use aws_config::{BehaviorVersion, Region, retry::RetryConfig};
use aws_sdk_sqs::{config::Credentials, types::QueueAttributeName};
use embedded::{SystemChance, SystemClock};
use object_store::path::Path;
use ports::Objects;

/// Fails what needs an emulator when none is named.
pub const REQUIRED: &str = "HEADWATER_EMULATORS_REQUIRED";
/// The region of the emulator.
pub const REGION: &str = "us-east-1";
/// Access key and secret: the emulator takes any.
pub const CREDENTIAL: &str = "test";
/// The folder of the warehouse in its bucket.
const PREFIX: &str = "warehouse";

/// The emulator's address, when one is named.
#[must_use]
pub fn endpoint() -> Option<String> {
    std::env::var("HEADWATER_MINISTACK")
        .ok()
        .filter(|endpoint| !endpoint.is_empty())
}

/// Clients of whatever answers at an address.
pub async fn clients(endpoint: &str) -> Clients {
    let credentials = Credentials::new(CREDENTIAL, CREDENTIAL, None, None, "tests");
    let config = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(credentials)
        .endpoint_url(endpoint)
        .retry_config(RetryConfig::standard().with_max_attempts(5))
        .load()
        .await;
    Clients::new(&config)
}

/// A bucket and tables that nobody else uses. Adapters in it live by the time of day and by real chance: they wait before
/// they try again, and nobody would move a simulated clock for them.
#[derive(Clone, Debug)]
pub struct Place {
    /// The emulator.
    pub endpoint: String,
    /// Its clients.
    pub clients: Clients,
    /// Names everything in it.
    run: String,
}

impl Place {
    /// A fresh place.
    ///
    /// # Errors
    /// When no emulator is named, or it does not answer.
    pub async fn open() -> Result<Self> {
        let endpoint = endpoint().context("HEADWATER_MINISTACK names no emulator")?;
        let place = Self {
            clients: clients(&endpoint).await,
            endpoint,
            run: format!("hw-{:016x}", rand::random::<u64>()),
        };
        let bucket = place.clients.s3.create_bucket().bucket(&place.run);
        bucket.send().await.context("create a bucket")?;
        let created = place.state().create_tables().await;
        created.map_err(|e| crate::rows::chain(&e))?;
        Ok(place)
    }

    /// The table that PyIceberg reads.
    #[must_use]
    pub fn catalog(&self) -> String {
        format!("{}-catalog", self.run)
    }

    /// The warehouse's address.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("s3://{}/{PREFIX}", self.run)
    }

    /// The state store, as one more process opens it.
    #[must_use]
    pub fn state(&self) -> DynamoState {
        let tables = Tables {
            state: format!("{}-state", self.run),
            catalog: Some(self.catalog()),
        };
        DynamoState::new(
            self.clients.dynamodb.clone(),
            tables,
            Some(self.objects()),
            Arc::new(SystemClock),
            Arc::new(SystemChance),
        )
    }

    /// The warehouse, as one more process opens it.
    #[must_use]
    pub fn objects(&self) -> Objects {
        self.s3()
    }

    /// The same, for what S3 does beside holding objects.
    #[must_use]
    pub fn s3(&self) -> Arc<S3Objects> {
        Arc::new(S3Objects::new(
            self.clients.s3.clone(),
            &self.run,
            Path::from(PREFIX),
            Arc::new(SystemClock),
            Arc::new(SystemChance),
        ))
    }

    /// Creates a queue and gives its URL.
    ///
    /// # Errors
    /// When the emulator refuses.
    pub async fn queue(
        &self,
        name: &str,
        attributes: &[(QueueAttributeName, &str)],
    ) -> Result<String> {
        let mut request = self.clients.sqs.create_queue().queue_name(self.named(name));
        for (attribute, value) in attributes {
            request = request.attributes(attribute.clone(), *value);
        }
        let created = request.send().await.context("create a queue")?;
        created
            .queue_url
            .ok_or_else(|| anyhow!("a queue has no URL"))
    }

    /// The ARN of a queue that was created under this name.
    #[must_use]
    pub fn arn(&self, name: &str) -> String {
        format!("arn:aws:sqs:{REGION}:000000000000:{}", self.named(name))
    }

    fn named(&self, name: &str) -> String {
        format!("{}-{name}", self.run)
    }
}
