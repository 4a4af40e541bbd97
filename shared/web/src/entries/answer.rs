//! Entries as answers: JSON with what is known of them, or their rows as Arrow or CSV; headers that caches understand.

use axum::{
    Json,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER, VARY},
    },
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use domain::{Timestamp, entry::EntryId};
use engine::entries::{Entry, LINK_LIFE, Refused};
use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::{
    Shared,
    problem::Answer,
    query,
    rows::{self, Format},
};

/// Says how the entry was served: `hit`, `stale`, `built`, `building`, `lease`.
const SERVED: HeaderName = HeaderName::from_static("headwater-entry");
/// The entry's name, where the path does not have it.
const ID: HeaderName = HeaderName::from_static("headwater-entry-id");
/// An entry with its rows as an Arrow stream in base64.
const ENTRY: &str = "application/vnd.headwater.entry+json";
/// Longest that a cache may keep what never expires: it may be evicted.
const AGE_MAX: u64 = 3_600;
/// Longest that a cache may keep a link: whoever finds it there has time to follow it.
const LINK_AGE_MAX: u64 = LINK_LIFE.as_secs() / 2;

/// An entry, its rows included when they ride inline or the caller wants them as Arrow or CSV. `also` is put beside it.
///
/// # Errors
/// `Missing` when its data has vanished.
pub(super) async fn entry(
    shared: &Shared,
    entry: &Entry,
    served: &'static str,
    headers: &HeaderMap,
    also: Option<(&str, Value)>,
) -> Answer<Response> {
    let tag = tag(entry, headers);
    // What holds a link is of no use once that is over, so it is never said to be as it was.
    let links = links(entry, headers, also.is_some());
    let mut response = if also.is_none() && !links && is_known(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        body(shared, entry, headers, also).await?
    };
    cached(shared, entry, served, (&tag, links), response.headers_mut());
    Ok(response)
}

/// Whether the caller has what a tag is of.
pub(super) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|tags| {
            tags.split(',').any(|one| {
                let one = one.trim();
                one == "*" || one.trim_start_matches("W/") == tag
            })
        })
    })
}

/// Whether an answer says where the rows are, instead of having them.
fn links(entry: &Entry, headers: &HeaderMap, also: bool) -> bool {
    entry.payload.is_none() && (also || query::format(headers) == Format::Json)
}

async fn body(
    shared: &Shared,
    entry: &Entry,
    headers: &HeaderMap,
    also: Option<(&str, Value)>,
) -> Answer<Response> {
    let registry = shared.entries();
    let format = query::format(headers);
    let wants_rows = format != Format::Json && also.is_none();
    if links(entry, headers, also.is_some()) {
        let link = registry.link(entry).await?;
        let mut shown = json!({ "entry": registry.shown(entry), "rows": null, "url": link });
        put(&mut shown, also);
        return Ok(Json(shown).into_response());
    }
    if let (Some(payload), true) = (&entry.payload, wants_payload(headers)) {
        let mut shown =
            json!({ "entry": registry.shown(entry), "payload": STANDARD.encode(payload) });
        put(&mut shown, also);
        return Ok(Json(shown).into_response());
    }
    let Some(rows) = registry.rows(entry).await? else {
        return Err(Refused::Missing(entry.id.clone()).into());
    };
    if wants_rows {
        let body = query::streamed(shared, rows, format).await?;
        return Ok(([(CONTENT_TYPE, format.content_type())], body).into_response());
    }
    let encoded = rows::encode(rows, Format::Json);
    // What rides inline is small: its rows, and what is known of the entry in one object.
    let text = encoded
        .try_fold(Vec::<u8>::new(), |mut all, piece| async move {
            all.extend_from_slice(&piece);
            Ok::<_, ports::Error>(all)
        })
        .await?;
    let mut head = json!({ "entry": registry.shown(entry) });
    put(&mut head, also);
    let mut text_of_head = head.to_string();
    text_of_head.truncate(text_of_head.len() - 1);
    let rest = String::from_utf8_lossy(&text);
    // Both are objects: `{"entry": ..` and `{"columns": .., "rows": ..}` become one, and no number is read on the way.
    let body = format!("{text_of_head},{}", rest.trim_start_matches('{'));
    Ok(([(CONTENT_TYPE, Format::Json.content_type())], body).into_response())
}

/// Whether the caller is a program that wants the rows with their types, in one answer with what is known of the entry.
fn wants_payload(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.split(',').any(|kind| kind.trim() == ENTRY))
}

fn put(object: &mut Value, also: Option<(&str, Value)>) {
    if let (Some(object), Some((name, value))) = (object.as_object_mut(), also) {
        object.insert(name.to_owned(), value);
    }
}

/// The tag of an entry in one form: to a cache another form of the same rows is another thing.
fn tag(entry: &Entry, headers: &HeaderMap) -> String {
    let form = match query::format(headers) {
        _ if entry.payload.is_some() && wants_payload(headers) => "-entry",
        Format::Json => "",
        Format::Csv => "-csv",
        Format::Arrow => "-arrow",
    };
    format!("\"{}{form}\"", entry.content.generation)
}

fn cached(
    shared: &Shared,
    entry: &Entry,
    served: &'static str,
    (tag, links): (&str, bool),
    headers: &mut HeaderMap,
) {
    let registry = shared.entries();
    let (left, stale) = entry.remaining(registry.settings(), registry.now());
    let on_advance = entry
        .row
        .spec
        .query
        .as_ref()
        .is_some_and(|query| query.on_advance);
    let age = match (on_advance, left) {
        // It may be stale at any moment.
        (true, _) => 0,
        (false, Some(left)) => left.as_secs(),
        (false, None) => AGE_MAX,
    };
    let control = match stale.as_secs() {
        _ if links => format!(
            "private, max-age={}, must-revalidate",
            age.min(LINK_AGE_MAX)
        ),
        0 => format!("private, max-age={age}, must-revalidate"),
        stale => format!("private, max-age={age}, stale-while-revalidate={stale}"),
    };
    headers.insert(SERVED, HeaderValue::from_static(served));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    for (name, text) in [
        (CACHE_CONTROL, control),
        (ETAG, tag.to_owned()),
        (ID, entry.id.to_string()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    }
}

/// Somebody builds it: come again.
pub(super) fn building(shared: &Shared, id: &EntryId, until: Option<Timestamp>) -> Response {
    let now = shared.entries().now();
    let left = until.map_or(1, |until| until.since(now).as_secs() + 1);
    let body = json!({
        "id": id.to_string(),
        "status": "building",
        "until": until.map(|until| until.to_string()),
    });
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(SERVED, HeaderValue::from_static("building"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Builds are mostly shorter than they may be.
    headers.insert(RETRY_AFTER, HeaderValue::from(left.clamp(1, 2)));
    response
}
