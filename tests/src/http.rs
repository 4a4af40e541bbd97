//! A small HTTP client that keeps its connections.

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, header};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

/// A client of one server. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
    base: String,
}

/// An answer, read whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// A header as text; empty when it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is not.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{} {}", self.status, self.text()))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    /// A client of the server at `address`, such as `127.0.0.1:8080`.
    #[must_use]
    pub fn new(address: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_max_idle_per_host(256)
            .build(connector);
        Self {
            pool,
            base: format!("http://{address}"),
        }
    }

    /// Sends one request.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self
            .pool
            .request(request.body(Full::new(body.into()))?)
            .await?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        Ok(Answer {
            status,
            headers,
            body: response.into_body().collect().await?.to_bytes(),
        })
    }

    /// Reads a page.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, &[], Bytes::new()).await
    }

    /// Posts JSON.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn post(&self, path: &str, json: &Value) -> Result<Answer> {
        self.send(
            "POST",
            path,
            &[(header::CONTENT_TYPE.as_str(), "application/json")],
            json.to_string(),
        )
        .await
    }

    /// Rows of a statement, by `POST /api/query`, as JSON objects.
    ///
    /// # Errors
    /// When the answer is not 200 with rows.
    pub async fn query(&self, sql: &str) -> Result<Vec<Value>> {
        let answer = self
            .post("/api/query", &serde_json::json!({ "sql": sql }))
            .await?;
        anyhow::ensure!(
            answer.status == 200,
            "{} {} for `{sql}`",
            answer.status,
            answer.text()
        );
        let rows = answer
            .json()?
            .get("rows")
            .and_then(Value::as_array)
            .cloned();
        rows.with_context(|| format!("no rows in {}", answer.text()))
    }
}
