//! An object store that counts.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
    path::Path,
};
use ports::Objects;

use crate::lock::lock;

/// What an object store was asked. Parts of uploads count as puts, each range read as a get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Puts, parts, and begins and ends of uploads in parts.
    pub puts: u64,
    /// Reads of an object or a range of one.
    pub gets: u64,
    /// Looks at what is known of an object.
    pub heads: u64,
    /// Listings, whatever their length.
    pub lists: u64,
    /// Objects deleted.
    pub deletes: u64,
    /// Copies and renames.
    pub copies: u64,
    /// Bytes put.
    pub bytes_put: u64,
    /// Bytes of the ranges read.
    pub bytes_got: u64,
}

impl ObjectCounts {
    /// Calls of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.puts + self.gets + self.heads + self.lists + self.deletes + self.copies
    }
}

type Counts = Arc<Mutex<ObjectCounts>>;

/// An object store that counts what it is asked.
#[derive(Clone, Debug)]
pub struct CountedObjects {
    inner: Objects,
    counts: Counts,
}

impl CountedObjects {
    /// Counts from zero.
    #[must_use]
    pub fn new(inner: Objects) -> Self {
        Self {
            inner,
            counts: Counts::default(),
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn counts(&self) -> ObjectCounts {
        *lock(&self.counts)
    }

    /// Counts since the last call of this.
    pub fn take(&self) -> ObjectCounts {
        std::mem::take(&mut lock(&self.counts))
    }
}

fn count_put(counts: &Counts, bytes: usize) {
    let mut counts = lock(counts);
    counts.puts += 1;
    counts.bytes_put += bytes as u64;
}

impl fmt::Display for CountedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counted {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CountedObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        count_put(&self.counts, payload.content_length());
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        count_put(&self.counts, 0);
        let inner = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(CountedUpload {
            inner,
            counts: self.counts.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        let result = self.inner.get_opts(location, options).await;
        let mut counts = lock(&self.counts);
        if head {
            counts.heads += 1;
        } else {
            counts.gets += 1;
            counts.bytes_got += result.as_ref().map_or(0, |r| r.range.end - r.range.start);
        }
        result
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let counts = self.counts.clone();
        let counted = locations.inspect(move |_| lock(&counts).deletes += 1);
        self.inner.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        lock(&self.counts).lists += 1;
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        lock(&self.counts).lists += 1;
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        lock(&self.counts).lists += 1;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        lock(&self.counts).copies += 1;
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        lock(&self.counts).copies += 1;
        self.inner.rename_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct CountedUpload {
    inner: Box<dyn MultipartUpload>,
    counts: Counts,
}

#[async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        count_put(&self.counts, data.content_length());
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        count_put(&self.counts, 0);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::{ObjectStoreExt, memory::InMemory};

    use super::*;

    #[tokio::test]
    async fn requests_and_bytes_are_counted() -> Result<()> {
        let store = CountedObjects::new(Arc::new(InMemory::new()));
        let path = Path::from("a/b");
        store.put(&path, "hello".into()).await?;
        store.get(&path).await?.bytes().await?;
        store.get_range(&path, 1..3).await?;
        store.head(&path).await?;
        store.list(None).try_collect::<Vec<_>>().await?;
        store.copy(&path, &Path::from("c")).await?;
        store.delete(&path).await?;
        let expected = ObjectCounts {
            puts: 1,
            gets: 2,
            heads: 1,
            lists: 1,
            deletes: 1,
            copies: 1,
            bytes_put: 5,
            bytes_got: 7,
        };
        assert_eq!(store.take(), expected);
        assert_eq!(expected.requests(), 7);
        assert_eq!(store.counts(), ObjectCounts::default());
        Ok(())
    }

    #[tokio::test]
    async fn counted_objects_keep_the_contract() {
        crate::contract::objects(Arc::new(CountedObjects::new(Arc::new(InMemory::new())))).await;
    }
}
