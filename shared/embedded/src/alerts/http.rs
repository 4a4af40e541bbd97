//! Requests of alerts.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, header::CONTENT_TYPE};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

/// Posts JSON.
#[async_trait]
pub trait Post: Send + Sync + std::fmt::Debug {
    /// The status of the answer; what went wrong when there is none, without the address.
    async fn post(&self, url: &str, body: String) -> Result<u16, String>;
}

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Posts over HTTP and HTTPS, with the system's certificates. Redirects are not followed: they would take a secret elsewhere.
#[derive(Debug, Default)]
pub struct HttpPost {
    client: OnceLock<Result<Https, String>>,
}

impl HttpPost {
    /// Nothing is read or opened before the first request.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn client(&self) -> Result<&Https, String> {
        let client = self.client.get_or_init(|| {
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            let connector = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(provider)
                .map_err(|error| format!("read the system's certificates: {error}"))?
                .https_or_http()
                .enable_http1()
                .build();
            Ok(Client::builder(TokioExecutor::new()).build(connector))
        });
        client.as_ref().map_err(Clone::clone)
    }
}

#[async_trait]
impl Post for HttpPost {
    async fn post(&self, url: &str, body: String) -> Result<u16, String> {
        let request = Request::post(url)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| "its address is none".to_owned())?;
        let answer = self.client()?.request(request).await;
        match answer {
            Ok(answer) => Ok(answer.status().as_u16()),
            Err(error) if error.is_connect() => Err(String::from("it cannot be reached")),
            Err(_) => Err(String::from("the connection broke")),
        }
    }
}
