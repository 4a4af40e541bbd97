//! `POST /api/ingest/webhook/{source}` and `POST /api/ingest/cdc/{source}`: accepted means committed.

use axum::{
    Json,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
};
use bytes::Bytes;
use engine::ingest::{self, Accepted, Format, Refused, Taken};
use settings::Source;

use crate::{
    Shared, body,
    problem::{Answer, Problem},
};

/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 255;

/// Commits the events of a body; 202 with their sequences.
pub(crate) async fn webhook(
    State(shared): State<Shared>,
    Path(source): Path<String>,
    request: Request,
) -> Answer<(StatusCode, Json<Accepted>)> {
    // The body keeps its part of the budget until its rows are committed.
    let (settings, request, _body) = receive(&shared, source, request).await?;
    let accepted = ingest::webhook(&shared.world, &settings, request).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Commits the changes of a body; 202 with their sequences, 422 when an envelope is no change that can be stored.
pub(crate) async fn cdc(
    State(shared): State<Shared>,
    Path(source): Path<String>,
    request: Request,
) -> Answer<(StatusCode, Json<Taken>)> {
    // The body keeps its part of the budget until its rows are committed.
    let (settings, request, _body) = receive(&shared, source, request).await?;
    let taken = ingest::cdc(&shared.world, &settings, request)
        .await
        .map_err(|refused| match refused {
            Refused::Envelope(why) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why),
            Refused::Port(error) => error.into(),
        })?;
    Ok((StatusCode::ACCEPTED, Json(taken)))
}

/// The request as `engine` wants it, and the settings of its source.
async fn receive(
    shared: &Shared,
    source: String,
    request: Request,
) -> Answer<(Source, ingest::Request, body::Taken)> {
    let settings = shared.settings.source(&source.to_ascii_lowercase());
    let (parts, body) = request.into_parts();
    let taken = shared
        .bodies
        .take(&parts.headers, body, settings.body_max)
        .await?;
    let request = pick(source, &settings, &parts.headers, taken.bytes.clone())?;
    Ok((settings, request, taken))
}

fn pick(
    source: String,
    settings: &Source,
    headers: &HeaderMap,
    body: Bytes,
) -> Answer<ingest::Request> {
    let key = match text(headers, "idempotency-key")? {
        Some(key) => Some(key),
        None => text(headers, "webhook-id")?,
    };
    if key
        .as_ref()
        .is_some_and(|key| key.is_empty() || key.len() > KEY_BYTES_MAX)
    {
        return Err(Problem::invalid(format!(
            "an idempotency key has 1 to {KEY_BYTES_MAX} bytes"
        )));
    }
    let mut kept = Vec::with_capacity(settings.headers.len());
    for (header, column) in &settings.headers {
        kept.push((column.clone(), text(headers, header)?));
    }
    Ok(ingest::Request {
        source,
        format: format(headers).unwrap_or_else(|| Format::guess(&body)),
        body,
        key,
        headers: kept,
    })
}

/// One event per line when the content type says so, and nothing when there is none: gateways and plain clients leave it
/// out, or name that of a form. Anything else is read as one JSON value, which refuses what it is not.
fn format(headers: &HeaderMap) -> Option<Format> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let kind = kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match kind.as_str() {
        "application/x-ndjson"
        | "application/ndjson"
        | "application/jsonl"
        | "application/x-jsonlines" => Some(Format::Ndjson),
        "" | "application/x-www-form-urlencoded" => None,
        _ => Some(Format::Json),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Answer<Option<String>> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(Problem::invalid(format!("header `{name}` is not UTF-8"))),
    }
}
