//! Whether the files that are open are still those at their paths. One that was moved or removed can be written to for as
//! long as it is open, and what was acknowledged goes with it.

use std::path::{Path, PathBuf};

use ports::{Error, Kind, Result};
use rusqlite::Connection;

use super::failure::failure;

/// The state file and its log, as they were when they were opened.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    files: Vec<(PathBuf, Identity)>,
}

impl Witness {
    /// Of the file that a connection has just opened.
    pub(super) fn of(connection: &Connection, path: &Path) -> Result<Self> {
        // The log is there from the first read on, until the last connection closes.
        let read =
            connection.query_row("SELECT last FROM versions", [], |row| row.get::<_, i64>(0));
        read.map_err(|error| failure("open state", path, &error))?;
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let files = [path.to_owned(), PathBuf::from(log)].into_iter();
        let files = files.filter_map(|file| Some((identity(&file)?, file)));
        Ok(Self {
            files: files.map(|(known, file)| (file, known)).collect(),
        })
    }

    /// `Unavailable` when a file is not where it was.
    pub(super) fn check(&self, action: &'static str) -> Result<()> {
        for (file, known) in &self.files {
            if identity(file).as_ref() != Some(known) {
                let why = "it was moved, removed or replaced while this program has it open, and nothing is written to what \
                           nobody would find; stop the program, put the files back, and start it again";
                return Err(Error::new(Kind::Unavailable, action, file.display()).because(why));
            }
        }
        Ok(())
    }
}

/// What tells a file from any other.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(file: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;

    let about = std::fs::metadata(file).ok()?;
    Some((about.dev(), about.ino()))
}

/// Where an open file can be neither moved nor removed there is nothing to tell.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}
