//! `POST /api/query`: read-only SQL over the lake.
//!
//! The body is `{"sql": "..", "parameters": [..]}`; parameters are the values of `$1`, `$2` and on.
//! The answer is JSON, CSV or Arrow by `Accept`. It is streamed, but its first bytes are held back:
//! an error that comes before [`HELD_BYTES_MAX`] is answered as what it is; a later one can only
//! cut the answer short, which HTTP lets the reader see.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use engine::read;
use futures::{StreamExt, TryStreamExt, stream};
use ports::{
    query::{Limits, Parameter, RowOrder, Statement},
    tables::Rows,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Shared,
    body::Part,
    entries::object,
    problem::{Answer, Problem},
    rows::{self, Format},
};

/// Longest request, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// What some editors put before a text in UTF-8.
const BOM: &[u8] = "\u{feff}".as_bytes();
/// What is encoded before the first byte is sent, in bytes.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Runs a statement.
pub(crate) async fn query(State(shared): State<Shared>, request: Request) -> Answer<Response> {
    let (parts, body) = request.into_parts();
    let taken = shared
        .bodies
        .take(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    let asked = parse(&taken.bytes)?;
    drop(taken);
    let limits = &shared.settings.query;
    let limits = Limits {
        time: limits.timeout,
        rows: Some(limits.rows_max),
    };
    let statement = Statement {
        order: RowOrder::Any,
        watermarks: None,
        sql: asked.sql,
        parameters: asked.parameters,
        limits,
    };
    encoded(
        &shared,
        read::query(&shared.world, &statement).await?,
        &parts.headers,
    )
    .await
}

/// Rows in the form that the caller wants.
pub(crate) async fn encoded(shared: &Shared, rows: Rows, headers: &HeaderMap) -> Answer<Response> {
    let format = format(headers);
    let body = streamed(shared, rows, format).await?;
    Ok(([(CONTENT_TYPE, format.content_type())], body).into_response())
}

/// Rows as a body. What is held of it, and may wait for its reader, is counted in a budget of all answers until it ends.
pub(crate) async fn streamed(shared: &Shared, rows: Rows, format: Format) -> Answer<Body> {
    let mut encoded = rows::encode(rows, format);
    let (mut held, mut bytes): (Vec<Bytes>, usize) = (Vec::new(), 0);
    let mut part = Part::default();
    while bytes < HELD_BYTES_MAX {
        match encoded.try_next().await? {
            Some(chunk) => {
                bytes += chunk.len();
                shared.answers.cover(&mut part, bytes)?;
                held.push(chunk);
            }
            None => break,
        }
    }
    let chunks = stream::iter(held.into_iter().map(Ok)).chain(encoded);
    Ok(Body::from_stream(chunks.inspect(move |_| {
        let _until_the_end = &part;
    })))
}

/// The form the caller wants.
pub(crate) fn format(headers: &HeaderMap) -> Format {
    let accept = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    let kinds = accept
        .split(',')
        .filter_map(|kind| kind.split(';').next())
        .map(str::trim);
    for kind in kinds {
        match kind {
            "text/csv" => return Format::Csv,
            "application/vnd.apache.arrow.stream" => return Format::Arrow,
            "application/json" => return Format::Json,
            _ => {}
        }
    }
    Format::Json
}

struct Asked {
    sql: String,
    parameters: Vec<Parameter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Raw<'a> {
    sql: String,
    #[serde(default, borrow)]
    parameters: Vec<&'a RawValue>,
}

fn parse(body: &[u8]) -> Answer<Asked> {
    let body = body.strip_prefix(BOM).unwrap_or(body);
    let raw: Raw<'_> = object(body, r#"`{"sql": .., "parameters": [..]}`"#)?;
    let parameters = raw
        .parameters
        .iter()
        .enumerate()
        .map(|(i, raw)| parameter(i + 1, raw.get()));
    Ok(Asked {
        parameters: parameters.collect::<Answer<_>>()?,
        sql: raw.sql,
    })
}

/// A JSON scalar as a bound value; numbers are read from their text, so that none loses a digit on
/// the way.
pub(crate) fn parameter(number: usize, text: &str) -> Answer<Parameter> {
    Parameter::from_json(text)
        .map_err(|why| Problem::invalid(format!("parameter ${number}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_keep_their_type_and_their_digits() {
        let asked = parse(
            br#"{"sql": "SELECT 1", "parameters": [null, true, 9007199254740993, 1.5, "x"]}"#,
        )
        .ok();
        let expected = vec![
            Parameter::Null,
            Parameter::Boolean(true),
            Parameter::Integer(9_007_199_254_740_993),
            Parameter::Float(1.5),
            Parameter::Text(String::from("x")),
        ];
        assert_eq!(asked.map(|asked| asked.parameters), Some(expected));
        for bad in [r#"[1]"#, r#"18446744073709551615"#, r#"{"a": 1}"#] {
            assert!(parameter(1, bad).is_err(), "{bad}");
        }
        assert!(parse(br#"{"sql": "SELECT 1", "params": []}"#).is_err());
        assert!(parse(br#" ["SELECT 1"]"#).is_err());
        assert!(parse("\u{feff}{\"sql\": \"SELECT 1\"}".as_bytes()).is_ok());
        let told = parse(b"[1]").err().map(|problem| format!("{problem:?}"));
        let told = told.unwrap_or_default();
        assert!(
            told.contains("an object") && !told.contains("Raw"),
            "{told}"
        );
    }
}
