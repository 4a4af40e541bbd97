//! AWS as a test wants it: requests are kept, answers are made by the test, and time passes at once.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use async_trait::async_trait;
use aws_config::{BehaviorVersion, SdkConfig, retry::RetryConfig};
use aws_sdk_s3::config::{Credentials, Region, SharedCredentialsProvider};
use aws_smithy_runtime_api::{
    client::{
        http::{
            HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings,
            SharedHttpConnector,
        },
        orchestrator::{HttpRequest, HttpResponse},
        result::ConnectorError,
        runtime_components::RuntimeComponents,
    },
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use domain::{Duration, Timestamp};
use ports::Clock;
use tokio::sync::watch;

use crate::clients::Clients;

/// A request as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether it was sent with this method to a target that holds this text.
    pub(crate) fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.target.contains(part)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    fn of(request: &HttpRequest) -> Self {
        let headers = request.headers().iter();
        let uri = request.uri();
        let host = uri.find("://").map_or(0, |at| at + 3);
        let target = uri[host..].find('/').map_or("/", |at| &uri[host + at..]);
        Self {
            method: request.method().to_owned(),
            target: target.to_owned(),
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect(),
            body: request.body().bytes().unwrap_or_default().to_vec(),
        }
    }
}

/// What comes back.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A status, headers and a body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// Nothing: the connection is gone. The request may have taken effect.
    Lost,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self::Answer(200, Vec::new(), body.into())
    }

    /// An error of S3.
    pub(crate) fn refused(status: u16, code: &str) -> Self {
        let body =
            format!("<Error><Code>{code}</Code><Message>as the test wants</Message></Error>");
        Self::Answer(status, Vec::new(), body)
    }
}

type Script = Box<dyn FnMut(&Sent) -> Reply + Send>;

/// A service that answers by a script.
#[derive(Clone)]
pub(crate) struct Fake {
    script: Arc<Mutex<Script>>,
    sent: watch::Sender<Vec<Sent>>,
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    pub(crate) fn new(script: impl FnMut(&Sent) -> Reply + Send + 'static) -> Self {
        Self {
            script: Arc::new(Mutex::new(Box::new(script))),
            sent: watch::Sender::default(),
        }
    }

    /// Clients of this service. Lost answers are asked for again at once.
    pub(crate) fn clients(&self) -> Clients {
        let retries = RetryConfig::standard()
            .with_max_attempts(3)
            .with_initial_backoff(Duration::from_millis(1));
        let credentials = Credentials::new("id", "secret", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .retry_config(retries)
            .endpoint_url("http://aws.test")
            .http_client(self.clone())
            .build();
        Clients::new(&config)
    }

    /// All requests so far.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.borrow().clone()
    }

    /// How many requests so far were sent so.
    pub(crate) fn count(&self, method: &str, part: &str) -> usize {
        let sent = self.sent.borrow();
        sent.iter().filter(|sent| sent.is(method, part)).count()
    }

    /// Waits until so many requests were sent.
    pub(crate) async fn until(&self, count: usize) {
        let mut sent = self.sent.subscribe();
        let enough = sent.wait_for(|sent| sent.len() >= count);
        let in_time = tokio::time::timeout(Duration::from_secs(60), enough).await;
        assert!(in_time.is_ok(), "sent only {:?}", self.sent());
    }
}

impl HttpClient for Fake {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Fake {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let sent = Sent::of(&request);
        let reply = {
            let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
            script(&sent)
        };
        self.sent.send_modify(|all| all.push(sent));
        HttpConnectorFuture::ready(respond(reply))
    }
}

fn respond(reply: Reply) -> Result<HttpResponse, ConnectorError> {
    let (status, headers, body) = match reply {
        Reply::Answer(status, headers, body) => (status, headers, SdkBody::from(body)),
        Reply::Lost => return Err(ConnectorError::io("the connection is gone".into())),
    };
    let status = StatusCode::try_from(status).expect("a status");
    let mut response = HttpResponse::new(status, body);
    for (name, value) in headers {
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// A clock on which every wait is over at once.
#[derive(Debug, Default)]
pub(crate) struct Hasty {
    now: AtomicI64,
}

impl Hasty {
    pub(crate) fn clock() -> Arc<dyn Clock> {
        let clock = Self::default();
        // 2026-01-01T00:00:00Z
        clock.now.store(1_767_225_600_000_000, Ordering::SeqCst);
        Arc::new(clock)
    }
}

#[async_trait]
impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    async fn sleep_until(&self, moment: Timestamp) {
        self.now.fetch_max(moment.0, Ordering::SeqCst);
    }
}
