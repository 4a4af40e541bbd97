//! A project in a temporary folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::case::ModelText;

/// A project that goes away with its value.
#[derive(Debug)]
pub struct Folder {
    dir: TempDir,
}

impl Folder {
    /// A project with these settings and files (path relative to the project, text).
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(settings: &str, files: &[(String, String)]) -> Result<Self> {
        let folder = Self {
            dir: tempfile::tempdir()?,
        };
        folder.write("headwater.yml", settings)?;
        for (path, text) in files {
            folder.write(path, text)?;
        }
        Ok(folder)
    }

    /// A project with these settings and models.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn with_models(settings: &str, models: &[ModelText]) -> Result<Self> {
        Self::new(
            settings,
            &models.iter().map(ModelText::file).collect::<Vec<_>>(),
        )
    }

    /// A copy of an example of the repository.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn of_example(name: &str) -> Result<Self> {
        let folder = Self {
            dir: tempfile::tempdir()?,
        };
        copy(&crate::root().join("examples").join(name), folder.path())?;
        Ok(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes one file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
