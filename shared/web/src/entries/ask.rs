//! Looking up, and fingerprints for callers that cannot make them.

use axum::{
    Json,
    extract::{Path, Query, Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use domain::{Duration, duration::parse_duration, entry::Mode, fingerprint};
use engine::entries::{Ask, Found, Refused};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{answer, id};
use crate::{
    Shared,
    problem::{Answer, Problem},
};

/// Longest request about an entry that is not an upload, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;

/// Query parameters of a look-up.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    mode: Option<Mode>,
    /// Oldest that will do.
    ttl: Option<String>,
}

/// `GET /api/materialize/{id}`.
pub(crate) async fn look_up(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Answer<Response> {
    let id = id(&name)?;
    let ask = Ask {
        mode: asked.mode,
        ttl: asked.ttl.as_deref().map(span).transpose()?,
        on_advance: false,
    };
    match shared.entries().lookup(&id, ask).await? {
        Found::Hit(entry) => answer::entry(&shared, &entry, "hit", &headers, None).await,
        Found::Stale(entry) => answer::entry(&shared, &entry, "stale", &headers, None).await,
        Found::Building => Ok(answer::building(&shared, &id, None)),
        Found::Miss => Err(Refused::Missing(id).into()),
    }
}

/// `POST /api/materialize/fingerprint`: `{"name", "version", "args", "kwargs"}`.
pub(crate) async fn fingerprint(
    State(shared): State<Shared>,
    request: Request,
) -> Answer<Json<Value>> {
    let (parts, body) = request.into_parts();
    let taken = shared
        .bodies
        .take(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    let text =
        std::str::from_utf8(&taken.bytes).map_err(|_| Problem::invalid("the body is not UTF-8"))?;
    let call = fingerprint::from_json(text).map_err(unencodable)?;
    let print = call.fingerprint().map_err(unencodable)?;
    Ok(Json(
        json!({ "fingerprint": print.to_string(), "name": call.name, "version": call.version }),
    ))
}

fn unencodable(error: fingerprint::Unencodable) -> Problem {
    Problem::typed(
        StatusCode::UNPROCESSABLE_ENTITY,
        "urn:headwater:problem:argument",
        error.to_string(),
    )
}

/// A duration of a request: `10s`, or seconds.
pub(super) fn span(text: &str) -> Answer<Duration> {
    let text = match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => format!("{text}s"),
        false => text.to_owned(),
    };
    parse_duration(&text).map_err(|error| Problem::invalid(error.to_string()))
}

/// A duration in a JSON body: a number of seconds, or a text as in the settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Span {
    Seconds(f64),
    Text(String),
}

impl Span {
    pub(super) fn get(&self) -> Answer<Duration> {
        match self {
            Self::Text(text) => span(text),
            Self::Seconds(seconds) if (0.0..=3e9).contains(seconds) => {
                Ok(Duration::from_secs_f64(*seconds))
            }
            Self::Seconds(seconds) => Err(Problem::invalid(format!(
                "{seconds} is no number of seconds from 0 to 3000000000"
            ))),
        }
    }
}

/// A key that may be absent, `null`, or there: absent is the default, `null` is none.
pub(super) fn present<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

/// The whole body as a JSON object, whatever its content type; an empty one is an empty object. Anything else is refused:
/// what was not understood is never taken for the default.
pub(crate) async fn json_body<T: serde::de::DeserializeOwned>(
    shared: &Shared,
    request: Request,
) -> Answer<(HeaderMap, T)> {
    let (parts, body) = request.into_parts();
    let taken = shared
        .bodies
        .take(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    let bytes: &[u8] = match taken.bytes.trim_ascii() {
        b"" => b"{}",
        text => text,
    };
    let body = object(bytes, "what this call takes")?;
    Ok((parts.headers, body))
}

/// A JSON object of some form. A list would be read as the fields of an object in their order.
pub(crate) fn object<'a, T: Deserialize<'a>>(bytes: &'a [u8], form: &str) -> Answer<T> {
    let why = match bytes.trim_ascii_start() {
        [b'[', ..] => String::from("it is a list, and must be an object"),
        text => match serde_json::from_slice(text) {
            Ok(body) => return Ok(body),
            Err(error) => error.to_string(),
        },
    };
    Err(Problem::invalid(format!("the body is not {form}: {why}")))
}
