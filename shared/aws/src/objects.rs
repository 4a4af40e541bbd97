//! Objects on S3.
//!
//! `object_store`'s contract over the SDK's own client, so that the configuration, the connector and the retry policy
//! are those of state and queue. S3 acknowledges what is durable, so `put` does too.
//!
//! **Unknown outcomes.** The client repeats a call whose answer was lost; a conditional write that had landed is then
//! refused by itself. Every conditional write and every upload in parts carries a fresh id in the object's metadata, and
//! a refusal is believed only after the object was looked at: with the same id it is a success.
//!
//! **Uploads in parts** that nobody completes are aborted. A process that dies first leaves its parts behind, invisible
//! and billed: give the bucket a lifecycle rule that aborts incomplete uploads after a day.

mod attributes;
mod bucket;
mod copy;
mod delete;
mod get;
mod list;
mod put;
#[cfg(test)]
mod tests;
mod upload;

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use aws_sdk_s3::presigning::PresigningConfig;
use domain::Duration;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};
use ports::{
    Chance, Clock, Kind,
    entries::{Address, Sign},
};

use crate::{answer::Answer, patience::Patience};
use bucket::Bucket;

/// Calls under way at one time, unless told otherwise.
const CALLS_MAX: usize = 64;
/// Most bytes that S3 takes in one request.
const PUT_MAX: u64 = 5 << 30;

/// Objects of a bucket, or under a folder of it.
#[derive(Clone, Debug)]
pub struct S3Objects {
    bucket: Arc<Bucket>,
}

impl S3Objects {
    /// Objects under `prefix` of a bucket.
    pub fn new(
        client: aws_sdk_s3::Client,
        bucket: impl Into<String>,
        prefix: Path,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Self {
        let patience = Patience::new(clock, chance);
        let bucket = Bucket::new(client, bucket.into(), prefix, patience, CALLS_MAX);
        Self {
            bucket: Arc::new(bucket),
        }
    }

    /// Objects at `s3://bucket` or `s3://bucket/prefix`.
    ///
    /// # Errors
    /// `Invalid` when the text is no such address.
    pub fn from_url(
        client: aws_sdk_s3::Client,
        url: &str,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> ports::Result<Self> {
        let invalid =
            |why: String| ports::Error::new(Kind::Invalid, "open warehouse", url).because(why);
        let place = url
            .strip_prefix("s3://")
            .ok_or_else(|| invalid("write `s3://bucket/prefix`".to_owned()))?;
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(invalid(
                "it names no bucket: write `s3://bucket/prefix`".to_owned(),
            ));
        }
        let prefix = Path::parse(prefix).map_err(|e| invalid(e.to_string()))?;
        Ok(Self::new(client, bucket, prefix, clock, chance))
    }

    /// The same with another bound on calls under way.
    #[must_use]
    pub fn with_calls_max(self, calls_max: usize) -> Self {
        Self {
            bucket: Arc::new(self.bucket.with_calls_max(calls_max)),
        }
    }

    /// An address from which anybody can read an object until it expires. It is made without asking S3, so the object
    /// need not exist.
    ///
    /// # Errors
    /// `Invalid` when it would be good for more than seven days, `Unavailable` when there are no credentials to sign with.
    pub async fn presign(&self, location: &Path, expires: Duration) -> ports::Result<String> {
        let request = self.bucket.client.get_object();
        let signed = request
            .bucket(&self.bucket.name)
            .key(self.bucket.key(location))
            .presigned(self.signing(location, expires)?)
            .await
            .map_err(|e| unsigned(Kind::Unavailable, location).because(Answer::of(&e).text))?;
        Ok(signed.uri().to_owned())
    }

    /// An address to which anybody can send an object of exactly `bytes` bytes, in one request that begins before the
    /// address expires. Length and `If-None-Match: *` are signed with it, so S3 refuses other lengths, and whoever comes
    /// when the object is there.
    ///
    /// # Errors
    /// `TooLarge` above 5 GiB; else as [`S3Objects::presign`].
    pub async fn presign_upload(
        &self,
        location: &Path,
        bytes: u64,
        expires: Duration,
    ) -> ports::Result<Address> {
        let too_large =
            || unsigned(Kind::TooLarge, location).because("S3 takes at most 5 GiB in one request");
        let length = i64::try_from(bytes).map_err(|_| too_large())?;
        if bytes > PUT_MAX {
            return Err(too_large());
        }
        let request = self.bucket.client.put_object();
        let signed = request
            .bucket(&self.bucket.name)
            .key(self.bucket.key(location))
            .content_length(length)
            .if_none_match("*")
            .presigned(self.signing(location, expires)?)
            .await
            .map_err(|e| unsigned(Kind::Unavailable, location).because(Answer::of(&e).text))?;
        let href = signed.uri().to_owned();
        let headers = of_signature(&href, signed.headers());
        Ok(Address { href, headers })
    }

    /// How addresses are signed that are good from now on.
    fn signing(&self, location: &Path, expires: Duration) -> ports::Result<PresigningConfig> {
        let micros = u64::try_from(self.bucket.patience.now().0).unwrap_or(0);
        let now: SystemTime = UNIX_EPOCH + Duration::from_micros(micros);
        PresigningConfig::builder()
            .start_time(now)
            .expires_in(expires)
            .build()
            .map_err(|e| unsigned(Kind::Invalid, location).because(e))
    }
}

/// The headers that an address is signed with. In a function the client gives requests the id of its trace too, which is nothing
/// to the sender, and which a browser would have to be allowed.
fn of_signature<'a>(
    href: &str,
    headers: impl Iterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, String> {
    let names = href.split(['?', '&']).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        (name == "X-Amz-SignedHeaders").then(|| value.replace("%3B", ";"))
    });
    let names = names.unwrap_or_default();
    let owned = |(name, value): (&str, &str)| (name.to_lowercase(), value.to_owned());
    let is_signed = |(name, _): &(String, String)| names.split(';').any(|signed| signed == name);
    headers.map(owned).filter(is_signed).collect()
}

fn unsigned(kind: Kind, subject: impl fmt::Display) -> ports::Error {
    ports::Error::new(kind, "sign an address for", subject)
}

fn location(path: &str) -> ports::Result<Path> {
    Path::parse(path).map_err(|error| unsigned(Kind::Invalid, path).because(error))
}

#[async_trait]
impl Sign for S3Objects {
    async fn sign(&self, path: &str, life: Duration) -> ports::Result<String> {
        self.presign(&location(path)?, life).await
    }

    async fn sign_upload(&self, path: &str, bytes: u64, life: Duration) -> ports::Result<Address> {
        self.presign_upload(&location(path)?, bytes, life).await
    }
}

impl fmt::Display for S3Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bucket.address(&Path::default()))
    }
}

/// `get_ranges` is the trait's own: it joins ranges less than a megabyte apart and reads ten at a time. So is `rename_opts`:
/// S3 has no rename, only a copy and a delete.
#[async_trait]
impl ObjectStore for S3Objects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        put::put(&self.bucket, location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = upload::begin(self.bucket.clone(), location.clone(), options).await?;
        Ok(Box::new(upload))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        get::get(self.bucket.clone(), location.clone(), options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        delete::delete(self.bucket.clone(), locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self.bucket.clone(), prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self.bucket.clone(), prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        list::folder(self.bucket.clone(), prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        copy::copy(&self.bucket, from, to, options.mode).await
    }
}
