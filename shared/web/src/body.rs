//! Request bodies, with their limit.

use axum::{body::Body, http::StatusCode};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use crate::problem::{Answer, Problem};

/// What is still read, and thrown away, of a body that is too large, in bytes: a client that is cut
/// off while it sends would never see the answer.
const DRAINED_MAX: usize = 64 << 20;

/// The whole (decoded) body, at most `limit` bytes.
pub(crate) async fn read(mut body: Body, limit: usize) -> Answer<Bytes> {
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
            let got = read(Body::from_stream(stream), 100).await;
            assert_eq!(
                got.ok().as_deref(),
                Some(whole.as_slice()),
                "{count} frames"
            );
        }
    }
}
