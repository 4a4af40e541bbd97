//! The clients, built once per process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aws_config::{BehaviorVersion, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_smithy_http_client::{
    Connector,
    proxy::ProxyConfig,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnectorSettings, SharedHttpConnector},
    runtime_components::RuntimeComponents,
};

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
            .http_client(Connectors::default())
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

/// Connectors, made when the first request asks for one.
///
/// Left to itself, each client makes its own, and a second one that it throws away to see that it can: each reads the
/// system's roots of trust, a hundred and more of them, before anything was asked. Here all clients have one, with one set
/// of roots and one pool of connections.
#[derive(Clone, Debug, Default)]
struct Connectors {
    made: Arc<Mutex<HashMap<Timeouts, SharedHttpConnector>>>,
}

/// What a connector is made for: to connect, and to read.
type Timeouts = (Option<Duration>, Option<Duration>);

impl HttpClient for Connectors {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let timeouts = (settings.connect_timeout(), settings.read_timeout());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let mut connector =
                Connector::builder().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
            connector.set_sleep_impl(components.sleep_impl());
            let connector = connector
                .connector_settings(settings.clone())
                .proxy_config(ProxyConfig::from_env())
                .build();
            SharedHttpConnector::new(connector)
        };
        made.entry(timeouts).or_insert_with(make).clone()
    }
}
