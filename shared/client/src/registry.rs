//! The registry's side of a call: requests, time limits, and what answers mean.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use domain::entry::EntryId;
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Method, Request, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    batches::Batches,
    error::{BoxError, Error, Result},
    meta::{Meta, Spec, Ttl},
    transport::{Body, Transport, empty, full},
};

/// Asks for an entry as programs read it: what is known of it, its rows when they are few, where they are when not.
const ENTRY: &str = "application/vnd.headwater.entry+json";
/// Rows as an Arrow stream.
pub(crate) const ARROW: &str = "application/vnd.apache.arrow.stream";
/// The header that shows a lease's token.
pub(crate) const LEASE: &str = "headwater-lease";
/// Longest answer that is read whole and is not rows, in bytes.
pub(crate) const ANSWER_MAX: usize = 8 << 20;

/// The registry, as it is reached.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) transport: Arc<dyn Transport>,
    /// For answers that are looked up.
    pub(crate) timeout: Duration,
    /// For answers that are computed, and between two pieces of a body.
    pub(crate) patience: Duration,
}

/// Where an entry's data is, for a while.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Link {
    pub(crate) href: String,
}

/// A lease that was given.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Lease {
    pub(crate) token: String,
    #[serde(default)]
    pub(crate) upload: Upload,
}

/// How the registry wants a build's file.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Upload {
    /// Larger files are sent to an address that it gives; none when it takes all by itself.
    #[serde(default)]
    pub(crate) direct_max: Option<u64>,
}

/// An entry as it was answered.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) meta: Meta,
    pub(crate) payload: Option<Batches>,
    pub(crate) link: Option<Link>,
    pub(crate) stale: bool,
    /// The right to rebuild it.
    pub(crate) lease: Option<Lease>,
}

/// What a claim brought.
#[derive(Debug)]
pub(crate) enum Claimed {
    Entry(Box<Found>),
    Build(Lease),
    Wait,
}

#[derive(Deserialize)]
struct Answer {
    entry: Option<Meta>,
    payload: Option<String>,
    url: Option<Link>,
    lease: Option<Lease>,
}

pub(crate) fn path(id: &EntryId, rest: &str) -> String {
    format!("/api/materialize/{id}{rest}")
}

pub(crate) fn away(error: impl Into<BoxError>) -> Error {
    let error: BoxError = error.into();
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    Error::Away(text)
}

/// Waits for something of the registry, for a while.
pub(crate) async fn within<T, E: Into<BoxError>>(
    limit: Duration,
    what: impl Future<Output = Result<T, E>>,
) -> Result<T> {
    match tokio::time::timeout(limit, what).await {
        Ok(outcome) => outcome.map_err(away),
        Err(_) => Err(Error::Away(format!("no answer within {limit:?}"))),
    }
}

/// What a refusal means.
fn refused(status: u16, body: &[u8], key: &str) -> Error {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    let (kind, detail) = (text("type"), text("detail"));
    let detail = match detail.is_empty() {
        true => String::from_utf8_lossy(body).chars().take(200).collect(),
        false => detail,
    };
    if kind.ends_with("index-not-ready") {
        let job = &problem["job"];
        let job = job["job"].as_str().or(job.as_str()).map(str::to_owned);
        return Error::IndexNotReady { job, detail };
    }
    match status {
        404 if kind.ends_with("entry-missing") => Error::Missing(key.to_owned()),
        500.. | 429 => Error::Away(format!("{detail} (HTTP {status})")),
        _ => Error::Refused {
            status,
            kind,
            detail,
        },
    }
}

impl Registry {
    /// Sends a request and waits for the head of its answer. Refusals are errors.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        limit: Duration,
        key: &str,
    ) -> Result<Response<Body>> {
        let answer = within(limit, self.transport.send(request)).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        let body = self.whole(answer.into_body(), ANSWER_MAX).await?;
        Err(refused(status, &body, key))
    }

    /// A body of at most `max` bytes.
    pub(crate) async fn whole(&self, body: Body, max: usize) -> Result<Bytes> {
        let limited = http_body_util::Limited::new(body, max);
        let mut limited = std::pin::pin!(limited);
        let mut all = Vec::new();
        loop {
            let piece = match tokio::time::timeout(self.patience, limited.frame()).await {
                Ok(Some(piece)) => piece.map_err(away)?,
                Ok(None) => return Ok(all.into()),
                Err(_) => {
                    return Err(Error::Away(format!(
                        "no more of the answer within {:?}",
                        self.patience
                    )));
                }
            };
            if let Ok(data) = piece.into_data() {
                all.extend_from_slice(&data);
            }
        }
    }

    pub(crate) async fn json(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<(u16, HeaderMap, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, ENTRY)
            .header(CONTENT_TYPE, "application/json")
            .body(match body {
                Value::Null => empty(),
                body => full(body.to_string()),
            })
            .map_err(away)?;
        let answer = self.send(request, limit, path).await?;
        let (head, body) = answer.into_parts();
        let body = self.whole(body, ANSWER_MAX).await?;
        Ok((head.status.as_u16(), head.headers, body))
    }

    /// The entry, or the right to build it: one request.
    pub(crate) async fn claim(&self, id: &EntryId, spec: &Spec, wait: Duration) -> Result<Claimed> {
        let mut body = Map::new();
        body.insert("key".into(), spec.key.clone().into());
        body.insert("version".into(), spec.version.into());
        match spec.ttl {
            Ttl::Default => {}
            Ttl::Never => drop(body.insert("ttl".into(), Value::Null)),
            Ttl::For(ttl) => drop(body.insert("ttl".into(), ttl.as_secs_f64().into())),
        }
        if let Some(mode) = spec.mode {
            body.insert("mode".into(), json!(mode));
        }
        if let Some(lease) = spec.lease {
            body.insert("lease".into(), lease.as_secs_f64().into());
        }
        if !spec.index.is_empty() {
            body.insert("index".into(), json!(spec.index));
        }
        body.insert("wait".into(), wait.as_secs_f64().into());
        let path = path(id, "/lease");
        let asked = self
            .json(Method::POST, &path, &body.into(), self.timeout + wait)
            .await;
        let (status, headers, body) = asked?;
        if status == 202 {
            return Ok(Claimed::Wait);
        }
        let answer: Answer = serde_json::from_slice(&body).map_err(away)?;
        match (answer.entry, answer.lease) {
            (Some(meta), lease) => {
                let stale = headers
                    .get("headwater-entry")
                    .is_some_and(|served| served == "stale");
                found(meta, answer.payload, answer.url, stale, lease)
            }
            (None, Some(lease)) => Ok(Claimed::Build(lease)),
            (None, None) => Err(Error::Away(String::from(
                "its answer has neither an entry nor a lease",
            ))),
        }
    }

    /// The entry as it is, expired or not, and without building it.
    pub(crate) async fn look_up(&self, id: &EntryId) -> Result<Box<Found>> {
        let path = path(id, "?mode=swr");
        let asked = self
            .json(Method::GET, &path, &Value::Null, self.timeout)
            .await;
        let (status, _, body) = asked?;
        if status == 202 {
            return Err(Error::Missing(id.to_string()));
        }
        let answer: Answer = serde_json::from_slice(&body).map_err(away)?;
        let meta = answer.entry.ok_or_else(|| Error::Missing(id.to_string()))?;
        match found(meta, answer.payload, answer.url, false, None)? {
            Claimed::Entry(found) => Ok(found),
            Claimed::Build(_) | Claimed::Wait => Err(Error::Missing(id.to_string())),
        }
    }

    /// Makes it the entry.
    pub(crate) async fn commit(&self, id: &EntryId, token: &str) -> Result<Meta> {
        #[derive(Deserialize)]
        struct Committed {
            entry: Meta,
        }
        let (path, body) = (path(id, "/commit"), json!({ "token": token }));
        let (_, _, body) = self.json(Method::POST, &path, &body, self.patience).await?;
        let committed: Committed = serde_json::from_slice(&body).map_err(away)?;
        Ok(committed.entry)
    }

    /// Gives a lease back.
    pub(crate) async fn abort(&self, id: &EntryId, token: &str) -> Result<()> {
        let (path, body) = (path(id, "/abort"), json!({ "token": token }));
        self.json(Method::POST, &path, &body, self.timeout)
            .await
            .map(drop)
    }

    /// Rows that a call on the entry answers with.
    pub(crate) async fn rows(&self, id: &EntryId, call: &str, body: &str) -> Result<Batches> {
        let request = Request::post(path(id, call))
            .header(ACCEPT, ARROW)
            .header(CONTENT_TYPE, "application/json")
            .body(full(body.to_owned()))
            .map_err(away)?;
        let answer = self.send(request, self.patience, &id.to_string()).await?;
        let body = self.whole(answer.into_body(), usize::MAX).await?;
        stream(&body)
    }

    /// A request without a body.
    pub(crate) fn plain(method: Method, uri: &str) -> Result<Request<Body>> {
        let request = Request::builder().method(method).uri(uri);
        request.body(empty()).map_err(away)
    }
}

fn found(
    meta: Meta,
    payload: Option<String>,
    link: Option<Link>,
    stale: bool,
    lease: Option<Lease>,
) -> Result<Claimed> {
    let payload = payload
        .map(|text| STANDARD.decode(text).map_err(away))
        .transpose()?;
    let payload = payload.map(|payload| stream(&payload)).transpose()?;
    Ok(Claimed::Entry(Box::new(Found {
        meta,
        payload,
        link,
        stale,
        lease,
    })))
}

/// The rows of an Arrow stream.
pub(crate) fn stream(bytes: &[u8]) -> Result<Batches> {
    let reader =
        arrow::ipc::reader::StreamReader::try_new(bytes, None).map_err(Error::unreadable)?;
    let schema = reader.schema();
    let batches = reader
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::unreadable)?;
    Ok(Batches::new(schema, batches))
}
