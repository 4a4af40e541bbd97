//! Objects as files, durable before they are acknowledged.

mod staging;
mod upload;

use std::{fmt, io, path::Path as FilePath, sync::Arc};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result, local::LocalFileSystem, path::Path,
};
use ports::{Kind, Objects};

use staging::{STAGING, Staging};
pub(crate) use staging::{create_folders, sync_folder};
use upload::Upload;

/// Objects under a folder.
///
/// `object_store`'s own local files, with its writes replaced: an object is written and synced
/// under another name, then renamed, then its folder is synced, and only then acknowledged. So a
/// full disk or a loss of power leaves the old object or the new one, never half of one.
#[derive(Clone, Debug)]
pub struct FileObjects {
    inner: LocalFileSystem,
    staging: Arc<Staging>,
}

impl FileObjects {
    /// Opens the folder, creating it when it does not exist, and removes what writers that died
    /// have left half done.
    ///
    /// # Errors
    /// `Invalid` when it is no folder, `Unavailable` when it cannot be created or read.
    pub fn open(root: &FilePath) -> ports::Result<Objects> {
        let error = |kind| ports::Error::new(kind, "open warehouse", root.display());
        if root.exists() && !root.is_dir() {
            return Err(error(Kind::Invalid).because("it is not a folder"));
        }
        let unavailable = |e: io::Error| error(Kind::Unavailable).because(e);
        create_folders(root).map_err(unavailable)?;
        let root = root.canonicalize().map_err(unavailable)?;
        let staging = Staging::open(&root).map_err(unavailable)?;
        let inner = LocalFileSystem::new_with_prefix(&root)?;
        Ok(Arc::new(Self {
            inner,
            staging: Arc::new(staging),
        }))
    }

    /// Makes the name of an object durable that somebody else's code put there, and its bytes with
    /// it.
    async fn settle(&self, location: &Path) -> Result<()> {
        let file = self.inner.path_to_filesystem(location)?;
        let staging = self.staging.clone();
        blocking(move || staging.settle(&file).map_err(generic)).await
    }
}

impl fmt::Display for FileObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "durable {}", self.inner)
    }
}

/// Runs what waits for the disk where waiting is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|source| Error::JoinError { source })?
}

fn generic(source: io::Error) -> Error {
    Error::Generic {
        store: "file",
        source: Box::new(source),
    }
}

#[async_trait]
impl ObjectStore for FileObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let create = match options.mode {
            PutMode::Overwrite if options.attributes.is_empty() => false,
            PutMode::Create if options.attributes.is_empty() => true,
            // It refuses what files cannot do.
            _ => return self.inner.put_opts(location, payload, options).await,
        };
        let file = self.inner.path_to_filesystem(location)?;
        let (staging, location) = (self.staging.clone(), location.clone());
        blocking(move || {
            let write = || {
                let mut staged = staging.create()?;
                for chunk in &payload {
                    staged.write(chunk)?;
                }
                staging.publish(staged, &file, create)
            };
            write().map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists if create => Error::AlreadyExists {
                    path: location.to_string(),
                    source: source.into(),
                },
                _ => generic(source),
            })?;
            Ok(PutResult {
                e_tag: None,
                version: None,
            })
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !options.attributes.is_empty() {
            return self.inner.put_multipart_opts(location, options).await;
        }
        let file = self.inner.path_to_filesystem(location)?;
        let staging = self.staging.clone();
        let upload = blocking(move || Upload::begin(staging, file).map_err(generic)).await?;
        Ok(Box::new(upload))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listing = self.inner.list_with_delimiter(prefix).await?;
        listing
            .common_prefixes
            .retain(|folder| folder.as_ref() != STAGING);
        Ok(listing)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await?;
        self.settle(to).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await?;
        self.settle(to).await
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    use tempfile::TempDir;

    use super::*;

    fn warehouse() -> (TempDir, Objects) {
        let folder = tempfile::tempdir().expect("a folder");
        let objects = FileObjects::open(&folder.path().join("ware/house")).expect("it opens");
        (folder, objects)
    }

    #[tokio::test]
    async fn file_objects_keep_the_contract() {
        let (_folder, objects) = warehouse();
        testkit::contract::objects(objects).await;
    }

    #[tokio::test]
    async fn memory_objects_keep_the_contract() {
        testkit::contract::objects(Arc::new(crate::MemoryObjects::new())).await;
    }

    #[test]
    fn a_file_is_no_warehouse() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let refused = FileObjects::open(file.path()).expect_err("it is a file");
        assert_eq!(refused.kind, Kind::Invalid);
    }

    #[tokio::test]
    async fn what_a_dead_writer_left_is_removed_and_never_listed() {
        let (folder, objects) = warehouse();
        let root = folder.path().join("ware/house");
        let left = root.join(STAGING).join("dead#0");
        std::fs::write(&left, "half").expect("a file");
        let mut unfinished = objects
            .put_multipart(&Path::from("a"))
            .await
            .expect("it begins");
        unfinished.put_part("x".into()).await.expect("it is taken");
        objects
            .put(&Path::from("b"), "x".into())
            .await
            .expect("it is taken");
        let listed: Vec<_> = objects.list(None).try_collect().await.expect("a listing");
        assert_eq!(listed.len(), 1);
        let top = objects.list_with_delimiter(None).await.expect("a listing");
        assert!(top.common_prefixes.is_empty());
        // Another process opens the same warehouse: the living writer is left alone.
        FileObjects::open(&root).expect("it opens again");
        assert!(!left.exists());
        unfinished.complete().await.expect("it is all there");
    }

    #[tokio::test]
    async fn an_upload_that_misses_a_part_cannot_complete() {
        let (_folder, objects) = warehouse();
        let path = Path::from("a");
        let mut upload = objects.put_multipart(&path).await.expect("it begins");
        upload.put_part("x".into()).await.expect("it is taken");
        drop(upload.put_part("never written".into()));
        upload.complete().await.expect_err("a part is missing");
        assert!(objects.head(&path).await.is_err());
    }
}
