//! Uploads in parts.

use std::{
    io::{self, Seek, SeekFrom, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use super::{
    blocking, generic,
    staging::{Staged, Staging},
};

/// An upload under way: one staged file, written wherever parts belong.
#[derive(Debug)]
pub(super) struct Upload {
    staging: Arc<Staging>,
    name: PathBuf,
    /// Bytes of all parts handed over.
    length: u64,
    progress: Arc<Mutex<Progress>>,
}

#[derive(Debug)]
struct Progress {
    /// None when completed or aborted.
    staged: Option<Staged>,
    /// Bytes of parts that are in the file.
    written: u64,
}

impl Upload {
    pub(super) fn begin(staging: Arc<Staging>, name: PathBuf) -> io::Result<Self> {
        let progress = Progress {
            staged: Some(staging.create()?),
            written: 0,
        };
        Ok(Self {
            staging,
            name,
            length: 0,
            progress: Arc::new(Mutex::new(progress)),
        })
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the upload has ended")
}

impl Progress {
    fn write(&mut self, offset: u64, part: &PutPayload) -> io::Result<()> {
        let file = self.staged.as_mut().ok_or_else(ended)?.file();
        file.seek(SeekFrom::Start(offset))?;
        for chunk in part {
            file.write_all(chunk)?;
        }
        self.written += part.content_length() as u64;
        Ok(())
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        let offset = self.length;
        self.length += part.content_length() as u64;
        let progress = self.progress.clone();
        Box::pin(blocking(move || {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.write(offset, &part).map_err(generic)
        }))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (staging, name, length) = (self.staging.clone(), self.name.clone(), self.length);
        let progress = self.progress.clone();
        blocking(move || {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            let staged = progress.staged.take().ok_or_else(|| generic(ended()))?;
            // A part that failed, or was never awaited, has left a hole: the file is then removed.
            if progress.written != length {
                let because = format!("{} of {length} bytes were written", progress.written);
                return Err(generic(io::Error::new(io::ErrorKind::InvalidData, because)));
            }
            staging.publish(staged, &name, false).map_err(generic)?;
            Ok(PutResult {
                e_tag: None,
                version: None,
            })
        })
        .await
    }

    async fn abort(&mut self) -> Result<()> {
        let progress = self.progress.clone();
        blocking(move || {
            progress
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .staged
                .take();
            Ok(())
        })
        .await
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_disk_is_an_error_and_never_half_an_object() {
        let folder = tempfile::tempdir().expect("a folder");
        let staging = Arc::new(Staging::open(folder.path()).expect("it opens"));
        let name = folder.path().join("object");
        let mut upload = Upload::begin(staging, name.clone()).expect("it begins");
        upload
            .put_part("first".into())
            .await
            .expect("there is room");
        {
            let mut progress = upload
                .progress
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let full = std::fs::File::options()
                .write(true)
                .open("/dev/full")
                .expect("a device");
            *progress.staged.as_mut().expect("it has begun").file() = full;
        }
        let error = ports::Error::from(upload.put_part("second".into()).await.expect_err("full"));
        assert_eq!(error.kind, ports::Kind::Unavailable);
        assert!(error.chain().contains("No space left"), "{}", error.chain());
        upload.complete().await.expect_err("a part is missing");
        assert!(!name.exists());
    }
}
