//! Ranges of the object of an index: from its tail, from the cache, or else with as few requests as can be.

use std::{collections::BTreeMap, io, ops::Range, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStoreExt, path::Path};
use ports::{Error, Kind, Objects, Result, search::IndexFile};
use tokio::runtime::Handle;

use crate::{
    bundle::{self, Extent, Footer},
    cache::{Cache, Piece},
};

/// Bytes that are read and kept together where a reader asks for small ranges.
const BLOCK: u64 = 64 << 10;
/// Most bytes of one request, and requests at once.
const REQUEST_MAX: u64 = 8 << 20;
const REQUESTS_AT_ONCE: usize = 32;

/// An open object.
#[derive(Debug)]
pub(crate) struct Source {
    objects: Objects,
    path: Path,
    number: u64,
    bytes: u64,
    cache: Arc<Cache>,
    /// For readers that cannot wait in an async way.
    runtime: Handle,
    tail: Piece,
    /// Ranges whose bytes are in the tail, and where there.
    hot: Vec<(Extent, usize)>,
}

impl Source {
    /// Opens an index with one request.
    pub(crate) async fn open(
        objects: &Objects,
        path: Path,
        index: &IndexFile,
        cache: &Arc<Cache>,
    ) -> Result<(Self, Footer)> {
        let start = index.bytes.saturating_sub(index.tail);
        let tail = objects.get_range(&path, start..index.bytes).await?;
        if tail.len() as u64 != index.tail {
            return Err(Error::new(Kind::Corrupt, "open index", &index.name)
                .because("it is shorter than it was written"));
        }
        let footer = bundle::footer(&index.name, &tail)?;
        let mut at = 0;
        let mut hot = Vec::with_capacity(footer.hot.len());
        for extent in &footer.hot {
            hot.push((*extent, at));
            at += usize::try_from(extent.length).unwrap_or(usize::MAX);
        }
        let source = Self {
            objects: objects.clone(),
            number: cache.object(&path),
            path,
            bytes: start,
            cache: cache.clone(),
            runtime: Handle::current(),
            tail: Piece::from(&tail[..]),
            hot,
        };
        Ok((source, footer))
    }

    /// The tail, whose beginning are the hot ranges.
    pub(crate) fn tail(&self) -> &Piece {
        &self.tail
    }

    /// Bytes before the tail.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the range is of, for errors.
    pub(crate) fn corrupt(&self, why: impl Into<String>) -> Error {
        let name = self.path.filename().unwrap_or("index");
        Error::new(Kind::Corrupt, "read index", name).because(why.into())
    }

    /// A range, for a thread that may block: where in which bytes.
    pub(crate) fn read(&self, range: Range<u64>) -> io::Result<(Piece, Range<usize>)> {
        if range.end > self.bytes || range.start > range.end {
            let error = self.corrupt("a range beyond its end is asked for");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error));
        }
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if let Some(at) = self.hot_at(&range) {
            return Ok((self.tail.clone(), at..at + length));
        }
        let blocks = self
            .runtime
            .block_on(self.blocks(std::slice::from_ref(&range)));
        let blocks = blocks.map_err(io::Error::other)?;
        if let [(first, only)] = blocks.iter().collect::<Vec<_>>()[..] {
            let at = usize::try_from(range.start - first).unwrap_or(usize::MAX);
            return Ok((only.clone(), at..at + length));
        }
        let mut whole = vec![0; length];
        copy(&blocks, range.start, &mut whole);
        Ok((Piece::from(whole), 0..length))
    }

    fn hot_at(&self, range: &Range<u64>) -> Option<usize> {
        let within = |(extent, _): &&(Extent, usize)| {
            extent.start <= range.start && range.end <= extent.end()
        };
        let (extent, at) = self.hot.iter().find(within)?;
        Some(at + usize::try_from(range.start - extent.start).ok()?)
    }

    /// The blocks that cover some ranges, by where they begin.
    pub(crate) async fn blocks(&self, ranges: &[Range<u64>]) -> Result<BTreeMap<u64, Piece>> {
        let mut found = BTreeMap::new();
        let mut missing: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            let mut start = range.start / BLOCK * BLOCK;
            while start < range.end {
                let end = (start + BLOCK).min(self.bytes);
                let seen =
                    found.contains_key(&start) || missing.iter().rev().any(|m| m.contains(&start));
                if !seen {
                    match self.cache.get((self.number, start, end - start)) {
                        Some(piece) => {
                            found.insert(start, piece);
                        }
                        None => match missing.last_mut() {
                            Some(last) if last.end == start && end - last.start <= REQUEST_MAX => {
                                last.end = end;
                            }
                            _ => missing.push(start..end),
                        },
                    }
                }
                start += BLOCK;
            }
        }
        let read = stream::iter(missing.into_iter().map(|range| self.fetch(range)))
            .buffer_unordered(REQUESTS_AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        for (start, bytes) in read {
            for (at, block) in (start..).step_by(64 << 10).zip(bytes.chunks(64 << 10)) {
                let piece = Piece::from(block);
                self.cache
                    .put((self.number, at, piece.len() as u64), &piece);
                found.insert(at, piece);
            }
        }
        Ok(found)
    }

    /// Ranges as they are, each read and kept whole.
    pub(crate) async fn extents(&self, extents: &[Extent]) -> Result<Vec<Piece>> {
        let one = |extent: Extent| async move {
            let key = (self.number, extent.start, extent.length);
            if let Some(piece) = self.cache.get(key) {
                return Ok::<Piece, Error>(piece);
            }
            let (_, bytes) = self.fetch(extent.start..extent.end()).await?;
            let piece = Piece::from(&bytes[..]);
            self.cache.put(key, &piece);
            Ok(piece)
        };
        stream::iter(extents.iter().copied().map(one))
            .buffered(REQUESTS_AT_ONCE)
            .try_collect()
            .await
    }

    async fn fetch(&self, range: Range<u64>) -> Result<(u64, bytes::Bytes)> {
        let bytes = self.objects.get_range(&self.path, range.clone()).await?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok((range.start, bytes)),
            false => Err(self.corrupt("it is shorter than it was written")),
        }
    }
}

/// Copies what begins at `start` out of the blocks that hold it.
pub(crate) fn copy(blocks: &BTreeMap<u64, Piece>, start: u64, into: &mut [u8]) {
    let end = start + into.len() as u64;
    for (at, block) in blocks.range(start / BLOCK * BLOCK..end) {
        let (first, last) = (start.max(*at), end.min(at + block.len() as u64));
        if first >= last {
            continue;
        }
        let index = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
        let from = &block[index(first - at)..index(last - at)];
        into[index(first - start)..index(last - start)].copy_from_slice(from);
    }
}
