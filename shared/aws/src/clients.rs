//! The clients, built once per process.

use aws_config::{BehaviorVersion, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use std::time::Duration;

/// Attempts of one call before its error is given to the caller.
const ATTEMPTS: u32 = 5;

/// One client of each service over one shared connector.
#[derive(Clone, Debug)]
pub struct Clients {
    /// DynamoDB.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// S3.
    pub s3: aws_sdk_s3::Client,
    /// SQS.
    pub sqs: aws_sdk_sqs::Client,
}

impl Clients {
    /// Clients from the environment: region, credentials and, for an emulator, `AWS_ENDPOINT_URL`.
    pub async fn from_env() -> Self {
        let config = aws_config::defaults(BehaviorVersion::latest())
            .retry_config(RetryConfig::adaptive().with_max_attempts(ATTEMPTS))
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(Duration::from_secs(3))
                    .operation_attempt_timeout(Duration::from_secs(30))
                    .build(),
            )
            .load()
            .await;
        Self::new(&config)
    }

    /// Clients over a configuration; an emulator's endpoint means path-style buckets.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        let s3 = aws_sdk_s3::config::Builder::from(config)
            .force_path_style(config.endpoint_url().is_some())
            .build();
        Self {
            dynamodb: aws_sdk_dynamodb::Client::new(config),
            s3: aws_sdk_s3::Client::from_conf(s3),
            sqs: aws_sdk_sqs::Client::new(config),
        }
    }
}
