//! Copies, made by S3 itself.

use aws_sdk_s3::types::MetadataDirective;
use object_store::{CopyMode, Error, PutResult, Result, path::Path};

use super::{attributes::with_headers, bucket::Bucket, get, put::settled};
use crate::answer::Answer;

/// Copies an object. S3 takes up to 5 GiB in one copy, far above what a refresh writes.
pub(super) async fn copy(bucket: &Bucket, from: &Path, to: &Path, mode: CopyMode) -> Result<()> {
    match mode {
        CopyMode::Overwrite => overwrite(bucket, from, to).await,
        CopyMode::Create => create(bucket, from, to).await,
    }
}

/// `bucket/key` as the header wants it: every byte escaped but the plain ones.
fn source(bucket: &Bucket, location: &Path) -> String {
    let mut text = String::new();
    for byte in format!("{}/{}", bucket.name, bucket.key(location)).bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

async fn overwrite(bucket: &Bucket, from: &Path, to: &Path) -> Result<()> {
    let request = bucket
        .client
        .copy_object()
        .bucket(&bucket.name)
        .key(bucket.key(to))
        .copy_source(source(bucket, from));
    let _call = bucket.call().await;
    let sent = request.send().await;
    sent.map(|_| ())
        .map_err(|e| bucket.error(from, &Answer::of(&e)))
}

/// Copies when nothing is there. The copy gets an id of its own, so it has to be told what else is said of the object.
async fn create(bucket: &Bucket, from: &Path, to: &Path) -> Result<()> {
    let exists = |why: String| Error::AlreadyExists {
        path: to.to_string(),
        source: format!("{}: {why}", bucket.address(to)).into(),
    };
    // Saves the copy. Who comes between is refused by the condition below, except by emulators that do not know it.
    match get::known(bucket, to).await {
        Ok(_) => return Err(exists("it was there before".to_owned())),
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let write = bucket.patience.id();
    let headers = get::known(bucket, from).await?.headers.written_by(&write);
    let send = || async {
        let request = with_headers!(bucket.client.copy_object(), headers.clone())
            .bucket(&bucket.name)
            .key(bucket.key(to))
            .copy_source(source(bucket, from))
            .metadata_directive(MetadataDirective::Replace)
            .if_none_match("*");
        let _call = bucket.call().await;
        match request.send().await {
            Ok(output) => Ok(PutResult {
                e_tag: output.copy_object_result.and_then(|result| result.e_tag),
                version: output.version_id,
            }),
            Err(error) => Err(Answer::of(&error)),
        }
    };
    match settled(bucket, to, &write, send).await? {
        Ok(_) => Ok(()),
        Err(answer) if answer.status == Some(412) => Err(exists(answer.text)),
        Err(answer) if answer.status == Some(404) => Err(bucket.error(from, &answer)),
        Err(answer) => Err(bucket.error(to, &answer)),
    }
}
