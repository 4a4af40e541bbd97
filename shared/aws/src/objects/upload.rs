//! Uploads in parts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart};
use futures::FutureExt;
use object_store::{
    MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result, UploadPart, path::Path,
};
use tokio::runtime::Handle;

use super::{
    attributes::{Headers, with_headers},
    bucket::Bucket,
    put::{joined, settled},
};
use crate::answer::Answer;

/// Most parts of one upload.
const PARTS_MAX: i32 = 10_000;

/// An upload under way.
#[derive(Debug)]
pub(super) struct Upload {
    shared: Arc<Shared>,
    /// Parts handed over so far.
    parts: i32,
}

/// What the upload and its parts under way share. The last of them that goes aborts what was not completed: a part that
/// lands after an abort would stay for ever.
#[derive(Debug)]
struct Shared {
    bucket: Arc<Bucket>,
    location: Path,
    /// S3's name of the upload.
    id: String,
    /// The id of this write, in the metadata of the object to be.
    write: String,
    runtime: Handle,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    stored: BTreeMap<i32, CompletedPart>,
    end: Option<End>,
}

#[derive(Clone, Debug)]
enum End {
    Completed(PutResult),
    Aborted {
        /// Whether nothing was under way any more.
        for_good: bool,
    },
}

/// Begins an upload. When the answer to this is lost, the bucket's lifecycle rule removes what S3 began.
pub(super) async fn begin(
    bucket: Arc<Bucket>,
    location: Path,
    options: PutMultipartOptions,
) -> Result<Upload> {
    let write = bucket.patience.id();
    let headers = Headers::of(&options.attributes)?.written_by(&write);
    let tags = options.tags.encoded();
    let request = with_headers!(bucket.client.create_multipart_upload(), headers)
        .bucket(&bucket.name)
        .key(bucket.key(&location))
        .set_tagging((!tags.is_empty()).then(|| tags.to_owned()))
        .checksum_algorithm(ChecksumAlgorithm::Crc32);
    let begun = {
        let _call = bucket.call().await;
        request.send().await
    };
    let begun = begun.map_err(|e| bucket.error(&location, &Answer::of(&e)))?;
    let id = begun
        .upload_id
        .ok_or_else(|| bucket.generic(&location, "the answer names no upload"))?;
    let shared = Shared {
        bucket,
        location,
        id,
        write,
        runtime: Handle::current(),
        progress: Mutex::default(),
    };
    Ok(Upload {
        shared: Arc::new(shared),
        parts: 0,
    })
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, why: impl std::fmt::Display) -> object_store::Error {
        self.bucket.generic(&self.location, why)
    }

    async fn store(&self, number: i32, payload: PutPayload) -> Result<()> {
        if number > PARTS_MAX {
            return Err(self.failed(format!("more than {PARTS_MAX} parts: send larger ones")));
        }
        let request = self
            .bucket
            .client
            .upload_part()
            .bucket(&self.bucket.name)
            .key(self.bucket.key(&self.location))
            .upload_id(&self.id)
            .part_number(number)
            .checksum_algorithm(ChecksumAlgorithm::Crc32)
            .body(joined(payload).into());
        let stored = {
            let _call = self.bucket.call().await;
            request.send().await
        };
        let stored = stored.map_err(|e| self.bucket.error(&self.location, &Answer::of(&e)))?;
        let part = CompletedPart::builder()
            .part_number(number)
            .set_e_tag(stored.e_tag)
            .set_checksum_crc32(stored.checksum_crc32)
            .build();
        self.progress().stored.insert(number, part);
        Ok(())
    }

    async fn complete(&self, parts: Vec<CompletedPart>) -> Result<PutResult, Answer> {
        let all = CompletedMultipartUpload::builder()
            .set_parts(Some(parts))
            .build();
        let request = self
            .bucket
            .client
            .complete_multipart_upload()
            .bucket(&self.bucket.name)
            .key(self.bucket.key(&self.location))
            .upload_id(&self.id)
            .multipart_upload(all);
        let _call = self.bucket.call().await;
        match request.send().await {
            Ok(output) => Ok(PutResult {
                e_tag: output.e_tag,
                version: output.version_id,
            }),
            Err(error) => Err(Answer::of(&error)),
        }
    }
}

/// Aborts an upload; one that S3 does not know any more is aborted already.
async fn abort(bucket: &Bucket, location: &Path, id: &str) -> Result<()> {
    let request = bucket
        .client
        .abort_multipart_upload()
        .bucket(&bucket.name)
        .key(bucket.key(location))
        .upload_id(id);
    let _call = bucket.call().await;
    match request.send().await.map_err(|e| Answer::of(&e)) {
        Err(answer) if answer.status != Some(404) => Err(bucket.error(location, &answer)),
        _ => Ok(()),
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let progress = self.progress.get_mut();
        let end = &progress.unwrap_or_else(PoisonError::into_inner).end;
        if matches!(
            end,
            Some(End::Completed(_) | End::Aborted { for_good: true })
        ) {
            return;
        }
        let (bucket, location) = (self.bucket.clone(), self.location.clone());
        let id = std::mem::take(&mut self.id);
        self.runtime.spawn(async move {
            if let Err(error) = abort(&bucket, &location, &id).await {
                let object = bucket.address(&location);
                let error = ports::error::chain(&error);
                tracing::warn!(
                    object,
                    upload = id,
                    error,
                    "parts of an abandoned upload are left to the bucket's lifecycle rule"
                );
            }
        });
    }
}

impl Upload {
    /// The parts in order.
    fn stored(&self) -> Result<Vec<CompletedPart>> {
        let stored = self.shared.progress().stored.clone();
        match (1..=self.parts).find(|number| !stored.contains_key(number)) {
            Some(number) => Err(self
                .shared
                .failed(format!("part {number} of {} is not there", self.parts))),
            None => Ok(stored.into_values().collect()),
        }
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        self.parts += 1;
        let (number, shared) = (self.parts, self.shared.clone());
        async move { shared.store(number, payload).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let end = self.shared.progress().end.clone();
        match end {
            Some(End::Completed(result)) => return Ok(result),
            Some(End::Aborted { .. }) => return Err(self.shared.failed("the upload was aborted")),
            None => {}
        }
        if self.parts == 0 {
            // S3 completes no upload without parts.
            self.put_part(PutPayload::new()).await?;
        }
        let parts = match self.stored() {
            Ok(parts) => parts,
            Err(error) => {
                self.give_up().await;
                return Err(error);
            }
        };
        let shared = &self.shared;
        let send = || shared.complete(parts.clone());
        let (bucket, location) = (&shared.bucket, &shared.location);
        match settled(bucket, location, &shared.write, send).await? {
            Ok(result) => {
                shared.progress().end = Some(End::Completed(result.clone()));
                Ok(result)
            }
            Err(answer) => {
                let error = bucket.error(location, &answer);
                // Otherwise it may be completing now, and the caller may ask again.
                if !answer.is_unsure() {
                    self.give_up().await;
                }
                Err(error)
            }
        }
    }

    async fn abort(&mut self) -> Result<()> {
        let shared = &self.shared;
        if matches!(shared.progress().end, Some(End::Completed(_))) {
            return Err(shared.failed("the upload is complete"));
        }
        let for_good = Arc::strong_count(shared) == 1;
        abort(&shared.bucket, &shared.location, &shared.id).await?;
        shared.progress().end = Some(End::Aborted { for_good });
        Ok(())
    }
}

impl Upload {
    /// Aborts after a failure, which says more than a failure to abort; dropping tries again.
    async fn give_up(&mut self) {
        if let Err(error) = self.abort().await {
            tracing::debug!(
                error = ports::error::chain(&error),
                "could not abort an upload yet"
            );
        }
    }
}
