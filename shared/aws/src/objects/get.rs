//! Reading: heads, ranges, and bodies that are taken up again where they broke off.

use std::{ops::Range, sync::Arc};

use aws_sdk_s3::{operation::get_object::GetObjectOutput, primitives::ByteStream};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{Stream, StreamExt, stream};
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, Result, path::Path};

use super::{
    attributes::{Known, known as known_of},
    bucket::Bucket,
};
use crate::answer::Answer;

/// How often one body is taken up again.
const RESUMES_MAX: u32 = 5;

pub(super) async fn get(
    bucket: Arc<Bucket>,
    location: Path,
    options: GetOptions,
) -> Result<GetResult> {
    if let Some(range) = &options.range {
        let valid = range.is_valid();
        valid.map_err(|e| bucket.generic(&location, e))?;
    }
    if options.head {
        return head(&bucket, &location, options).await;
    }
    let mut output = fetch(&bucket, &location, &options).await?;
    let part =
        match (&options.range, &output.content_range) {
            (None, _) => None,
            (Some(_), Some(text)) => Some(content_range(text).ok_or_else(|| {
                bucket.generic(&location, format!("`{text}` is no content-range"))
            })?),
            (Some(range), None) => {
                let why = format!("asked for {range}, got the whole object");
                return Err(bucket.generic(&location, why));
            }
        };
    let stream = std::mem::take(&mut output.body);
    let size = part.as_ref().map(|(_, size)| *size);
    let (meta, attributes) = known_of!(output).named(&bucket, &location, size)?;
    let range = part.map_or(0..meta.size, |(range, _)| range);
    let body = Body {
        bucket,
        location,
        options: GetOptions {
            if_match: meta.e_tag.clone(),
            version: options.version,
            ..GetOptions::default()
        },
        stream,
        left: range.clone(),
        resumed: 0,
    };
    Ok(GetResult {
        payload: GetResultPayload::Stream(body.into_stream().boxed()),
        meta,
        range,
        attributes,
    })
}

/// Sends GET; the body follows.
async fn fetch(bucket: &Bucket, location: &Path, options: &GetOptions) -> Result<GetObjectOutput> {
    let request = bucket
        .client
        .get_object()
        .bucket(&bucket.name)
        .key(bucket.key(location))
        .set_range(options.range.as_ref().map(GetRange::to_string))
        .set_if_match(options.if_match.clone())
        .set_if_none_match(options.if_none_match.clone())
        .set_if_modified_since(options.if_modified_since.map(sent_time))
        .set_if_unmodified_since(options.if_unmodified_since.map(sent_time))
        .set_version_id(options.version.clone());
    let _call = bucket.call().await;
    let output = request.send().await;
    output.map_err(|e| bucket.error(location, &Answer::of(&e)))
}

async fn head(bucket: &Bucket, location: &Path, options: GetOptions) -> Result<GetResult> {
    let asked = options.range.clone();
    let known = ask(bucket, location, options).await?;
    let (meta, attributes) = known.named(bucket, location, None)?;
    let range = match asked {
        Some(range) => range
            .as_range(meta.size)
            .map_err(|e| bucket.generic(location, e))?,
        None => 0..meta.size,
    };
    Ok(GetResult {
        payload: GetResultPayload::Stream(stream::empty().boxed()),
        meta,
        range,
        attributes,
    })
}

/// What S3 knows of an object.
pub(super) async fn known(bucket: &Bucket, location: &Path) -> Result<Known> {
    ask(bucket, location, GetOptions::default()).await
}

/// Sends HEAD, of the whole object whatever the range: its size is what is asked for.
async fn ask(bucket: &Bucket, location: &Path, options: GetOptions) -> Result<Known> {
    let request = bucket
        .client
        .head_object()
        .bucket(&bucket.name)
        .key(bucket.key(location))
        .set_if_match(options.if_match)
        .set_if_none_match(options.if_none_match)
        .set_if_modified_since(options.if_modified_since.map(sent_time))
        .set_if_unmodified_since(options.if_unmodified_since.map(sent_time))
        .set_version_id(options.version);
    let _call = bucket.call().await;
    let output = request.send().await;
    let output = output.map_err(|e| bucket.error(location, &Answer::of(&e)))?;
    Ok(known_of!(output))
}

fn sent_time(time: DateTime<Utc>) -> aws_smithy_types::DateTime {
    aws_smithy_types::DateTime::from_secs_and_nanos(time.timestamp(), time.timestamp_subsec_nanos())
}

/// Reads `bytes 0-4/10` as the range and the size of the whole.
fn content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    Some((first.parse().ok()?..end, size.parse().ok()?))
}

/// A body under way.
struct Body {
    bucket: Arc<Bucket>,
    location: Path,
    /// How to ask for the rest of the very same object.
    options: GetOptions,
    stream: ByteStream,
    left: Range<u64>,
    resumed: u32,
}

impl Body {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        stream::try_unfold(self, |mut body| async move {
            let chunk = body.next().await?;
            Ok(chunk.map(|chunk| (chunk, body)))
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let broken = match self.stream.next().await {
                Some(Ok(bytes)) => {
                    self.left.start += bytes.len() as u64;
                    return Ok(Some(bytes));
                }
                None if self.left.is_empty() => return Ok(None),
                None => "the body ended early".to_owned(),
                Some(Err(error)) => ports::error::chain(&error),
            };
            // All bytes came and still there is an error: they are not what was stored.
            let hopeless = self.left.is_empty()
                || self.options.if_match.is_none()
                || self.resumed == RESUMES_MAX;
            if hopeless {
                return Err(self.bucket.generic(&self.location, broken));
            }
            self.resumed += 1;
            tracing::debug!(
                object = self.bucket.address(&self.location),
                broken,
                "reading on"
            );
            self.bucket.patience.wait(self.resumed).await;
            self.options.range = Some(GetRange::Bounded(self.left.clone()));
            self.stream = fetch(&self.bucket, &self.location, &self.options)
                .await?
                .body;
        }
    }
}
