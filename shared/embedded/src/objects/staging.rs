//! Files under names nobody lists, until they are whole and synced.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Folder in the warehouse where objects are written.
pub(super) const STAGING: &str = ".staging";
/// Ends every name in it: a file with a number behind `#` is no object for the local store.
const SUFFIX: &str = "#0";
/// Folders remembered as durable before the memory is emptied.
const FOLDERS_MAX: usize = 100_000;

/// Where objects are written before they have their name.
#[derive(Debug)]
pub(super) struct Staging {
    folder: PathBuf,
    root: PathBuf,
    /// Folders whose own names are on disk already.
    durable: Mutex<HashSet<PathBuf>>,
}

/// A file being written. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct Staged {
    path: PathBuf,
    file: File,
    published: bool,
}

impl Staging {
    /// Creates the folder, and removes from it what no living process writes any more.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let staging = Self::at(root.join(STAGING), root);
        std::fs::create_dir_all(&staging.folder)?;
        for entry in std::fs::read_dir(&staging.folder)? {
            remove_if_dead(&entry?.path());
        }
        Ok(staging)
    }

    /// Writes go to `folder`, to be renamed to names under `root`.
    pub(super) fn at(folder: PathBuf, root: &Path) -> Self {
        Self {
            folder,
            root: root.to_owned(),
            durable: Mutex::default(),
        }
    }

    /// A new file to write to.
    pub(super) fn create(&self) -> io::Result<Staged> {
        loop {
            let name = format!("{}{SUFFIX}", uuid::Uuid::now_v7());
            let path = self.folder.join(name);
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.folder.exists() => {
                    std::fs::create_dir_all(&self.folder)?;
                    continue;
                }
                opened => opened?,
            };
            // The lock says that its writer lives. Where there are no locks, nobody else removes it
            // either.
            match file.lock() {
                Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
                _ => {}
            }
            let staged = Staged {
                path,
                file,
                published: false,
            };
            // Who cleans up may have come between the creation and the lock.
            if staged.path.exists() {
                return Ok(staged);
            }
        }
    }

    /// Syncs a file and gives it its name; `create` refuses a name that is taken with
    /// `AlreadyExists`.
    pub(super) fn publish(&self, mut staged: Staged, name: &Path, create: bool) -> io::Result<()> {
        staged.file.sync_all()?;
        let folder = parent(name)?;
        self.ensure(folder)?;
        if create {
            // A link, unlike a rename, never replaces; the first name goes when `staged` is
            // dropped.
            std::fs::hard_link(&staged.path, name)?;
        } else {
            std::fs::rename(&staged.path, name)?;
            staged.published = true;
        }
        sync_folder(folder)
    }

    /// Syncs a file that is in its place already.
    pub(super) fn settle(&self, name: &Path) -> io::Result<()> {
        File::open(name)?.sync_all()?;
        let folder = parent(name)?;
        self.ensure(folder)?;
        sync_folder(folder)
    }

    /// Makes sure that a folder is there, and every folder above it up to the root, on disk.
    fn ensure(&self, folder: &Path) -> io::Result<()> {
        let known = || self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(folder) && folder.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(folder)?;
        for above in folder
            .ancestors()
            .skip(1)
            .take_while(|above| above.starts_with(&self.root))
        {
            sync_folder(above)?;
        }
        let mut known = known();
        if known.len() >= FOLDERS_MAX {
            known.clear();
        }
        known.insert(folder.to_owned());
        Ok(())
    }
}

impl Staged {
    /// Appends.
    pub(super) fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.file.write_all(chunk)
    }

    /// The file, to be written out of order.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            // Left there it costs space until the warehouse is opened again, no more.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn remove_if_dead(path: &Path) {
    let removed = File::open(path).and_then(|file| match file.try_lock() {
        Ok(()) => std::fs::remove_file(path),
        Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    });
    if let Err(error) = removed {
        tracing::debug!(path = %path.display(), %error, "a half-written object stays");
    }
}

fn parent(name: &Path) -> io::Result<&Path> {
    name.parent()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Creates a folder and those above it that are missing, durably.
pub(crate) fn create_folders(folder: &Path) -> io::Result<()> {
    let named = |above: &&Path| !above.as_os_str().is_empty();
    let missing: Vec<&Path> = folder
        .ancestors()
        .filter(named)
        .take_while(|above| !above.exists())
        .collect();
    std::fs::create_dir_all(folder)?;
    for made in missing {
        let above = made.parent().filter(named).unwrap_or(Path::new("."));
        sync_folder(above)?;
    }
    Ok(())
}

/// Makes names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    // Only Unix lets a folder be opened and synced; elsewhere the file system answers for it.
    if cfg!(unix) {
        File::open(folder)?.sync_all()
    } else {
        Ok(())
    }
}
