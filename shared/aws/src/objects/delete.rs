//! Deleting, a thousand at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aws_sdk_s3::types::{ChecksumAlgorithm, Delete, ObjectIdentifier};
use futures::{StreamExt, stream, stream::BoxStream};
use object_store::{Result, path::Path};

use super::bucket::Bucket;
use crate::{answer::Answer, patience::ATTEMPTS};

/// Most keys that S3 takes in one call.
const KEYS_MAX: usize = 1_000;
/// Calls at one time.
const CALLS: usize = 4;
/// Failures of one key that pass.
const PASSING: [&str; 3] = ["InternalError", "ServiceUnavailable", "SlowDown"];

/// Deletes in the order given; what failed is an error in its place. What does not exist is deleted already.
pub(super) fn delete(
    bucket: Arc<Bucket>,
    locations: BoxStream<'static, Result<Path>>,
) -> BoxStream<'static, Result<Path>> {
    let batch = move |batch| {
        let bucket = bucket.clone();
        async move { stream::iter(delete_batch(&bucket, batch).await) }
    };
    locations
        .chunks(KEYS_MAX)
        .map(batch)
        .buffered(CALLS)
        .flatten()
        .boxed()
}

async fn delete_batch(bucket: &Bucket, batch: Vec<Result<Path>>) -> Vec<Result<Path>> {
    let known = batch.iter().filter_map(|location| location.as_ref().ok());
    let failed = delete_keys(bucket, known.map(|location| bucket.key(location)).collect()).await;
    let outcome = |location: Path| match failed.get(&bucket.key(&location)) {
        Some(answer) => Err(bucket.error(&location, answer)),
        None => Ok(location),
    };
    batch
        .into_iter()
        .map(|location| location.and_then(outcome))
        .collect()
}

/// Deletes keys, and says which were not.
async fn delete_keys(bucket: &Bucket, mut keys: BTreeSet<String>) -> BTreeMap<String, Answer> {
    let mut failed = BTreeMap::new();
    let mut attempt = 0;
    while !keys.is_empty() {
        attempt += 1;
        let refused = match send(bucket, &keys).await {
            Ok(refused) => refused,
            Err(answer) => {
                failed.extend(keys.into_iter().map(|key| (key, answer.clone())));
                break;
            }
        };
        keys.clear();
        for (key, answer) in refused {
            if attempt < ATTEMPTS && answer.has_code(&PASSING) {
                keys.insert(key);
            } else {
                failed.insert(key, answer);
            }
        }
        if !keys.is_empty() {
            bucket.patience.wait(attempt).await;
        }
    }
    failed
}

/// Sends one call; answers the keys that S3 refused, each with its reason.
async fn send(
    bucket: &Bucket,
    keys: &BTreeSet<String>,
) -> Result<BTreeMap<String, Answer>, Answer> {
    let identifier = |key: &String| ObjectIdentifier::builder().key(key).build();
    let identifiers: Result<Vec<_>, _> = keys.iter().map(identifier).collect();
    let delete = Delete::builder()
        .set_objects(Some(identifiers.expect("each has a key")))
        .quiet(true)
        .build()
        .expect("there are objects");
    let request = bucket
        .client
        .delete_objects()
        .bucket(&bucket.name)
        .checksum_algorithm(ChecksumAlgorithm::Crc32)
        .delete(delete);
    let _call = bucket.call().await;
    let output = request.send().await.map_err(|e| Answer::of(&e))?;
    let mut refused = BTreeMap::new();
    for error in output.errors.unwrap_or_default() {
        let code = error.code.unwrap_or_default();
        let answer = Answer {
            status: status(&code),
            text: format!("{code}: {}", error.message.unwrap_or_default()),
            code: Some(code),
        };
        match error.key {
            Some(key) => {
                refused.insert(key, answer);
            }
            // It does not say which one, so none of them counts as deleted.
            None => refused.extend(keys.iter().map(|key| (key.clone(), answer.clone()))),
        }
    }
    Ok(refused)
}

/// The status that an answer about this key alone would have had.
fn status(code: &str) -> Option<u16> {
    match code {
        "AccessDenied" => Some(403),
        "NoSuchKey" | "NoSuchVersion" => Some(404),
        _ => None,
    }
}
