//! `GET ../{id}/data`: the parquet file of an entry, for whoever has a signed link to it; whole or in parts.

use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri,
        header::{
            ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
            HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE,
        },
    },
    response::{IntoResponse, Response},
};
use engine::entries::Signed;
use ports::entries::Part;

use super::id;
use crate::{Shared, problem::Answer};

/// Whether a request says by its address why it may be answered. Whether that is so is judged by who answers it.
pub(crate) fn is_signed(uri: &Uri) -> bool {
    let path = uri.path();
    let query = uri.query().unwrap_or_default();
    path.starts_with("/api/materialize/")
        && path.ends_with("/data")
        && query.split('&').any(|pair| pair.starts_with("signature="))
}

/// `GET` and `HEAD` of `/api/materialize/{id}/data`.
pub(super) async fn data(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Query(signed): Query<Signed>,
    method: Method,
    headers: HeaderMap,
) -> Answer<Response> {
    let id = id(&name)?;
    let tag = format!("\"{}\"", signed.generation);
    let said = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let known =
        said(IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag));
    // A part of what has changed meanwhile is of no use.
    let fits = said(IF_RANGE).is_none_or(|other| other == tag);
    let part = match said(RANGE).filter(|_| fits).and_then(part) {
        _ if method == Method::HEAD || known => Part::Size,
        Some(part) => part,
        None => Part::Whole,
    };
    let file = shared.entries().linked(&id, &signed, part).await?;
    let size = file.size;
    let mut response = match (part, &file.range) {
        (Part::Size, _) if known => StatusCode::NOT_MODIFIED.into_response(),
        (Part::Size, _) => StatusCode::OK.into_response(),
        (_, None) => StatusCode::RANGE_NOT_SATISFIABLE.into_response(),
        (Part::Whole, Some(_)) => Body::from_stream(file.bytes).into_response(),
        (_, Some(_)) => {
            (StatusCode::PARTIAL_CONTENT, Body::from_stream(file.bytes)).into_response()
        }
    };
    let range = match (response.status(), &file.range) {
        (StatusCode::PARTIAL_CONTENT, Some(range)) => {
            Some(format!("bytes {}-{}/{size}", range.start, range.end - 1))
        }
        (StatusCode::RANGE_NOT_SATISFIABLE, _) => Some(format!("bytes */{size}")),
        _ => None,
    };
    let length = match (part, &file.range) {
        (Part::Size, _) => (!known).then_some(size),
        (_, range) => range.as_ref().map(|range| range.end - range.start),
    };
    let out = response.headers_mut();
    for (name, text) in [
        (
            CONTENT_TYPE,
            Some(String::from("application/vnd.apache.parquet")),
        ),
        (ACCEPT_RANGES, Some(String::from("bytes"))),
        (CACHE_CONTROL, Some(String::from("private, immutable"))),
        (ETAG, Some(tag)),
        (CONTENT_RANGE, range),
        (CONTENT_LENGTH, length.map(|length| length.to_string())),
    ] {
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            out.insert(name, value);
        }
    }
    Ok(response)
}

/// One range of bytes; none for several, for another unit, and for what is no range: then the whole file is sent.
fn part(text: &str) -> Option<Part> {
    let (from, to) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (from.trim().is_empty(), to.trim().is_empty()) {
        (true, false) => number(to).map(Part::Last),
        (false, true) => number(from).map(|from| Part::From(from, None)),
        (false, false) => {
            let (from, to) = (number(from)?, number(to)?);
            (from <= to).then(|| Part::From(from, Some(to.saturating_add(1))))
        }
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_read_and_nothing_else() {
        for (text, expected) in [
            ("bytes=0-9", Some(Part::From(0, Some(10)))),
            ("bytes=5-", Some(Part::From(5, None))),
            ("bytes=-5", Some(Part::Last(5))),
            ("bytes=9-5", None),
            ("bytes=0-1,4-5", None),
            ("lines=0-1", None),
            ("bytes=-", None),
            (
                "bytes=0-18446744073709551615",
                Some(Part::From(0, Some(u64::MAX))),
            ),
        ] {
            assert_eq!(part(text), expected, "{text}");
        }
        assert_eq!(Part::From(5, None).of(5), None);
        assert_eq!(Part::From(2, Some(100)).of(5), Some(2..5));
        assert_eq!(Part::Last(100).of(5), Some(0..5));
    }
}
