//! The object of an index: its parts, then a tail.
//!
//! ```text
//! part .. part | hot .. hot | footer as JSON | its length, 4 bytes | digest of the tail so far, 16 bytes | "HWINDEX1"
//!              ^ the tail begins
//! ```
//!
//! `hot` are copies of ranges that every opening reads, or, of vectors, what every search needs.

use std::io;

use bytes::Bytes;
use domain::entry::Metric;
use object_store::{buffered::BufWriter, path::Path};
use ports::{Error, Kind, Objects, Result};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

/// What an index ends with.
const MARK: &[u8; 8] = b"HWINDEX1";
/// Bytes of the tail's digest.
const DIGEST: usize = 16;
/// Bytes of a part that is sent, and how many are on their way at once.
const PART_BYTES: usize = 8 << 20;
const PARTS_MAX: usize = 4;

/// Where an index is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) path: &'a Path,
    /// Its name, for people.
    pub(crate) name: &'a str,
}

/// A range of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl Extent {
    pub(crate) fn end(self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// What is in an index.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Content {
    /// The files of a text index.
    Text {
        files: Vec<(String, Extent)>,
        /// Indexed columns; the field of each is its number.
        columns: Vec<String>,
    },
    /// Vectors.
    Vectors(Vectors),
}

/// The shape of an index of vectors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Vectors {
    pub(crate) metric: Metric,
    /// Numbers of a vector.
    pub(crate) length: usize,
    /// Vectors; rows without one are not counted.
    pub(crate) count: u64,
    /// Cells the vectors are grouped in.
    pub(crate) cells: usize,
    /// Cells that a search looks into at first.
    pub(crate) probes: usize,
}

/// What the tail says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Footer {
    pub(crate) content: Content,
    /// Ranges that are copied at the beginning of the tail, in this order.
    pub(crate) hot: Vec<Extent>,
    /// Bytes of what else precedes the footer in the tail.
    pub(crate) more: u64,
}

/// Writes the object as it comes; it is there only once it is finished.
#[derive(Debug)]
pub(crate) struct Packer {
    sink: BufWriter,
    written: u64,
    name: String,
    /// Where the tail begins, and its digest so far.
    tail: Option<(u64, blake3::Hasher)>,
}

impl Packer {
    pub(crate) fn new(place: Place<'_>) -> Self {
        let (objects, path) = (place.objects.clone(), place.path.clone());
        Self {
            sink: BufWriter::with_capacity(objects, path, PART_BYTES)
                .with_max_concurrency(PARTS_MAX),
            written: 0,
            name: place.name.to_owned(),
            tail: None,
        }
    }

    /// From here on it is the tail.
    pub(crate) fn begin_tail(&mut self) {
        self.tail = Some((self.written, blake3::Hasher::new()));
    }

    pub(crate) async fn put(&mut self, bytes: Bytes) -> Result<()> {
        self.written += bytes.len() as u64;
        if let Some((_, digest)) = &mut self.tail {
            digest.update(&bytes);
        }
        Ok(self.sink.put(bytes).await?)
    }

    /// Ends the object with its footer; answers its length and that of its tail.
    pub(crate) async fn finish(mut self, footer: &Footer) -> Result<(u64, u64)> {
        let mut end = serde_json::to_vec(footer)
            .map_err(|error| Error::new(Kind::Invalid, "write index", &self.name).because(error))?;
        let length = u32::try_from(end.len()).unwrap_or(u32::MAX);
        end.extend_from_slice(&length.to_le_bytes());
        let (tail, mut digest) = self.tail.take().unwrap_or_default();
        digest.update(&end);
        end.extend_from_slice(&digest.finalize().as_bytes()[..DIGEST]);
        end.extend_from_slice(MARK);
        self.put(Bytes::from(end)).await?;
        self.sink.shutdown().await.map_err(|error: io::Error| {
            Error::new(Kind::Unavailable, "write index", &self.name).because(error)
        })?;
        Ok((self.written, self.written - tail))
    }

    /// Gives it up: parts that were sent already go.
    pub(crate) async fn give_up(mut self) {
        // What cannot be undone is what an unfinished upload is to any store.
        let _ = self.sink.abort().await;
    }
}

/// Reads a footer from the end of a tail.
pub(crate) fn footer(name: &str, tail: &[u8]) -> Result<Footer> {
    let corrupt = |why: &str| Error::new(Kind::Corrupt, "open index", name).because(why.to_owned());
    let rest = tail
        .strip_suffix(MARK)
        .ok_or_else(|| corrupt("its last bytes are not those of an index"))?;
    let (rest, digest) = rest
        .split_last_chunk::<DIGEST>()
        .ok_or_else(|| corrupt("it is cut short"))?;
    if blake3::hash(rest).as_bytes()[..DIGEST] != digest[..] {
        return Err(corrupt("its tail is not what was written"));
    }
    let (rest, length) = rest
        .split_last_chunk::<4>()
        .ok_or_else(|| corrupt("it is cut short"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let start = rest
        .len()
        .checked_sub(length)
        .ok_or_else(|| corrupt("its footer is cut short"))?;
    let footer: Footer = serde_json::from_slice(&rest[start..])
        .map_err(|error| Error::new(Kind::Corrupt, "open index", name).because(error))?;
    let hot = footer.hot.iter().map(|extent| extent.length).sum::<u64>();
    match hot.checked_add(footer.more) {
        Some(before) if before == start as u64 => Ok(footer),
        _ => Err(corrupt("its tail is not as long as it says")),
    }
}
