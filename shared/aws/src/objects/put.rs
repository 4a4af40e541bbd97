//! Whole objects, and conditional writes whose outcome gets known.

use aws_sdk_s3::types::ChecksumAlgorithm;
use bytes::Bytes;
use futures::Future;
use object_store::{Error, PutMode, PutOptions, PutPayload, PutResult, Result, path::Path};

use super::{
    attributes::{Headers, with_headers},
    bucket::{Bucket, is_conflict},
    get,
};
use crate::{answer::Answer, patience::ATTEMPTS};

/// The condition of a write, as headers. At most one is set.
#[derive(Debug)]
struct Condition {
    if_none_match: Option<String>,
    if_match: Option<String>,
}

impl Condition {
    fn of(mode: PutMode, bucket: &Bucket, location: &Path) -> Result<Self> {
        let (if_none_match, if_match) = match mode {
            PutMode::Overwrite => (None, None),
            PutMode::Create => (Some("*".to_owned()), None),
            PutMode::Update(version) => match version.e_tag {
                Some(e_tag) => (None, Some(e_tag)),
                None => {
                    return Err(bucket.generic(location, "an update needs the etag it replaces"));
                }
            },
        };
        Ok(Self {
            if_none_match,
            if_match,
        })
    }

    fn is_set(&self) -> bool {
        self.if_none_match.is_some() || self.if_match.is_some()
    }

    /// The error of a refused write.
    fn refused(&self, bucket: &Bucket, location: &Path, answer: &Answer) -> Error {
        match bucket.error(location, answer) {
            Error::Precondition { path, source }
                if answer.status == Some(412) && self.if_none_match.is_some() =>
            {
                Error::AlreadyExists { path, source }
            }
            // S3 says of an object to be replaced that is gone that it is not found.
            Error::NotFound { path, source } if self.if_match.is_some() => {
                Error::Precondition { path, source }
            }
            error => error,
        }
    }
}

pub(super) async fn put(
    bucket: &Bucket,
    location: &Path,
    payload: PutPayload,
    options: PutOptions,
) -> Result<PutResult> {
    let condition = Condition::of(options.mode, bucket, location)?;
    let mut headers = Headers::of(&options.attributes)?;
    let write = bucket.patience.id();
    if condition.is_set() {
        headers = headers.written_by(&write);
    }
    let tags = options.tags.encoded();
    let body = joined(payload);
    let send = || async {
        let request = with_headers!(bucket.client.put_object(), headers.clone())
            .bucket(&bucket.name)
            .key(bucket.key(location))
            .set_if_none_match(condition.if_none_match.clone())
            .set_if_match(condition.if_match.clone())
            .set_tagging((!tags.is_empty()).then(|| tags.to_owned()))
            .checksum_algorithm(ChecksumAlgorithm::Crc32)
            .body(body.clone().into());
        let _call = bucket.call().await;
        match request.send().await {
            Ok(output) => Ok(PutResult {
                e_tag: output.e_tag,
                version: output.version_id,
            }),
            Err(error) => Err(Answer::of(&error)),
        }
    };
    let sent = if condition.is_set() {
        settled(bucket, location, &write, send).await?
    } else {
        send().await
    };
    sent.map_err(|answer| condition.refused(bucket, location, &answer))
}

/// Sends a write that can be told by its id, again while it conflicts with one under way, and believes a failure only
/// when the object there is not its own. The outer error says that the outcome could not be found out.
pub(super) async fn settled<F, S>(
    bucket: &Bucket,
    location: &Path,
    write: &str,
    send: F,
) -> Result<Result<PutResult, Answer>>
where
    F: Fn() -> S,
    S: Future<Output = Result<PutResult, Answer>>,
{
    let mut attempt = 1;
    let answer = loop {
        match send().await {
            Ok(result) => return Ok(Ok(result)),
            Err(answer) if is_conflict(&answer) && attempt < ATTEMPTS => {
                bucket.patience.wait(attempt).await;
                attempt += 1;
            }
            Err(answer) => break answer,
        }
    };
    if !answer.is_unsure() && !matches!(answer.status, Some(404 | 409 | 412)) {
        return Ok(Err(answer));
    }
    match recognise(bucket, location, write).await {
        Ok(Some(result)) => {
            tracing::info!(
                object = bucket.address(location),
                answer = answer.text,
                "found an object written by a call whose answer was lost"
            );
            Ok(Ok(result))
        }
        Ok(None) => Ok(Err(answer)),
        // The first failure says more.
        Err(_) if answer.is_unsure() => Ok(Err(answer)),
        Err(error) => Err(error),
    }
}

/// The object, when this write made it.
async fn recognise(bucket: &Bucket, location: &Path, write: &str) -> Result<Option<PutResult>> {
    match get::known(bucket, location).await {
        Ok(known) if known.headers.write() == Some(write) => Ok(Some(PutResult {
            e_tag: known.e_tag,
            version: known.version,
        })),
        Ok(_) | Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes of a payload in one piece, so that the client can check, sign and repeat them.
pub(super) fn joined(payload: PutPayload) -> Bytes {
    match payload.as_ref() {
        [] => Bytes::new(),
        [one] => one.clone(),
        many => many.concat().into(),
    }
}
