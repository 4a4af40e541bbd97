//! The real input: webhook payloads and flights, kept outside the repository.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

/// The folder of real input, from `HEADWATER_DATA` or its usual place beside the repository.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    crate::folder_of("HEADWATER_DATA", "../shared/data")
}

/// The first member of a zip archive, unpacked. Enough for archives of one file without encryption.
///
/// # Errors
/// When the file is no such archive.
pub fn unzip(path: &Path) -> Result<Vec<u8>> {
    let archive = fs::read(path).with_context(|| path.display().to_string())?;
    let two = |at: usize| {
        archive
            .get(at..at + 2)
            .map(|b| usize::from(b[0]) | usize::from(b[1]) << 8)
    };
    let four = |at: usize| Some(two(at)? | two(at + 2)? << 16);
    // The central directory's first entry: its sizes hold where the local header's may be zero.
    let end = archive
        .windows(4)
        .rposition(|w| w == b"PK\x05\x06")
        .context("no end of central directory")?;
    let entry = four(end + 16).context("cut short")?;
    ensure!(
        archive.get(entry..entry + 4) == Some(b"PK\x01\x02".as_slice()),
        "no central directory entry"
    );
    let method = two(entry + 10).context("cut short")?;
    let packed = four(entry + 20).context("cut short")?;
    let size = four(entry + 24).context("cut short")?;
    let local = four(entry + 42).context("cut short")?;
    let start = local
        + 30
        + two(local + 26).context("cut short")?
        + two(local + 28).context("cut short")?;
    let body = archive.get(start..start + packed).context("cut short")?;
    let mut out = Vec::with_capacity(size);
    match method {
        0 => out.extend_from_slice(body),
        8 => {
            flate2::read::DeflateDecoder::new(body).read_to_end(&mut out)?;
        }
        other => bail!("compression method {other}"),
    }
    ensure!(out.len() == size, "{} bytes instead of {size}", out.len());
    Ok(out)
}
