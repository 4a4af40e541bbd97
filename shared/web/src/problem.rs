//! The one place that turns errors into HTTP: RFC 9457 problem documents.

use std::any::Any;

use axum::{
    Json,
    body::{Body, to_bytes},
    extract::Request,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri,
        header::{CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use domain::TableName;
use ports::{Error, Kind};
use serde::Serialize;
use serde_json::{Map, Value};

/// Content type of every error.
const PROBLEM_JSON: &str = "application/problem+json";
/// Longest plain-text error of a layer that is kept as detail, in bytes.
const DETAIL_BYTES_MAX: usize = 4 << 10;

/// An index that is being built: it is worth asking again soon.
pub(crate) const INDEX_NOT_READY: &str = "urn:headwater:problem:index-not-ready";

/// An entry that cannot be read: it is not there, or its data is gone.
pub(crate) const ENTRY_MISSING: &str = "urn:headwater:problem:entry-missing";

/// What a handler answers with.
pub(crate) type Answer<T> = Result<T, Problem>;

/// A problem document.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    detail: String,
    /// Members of its own.
    #[serde(flatten)]
    more: Map<String, Value>,
}

fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

impl Problem {
    /// A problem by its status; the type and title follow from it.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let (kind, title) = match status {
            StatusCode::BAD_REQUEST => ("urn:headwater:problem:invalid", "the request is wrong"),
            StatusCode::FORBIDDEN => (
                "urn:headwater:problem:forbidden",
                "this caller may not do this",
            ),
            StatusCode::NOT_FOUND => ("urn:headwater:problem:not-found", "there is no such thing"),
            StatusCode::CONFLICT => (
                "urn:headwater:problem:conflict",
                "the state does not allow this now",
            ),
            StatusCode::PAYLOAD_TOO_LARGE => {
                ("urn:headwater:problem:too-large", "a limit was exceeded")
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                ("urn:headwater:problem:unavailable", "try again later")
            }
            StatusCode::INTERNAL_SERVER_ERROR => {
                ("urn:headwater:problem:internal", "the server is at fault")
            }
            other => ("about:blank", other.canonical_reason().unwrap_or("error")),
        };
        Self {
            kind,
            title,
            status,
            detail: detail.into(),
            more: Map::new(),
        }
    }

    /// The same with a member of its own.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// A problem of a type of its own.
    pub(crate) fn typed(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            ..Self::new(status, detail)
        }
    }

    /// Whether it is of a type.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind == kind
    }

    /// The status.
    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The request is wrong.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind {
            Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Corrupt => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            tracing::error!(error = error.chain(), "request failed");
        }
        Self::new(status, error.chain())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        let is_building = self.kind == INDEX_NOT_READY;
        let mut response = (status, Json(self)).into_response();
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if status == StatusCode::SERVICE_UNAVAILABLE || is_building {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// A table or model named in a path.
pub(crate) fn table(text: &str) -> Answer<TableName> {
    text.parse()
        .map_err(|error: domain::name::NameError| Problem::invalid(error.to_string()))
}

/// No route has this path.
pub(crate) async fn not_found(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("no route for {method} {}", uri.path()),
    )
}

/// A handler panicked: the request fails, the process lives.
pub(crate) fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response {
    let text = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("unknown cause");
    tracing::error!(panic = text, "a handler panicked");
    let detail = "a defect of the server ended this request; its log says more";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
}

/// Gives errors of the router and the layers, which are plain text or empty, the form of all
/// others.
pub(crate) async fn fill_in(response: Response) -> Response {
    let status = response.status();
    let is_problem = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind == PROBLEM_JSON);
    if !(status.is_client_error() || status.is_server_error()) || is_problem {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, DETAIL_BYTES_MAX).await.unwrap_or_default();
    let detail = match (String::from_utf8_lossy(&text).trim(), status) {
        ("", StatusCode::METHOD_NOT_ALLOWED) => {
            String::from("this path answers other methods; see the Allow header")
        }
        ("", StatusCode::UNSUPPORTED_MEDIA_TYPE) => {
            String::from("the content encoding is not supported; send gzip, zstd or none")
        }
        ("", _) => String::from(status.canonical_reason().unwrap_or("error")),
        (text, _) => text.to_owned(),
    };
    let mut filled = Problem::new(status, detail).into_response();
    for (name, value) in &parts.headers {
        if !filled.headers().contains_key(name) && name != axum::http::header::CONTENT_LENGTH {
            filled.headers_mut().insert(name, value.clone());
        }
    }
    filled
}

/// Refuses writes that a page of another origin makes a browser send: loopback alone keeps other
/// machines out, not other pages of this one. Programs send no `Origin`.
pub(crate) async fn refuse_other_origins(request: Request<Body>, next: Next) -> Response {
    if is_foreign_write(request.method(), request.headers()) {
        return Problem::new(
            StatusCode::FORBIDDEN,
            "pages of another origin may not write here",
        )
        .into_response();
    }
    next.run(request).await
}

fn is_foreign_write(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let foreign = match (text(ORIGIN), text(HOST)) {
        (Some(origin), Some(host)) => origin
            .split_once("://")
            .is_none_or(|(_, authority)| authority != host),
        (Some(_), None) => true,
        (None, _) => false,
    };
    foreign && !method.is_safe()
}
