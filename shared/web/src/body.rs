//! Request bodies, with their limit.

use std::sync::Arc;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use axum::{
    body::Body,
    http::{HeaderMap, StatusCode, header::CONTENT_ENCODING},
};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use http_body_util::BodyExt;
use tokio::{
    io::AsyncRead,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::io::{ReaderStream, StreamReader};

use crate::problem::{Answer, Problem};

/// Most bytes of bodies that are in memory at one time, in units of [`UNIT`].
const BUDGET: usize = 384;
/// Most bytes that are held of answers: behind each large one are rows that come next, which are as many again or more.
const ANSWERS: usize = 192;
/// Bytes of one unit of the budget.
const UNIT: usize = 1 << 20;

/// What bodies, or answers, may take together: who finds it used up is told to come again, instead of taking the process down.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Semaphore>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET)))
    }
}

/// A body, and its part of the budget until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The whole body, decoded.
    pub(crate) bytes: Bytes,
    _part: Vec<OwnedSemaphorePermit>,
}

/// A part of the budget, given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Part(Vec<OwnedSemaphorePermit>);

impl Budget {
    /// The budget of answers.
    pub(crate) fn of_answers() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS)))
    }

    /// Lets a part grow until it covers this many whole units.
    pub(crate) fn cover(&self, part: &mut Part, bytes: usize) -> Answer<()> {
        if bytes / UNIT > ANSWERS {
            let detail = format!(
                "a few rows of this answer are {} MiB, more than {ANSWERS}; ask for fewer columns, or for parts of long values",
                bytes / UNIT
            );
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        while (part.0.len() + 1) * UNIT <= bytes {
            let full = |_| {
                let detail = "too many large answers are being read; ask for this one again";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            };
            part.0
                .push(self.0.clone().try_acquire_owned().map_err(full)?);
        }
        Ok(())
    }

    /// The whole body, decoded as its headers say, at most `limit` bytes.
    pub(crate) async fn take(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Answer<Taken> {
        let mut part = Vec::new();
        let bytes = read(decoded(headers, body)?, limit, |held| {
            while part.len() * UNIT < held {
                let full = |_| {
                    let detail = "too many large bodies are being read; send this one again";
                    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                };
                part.push(self.0.clone().try_acquire_owned().map_err(full)?);
            }
            Ok(())
        })
        .await?;
        Ok(Taken { bytes, _part: part })
    }
}

/// The body without its content codings (RFC 9110, section 8.4): gzip of any number of members, zstd of any number of
/// frames; names in any case.
fn decoded(headers: &HeaderMap, body: Body) -> Answer<Body> {
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = value.to_str().unwrap_or("?").to_ascii_lowercase();
        codings.extend(value.split(',').map(|coding| coding.trim().to_owned()));
    }
    codings.retain(|coding| !coding.is_empty() && coding != "identity");
    let [coding] = codings.as_slice() else {
        return match codings.is_empty() {
            true => Ok(body),
            false => Err(unsupported(&codings.join(", "))),
        };
    };
    let pieces = TryStreamExt::map_err(body.into_data_stream(), |error| {
        std::io::Error::other(ports::error::chain(&error))
    });
    let reader = StreamReader::new(pieces);
    match coding.as_str() {
        "gzip" | "x-gzip" => {
            let mut decoder = GzipDecoder::new(reader);
            decoder.multiple_members(true);
            Ok(streamed(decoder))
        }
        "zstd" => {
            let mut decoder = ZstdDecoder::new(reader);
            decoder.multiple_members(true);
            Ok(streamed(decoder))
        }
        other => Err(unsupported(other)),
    }
}

fn streamed(reader: impl AsyncRead + Send + 'static) -> Body {
    Body::from_stream(ReaderStream::with_capacity(reader, 64 << 10))
}

fn unsupported(coding: &str) -> Problem {
    let detail =
        format!("the content encoding `{coding}` is not supported; send gzip, zstd or none");
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
}

/// What is still read, and thrown away, of a body that is too large, in bytes: a client that is cut
/// off while it sends would never see the answer.
const DRAINED_MAX: usize = 64 << 20;

/// The whole body, at most `limit` bytes; `hold` is told how much is held before it grows.
async fn read(
    mut body: Body,
    limit: usize,
    mut hold: impl FnMut(usize) -> Answer<()>,
) -> Answer<Bytes> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::invalid(format!(
                "the body cannot be read: {}",
                ports::error::chain(&error)
            ))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if first.len() + rest.len() + data.len() > limit {
            drain(body).await;
            let detail = format!("the body is larger than {limit} bytes after decoding");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        hold(first.len() + rest.len() + data.len())?;
        // Most bodies are one frame, which needs no copy.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
                first = Bytes::from_static(b"");
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

async fn drain(mut body: Body) {
    let mut drained = 0;
    while let Some(Ok(frame)) = body.frame().await {
        drained += frame.data_ref().map_or(0, Bytes::len);
        if drained > DRAINED_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_frame_of_a_body_is_kept() {
        for count in 0..6_u8 {
            let frames: Vec<Bytes> = (0..count).map(|n| Bytes::from(vec![n; 3])).collect();
            let whole = frames.concat();
            let stream = futures::stream::iter(frames.into_iter().map(Ok::<_, std::io::Error>));
            let got = read(Body::from_stream(stream), 100, |_| Ok(())).await;
            assert_eq!(
                got.ok().as_deref(),
                Some(whole.as_slice()),
                "{count} frames"
            );
        }
    }

    fn gzip(text: &str) -> Vec<u8> {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory takes it");
        encoder.finish().expect("memory takes it")
    }

    async fn take(coding: &'static str, body: Vec<u8>) -> Answer<String> {
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, coding.parse().expect("plain"))]);
        let taken = Budget::default().take(&headers, body.into(), 1_000).await?;
        Ok(String::from_utf8_lossy(&taken.bytes).into_owned())
    }

    #[tokio::test]
    async fn every_member_of_a_gzip_body_is_read() {
        let two = [gzip("one\n"), gzip("two\n")].concat();
        assert_eq!(
            take("gzip", two.clone()).await.ok().as_deref(),
            Some("one\ntwo\n")
        );
        assert_eq!(
            take("X-GZIP", two.clone()).await.ok().as_deref(),
            Some("one\ntwo\n")
        );
        let broken = [two.clone(), b"rest".to_vec()].concat();
        let error = take("gzip", broken)
            .await
            .expect_err("what follows is no member");
        assert_eq!(error.status(), StatusCode::BAD_REQUEST);
        let cut = two[..two.len() - 3].to_vec();
        assert!(take("gzip", cut).await.is_err(), "a member is cut short");
        let error = take("br", two).await.expect_err("nobody decodes it");
        assert_eq!(error.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }

    #[tokio::test]
    async fn bodies_share_a_budget() {
        let budget = Budget::default();
        let (headers, large) = (HeaderMap::new(), || Body::from(vec![b' '; 8 * UNIT]));
        let mut held = Vec::new();
        for _ in 0..BUDGET / 8 {
            held.push(
                budget
                    .take(&headers, large(), usize::MAX)
                    .await
                    .expect("room"),
            );
        }
        let error = budget
            .take(&headers, large(), usize::MAX)
            .await
            .expect_err("full");
        assert_eq!(error.status(), StatusCode::SERVICE_UNAVAILABLE);
        held.pop();
        assert!(budget.take(&headers, large(), usize::MAX).await.is_ok());
    }

    #[test]
    fn small_answers_cost_nothing_and_large_ones_come_to_an_end() {
        let budget = Budget::of_answers();
        let large = || {
            let mut part = Part::default();
            budget.cover(&mut part, 16 * UNIT).map(|()| part)
        };
        let mut held: Vec<Part> = (0..ANSWERS / 16).map_while(|_| large().ok()).collect();
        assert_eq!(held.len(), ANSWERS / 16);
        let error = large().expect_err("full");
        assert_eq!(error.status(), StatusCode::SERVICE_UNAVAILABLE);
        let mut small = Part::default();
        assert!(budget.cover(&mut small, UNIT - 1).is_ok());
        // What never fits is not to be asked for again.
        let never = budget.cover(&mut small, (ANSWERS + 1) * UNIT);
        let never = never.expect_err("it never fits");
        assert_eq!(never.status(), StatusCode::PAYLOAD_TOO_LARGE);
        held.pop();
        assert!(large().is_ok());
    }
}
