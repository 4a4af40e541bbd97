//! An object store that goes wrong as planned.

use std::{fmt, io, sync::Arc};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart, path::Path,
};
use ports::Objects;

use super::{Fault, Faults, Operation};

/// An object store under a plan of faults.
#[derive(Clone, Debug)]
pub struct FaultyObjects {
    inner: Objects,
    faults: Arc<Faults>,
}

impl FaultyObjects {
    /// Puts a store under a plan.
    #[must_use]
    pub fn new(inner: Objects, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

impl fmt::Display for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.inner)
    }
}

fn error(fault: Fault) -> object_store::Error {
    let source = match fault {
        Fault::DiskFull => io::Error::from(io::ErrorKind::StorageFull),
        Fault::Before | Fault::After | Fault::Conflict => {
            io::Error::new(io::ErrorKind::TimedOut, "no answer (injected fault)")
        }
    };
    object_store::Error::Generic {
        store: "faulty",
        source: Box::new(source),
    }
}

#[async_trait]
impl ObjectStore for FaultyObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let work = self.inner.put_opts(location, payload, options);
        self.faults.call(Operation::PutObject, error, work).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let work = self.inner.put_multipart_opts(location, options);
        let inner = self.faults.call(Operation::PutObject, error, work).await?;
        Ok(Box::new(FaultyUpload {
            inner,
            faults: self.faults.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let work = self.inner.get_opts(location, options);
        self.faults.call(Operation::GetObject, error, work).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .and_then(move |location| {
                let store = store.clone();
                async move {
                    let work = store.inner.delete(&location);
                    store
                        .faults
                        .call(Operation::DeleteObject, error, work)
                        .await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listing = async move {
            let work = async { Ok(store.inner.list(prefix.as_ref())) };
            store.faults.call(Operation::ListObjects, error, work).await
        };
        futures::stream::once(listing).try_flatten().boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix, offset) = (self.clone(), prefix.cloned(), offset.clone());
        let listing = async move {
            let work = async { Ok(store.inner.list_with_offset(prefix.as_ref(), &offset)) };
            store.faults.call(Operation::ListObjects, error, work).await
        };
        futures::stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let work = self.inner.list_with_delimiter(prefix);
        self.faults.call(Operation::ListObjects, error, work).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let work = self.inner.copy_opts(from, to, options);
        self.faults.call(Operation::CopyObject, error, work).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let work = self.inner.rename_opts(from, to, options);
        self.faults.call(Operation::CopyObject, error, work).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    faults: Arc<Faults>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (work, faults) = (self.inner.put_part(data), self.faults.clone());
        Box::pin(async move { faults.call(Operation::PutObject, error, work).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.faults
            .call(Operation::PutObject, error, self.inner.complete())
            .await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn objects_without_faults_keep_the_contract() {
        let store = FaultyObjects::new(Arc::new(InMemory::new()), Arc::new(Faults::none()));
        crate::contract::objects(Arc::new(store)).await;
    }

    #[tokio::test]
    async fn a_full_disk_stores_nothing() {
        let faults = Arc::new(Faults::none());
        let store = FaultyObjects::new(Arc::new(InMemory::new()), faults.clone());
        faults.inject(Operation::PutObject, 0, Fault::DiskFull);
        let path = Path::from("a");
        let full = store.put(&path, "x".into()).await.expect_err("injected");
        assert_eq!(ports::Error::from(full).kind, ports::Kind::Unavailable);
        assert!(store.head(&path).await.is_err());
        faults.inject(Operation::PutObject, 0, Fault::After);
        store.put(&path, "x".into()).await.expect_err("injected");
        assert!(store.head(&path).await.is_ok(), "it happened all the same");
    }
}
