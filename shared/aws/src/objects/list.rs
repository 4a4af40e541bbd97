//! Listings, a page at a time.

use std::sync::Arc;

use aws_sdk_s3::{operation::list_objects_v2::ListObjectsV2Output, types::Object};
use futures::{Stream, StreamExt, TryStreamExt, stream, stream::BoxStream};
use object_store::{ListResult, ObjectMeta, Result, path::Path};

use super::{attributes::moment, bucket::Bucket};
use crate::answer::Answer;

/// What is listed.
struct Listing {
    bucket: Arc<Bucket>,
    folder: Path,
    /// The key after which it starts.
    offset: Option<String>,
    delimiter: Option<&'static str>,
}

impl Listing {
    async fn page(&self, token: Option<String>) -> Result<ListObjectsV2Output> {
        let bucket = &self.bucket;
        let request = bucket
            .client
            .list_objects_v2()
            .bucket(&bucket.name)
            .prefix(bucket.folder(Some(&self.folder)))
            .set_start_after(self.offset.clone())
            .set_delimiter(self.delimiter.map(str::to_owned))
            .set_continuation_token(token);
        let _call = bucket.call().await;
        let page = request.send().await;
        page.map_err(|e| bucket.error(&self.folder, &Answer::of(&e)))
    }

    fn pages(self) -> impl Stream<Item = Result<ListObjectsV2Output>> + Send + 'static {
        let first = Some(None);
        stream::try_unfold((self, first), |(listing, next)| async move {
            let Some(token) = next else { return Ok(None) };
            let page = listing.page(token).await?;
            let more = page.is_truncated.unwrap_or(false);
            let token = page.next_continuation_token.clone();
            if more && token.is_none() {
                let why = "the listing goes on but does not say where";
                return Err(listing.bucket.generic(&listing.folder, why));
            }
            let next = more.then_some(token);
            Ok(Some((page, (listing, next))))
        })
    }
}

pub(super) fn list(
    bucket: Arc<Bucket>,
    folder: Option<&Path>,
    offset: Option<&Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let listing = Listing {
        folder: folder.cloned().unwrap_or_default(),
        offset: offset.map(|offset| bucket.key(offset)),
        delimiter: None,
        bucket: bucket.clone(),
    };
    let objects = move |page: ListObjectsV2Output| {
        let bucket = bucket.clone();
        let found = page.contents.unwrap_or_default().into_iter();
        stream::iter(found.filter_map(move |object| named(&bucket, object).transpose()))
    };
    listing.pages().map_ok(objects).try_flatten().boxed()
}

/// The objects and folders directly in a folder.
pub(super) async fn folder(bucket: Arc<Bucket>, folder: Option<&Path>) -> Result<ListResult> {
    let listing = Listing {
        folder: folder.cloned().unwrap_or_default(),
        offset: None,
        delimiter: Some("/"),
        bucket: bucket.clone(),
    };
    let mut result = ListResult {
        common_prefixes: Vec::new(),
        objects: Vec::new(),
    };
    let mut pages = std::pin::pin!(listing.pages());
    while let Some(page) = pages.try_next().await? {
        for object in page.contents.unwrap_or_default() {
            result.objects.extend(named(&bucket, object)?);
        }
        for prefix in page.common_prefixes.unwrap_or_default() {
            let key = prefix.prefix.unwrap_or_default();
            match bucket.location(key.trim_end_matches('/')) {
                Some(path) => result.common_prefixes.push(path),
                None => tracing::warn!(
                    bucket = bucket.name,
                    key,
                    "a folder that no path can name is left out"
                ),
            }
        }
    }
    Ok(result)
}

/// A listed object in the port's words; none, with a warning, when no path names it.
fn named(bucket: &Bucket, object: Object) -> Result<Option<ObjectMeta>> {
    let key = object.key.unwrap_or_default();
    let size = object.size.and_then(|size| u64::try_from(size).ok());
    let Some(location) = bucket.location(&key) else {
        // Consoles make empty objects that stand for folders.
        if !(key.ends_with('/') && size == Some(0)) {
            tracing::warn!(
                bucket = bucket.name,
                key,
                "an object that no path can name is left out"
            );
        }
        return Ok(None);
    };
    let lacks = |what| bucket.generic(&location, format!("the listing has no {what} of it"));
    Ok(Some(ObjectMeta {
        last_modified: moment(object.last_modified).ok_or_else(|| lacks("time"))?,
        size: size.ok_or_else(|| lacks("size"))?,
        e_tag: object.e_tag,
        version: None,
        location,
    }))
}
