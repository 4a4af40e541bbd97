//! The clients, built once per process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aws_config::{BehaviorVersion, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_s3::config::SharedAsyncSleep;
use aws_smithy_http_client::{
    Connector,
    proxy::ProxyConfig,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnectorSettings, SharedHttpConnector},
    runtime_components::RuntimeComponents,
};

/// Longest that a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
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
    /// What they are made of.
    pub config: SdkConfig,
}

impl Clients {
    /// Clients from the environment: region, credentials and, for an emulator, `AWS_ENDPOINT_URL`.
    pub async fn from_env() -> Self {
        let connectors = Connectors::default();
        let config = aws_config::defaults(BehaviorVersion::latest())
            .http_client(connectors.clone())
            .retry_config(RetryConfig::adaptive().with_max_attempts(ATTEMPTS))
            .timeout_config(timeouts())
            .load()
            .await;
        connectors.prepare(config.sleep_impl());
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
            config: config.clone(),
        }
    }
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(Duration::from_secs(30))
        .build()
}

/// Connectors, made once for all clients.
///
/// Left to itself, each client makes its own, and before that one that it throws away to see that it can; each reads the
/// system's roots of trust, more than a hundred of them. Here all clients have one, with one set of roots and one pool of
/// connections.
#[derive(Clone, Debug, Default)]
struct Connectors {
    made: Arc<Mutex<HashMap<Timeouts, SharedHttpConnector>>>,
}

/// What a connector is made for: to connect, and to read.
type Timeouts = (Option<Duration>, Option<Duration>);

impl Connectors {
    /// Makes the connector of the clients beside whatever else is done at the start, when a function has a whole core and
    /// not the part of one that it has later. A request that comes before it is made waits for it.
    fn prepare(&self, sleep: Option<SharedAsyncSleep>) {
        let connectors = self.clone();
        std::thread::spawn(move || {
            let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT);
            connectors.connector(&settings.build(), sleep);
        });
    }

    fn connector(
        &self,
        settings: &HttpConnectorSettings,
        sleep: Option<SharedAsyncSleep>,
    ) -> SharedHttpConnector {
        let timeouts = (settings.connect_timeout(), settings.read_timeout());
        let make = || {
            let mut connector =
                Connector::builder().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
            connector.set_sleep_impl(sleep);
            let connector = connector
                .connector_settings(settings.clone())
                .proxy_config(ProxyConfig::from_env())
                .build();
            SharedHttpConnector::new(connector)
        };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(timeouts).or_insert_with(make).clone()
    }
}

impl HttpClient for Connectors {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        self.connector(settings, components.sleep_impl())
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_s3::config::{Credentials, Region, SharedCredentialsProvider};

    use super::*;

    #[tokio::test]
    async fn all_clients_have_the_connector_that_was_prepared() {
        let connectors = Connectors::default();
        let keys = Credentials::new("key", "secret", None, None, "test");
        let config = aws_config::defaults(BehaviorVersion::latest())
            .http_client(connectors.clone())
            .timeout_config(timeouts())
            .retry_config(RetryConfig::disabled())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            // Nobody listens there.
            .endpoint_url("http://127.0.0.1:1")
            .load()
            .await;
        connectors.prepare(config.sleep_impl());
        let clients = Clients::new(&config);
        let listed = clients.s3.list_buckets().send().await;
        let named = clients.dynamodb.list_tables().send().await;
        let queued = clients.sqs.list_queues().send().await;
        assert!(listed.is_err() && named.is_err() && queued.is_err());
        let made = connectors
            .made
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let timeouts: Vec<_> = made.keys().copied().collect();
        assert_eq!(timeouts, [(Some(CONNECT), None)]);
    }
}
