//! `GET ../{id}/data`: the parquet file of an entry, for whoever has a signed link to it; whole or in parts.

use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri,
        header::{
            ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
            HeaderName, IF_RANGE, RANGE,
        },
    },
    response::{IntoResponse, Response},
};
use domain::Timestamp;
use engine::entries::Signed;
use ports::entries::Part;

use super::{answer::is_known, id};
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
    let known = is_known(&headers, &tag);
    // A part of what has changed meanwhile is of no use.
    let fits = said(IF_RANGE).is_none_or(|other| other == tag);
    let part = match said(RANGE).filter(|_| fits).and_then(part) {
        _ if method == Method::HEAD || known => Part::Size,
        Some(part) => part,
        None => Part::Whole,
    };
    let registry = shared.entries();
    let file = registry.linked(&id, &signed, part).await?;
    // It never changes; how long it may be kept is how long it may be had.
    let age = Timestamp(signed.expires).since(registry.now()).as_secs();
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
        (
            CACHE_CONTROL,
            Some(format!("private, max-age={age}, immutable")),
        ),
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

/// One range of bytes; none for several, for another unit, and for what is no range (RFC 9110, 14.1.1): then the whole file
/// is sent.
fn part(text: &str) -> Option<Part> {
    let (unit, range) = text.trim().split_once('=')?;
    let (from, to) = range.trim().split_once('-')?;
    // Digits and nothing else: numbers of ours may have a sign, those of a range may not.
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    match (from.is_empty(), to.is_empty()) {
        _ if !unit.eq_ignore_ascii_case("bytes") => None,
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
            ("bytes=+1-3", None),
            ("bytes=1-+3", None),
            ("bytes=-+3", None),
            ("bytes=1 -3", None),
            ("bytes", None),
            ("Bytes= 1-3 ", Some(Part::From(1, Some(4)))),
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
