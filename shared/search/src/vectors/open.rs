//! An open index of vectors: where everything is.

use ports::Result;

use super::{HEAD, cells::Cells};
use crate::{
    bundle::{Content, Extent, Footer, Vectors},
    source::Source,
};

/// An open index.
#[derive(Debug)]
pub(crate) struct VectorIndex {
    pub(super) source: Source,
    pub(super) shape: Vectors,
    /// None when all cells are searched anyhow.
    pub(super) cells: Option<Cells>,
    pub(super) counts: Vec<u32>,
    /// Vectors in the cells before each.
    firsts: Vec<u64>,
}

impl VectorIndex {
    /// Reads what the tail holds.
    pub(crate) fn open(source: Source, footer: &Footer) -> Result<Self> {
        let Content::Vectors(shape) = &footer.content else {
            return Err(source.corrupt("it is no index of vectors"));
        };
        let shape = shape.clone();
        let words = usize::try_from(footer.more).unwrap_or(usize::MAX) / 4;
        let Some(numbers) = words.checked_sub(shape.cells) else {
            return Err(source.corrupt("its tail is too short for its cells"));
        };
        if numbers != 0 && numbers != shape.cells.saturating_mul(shape.length) {
            return Err(source.corrupt("its centroids are not of its length"));
        }
        let word = |word: &[u8]| [word[0], word[1], word[2], word[3]];
        let tail = &source.tail()[..words * 4];
        let (centroids, counts) = tail.split_at(numbers * 4);
        let counts: Vec<u32> = counts
            .chunks_exact(4)
            .map(|one| u32::from_le_bytes(word(one)))
            .collect();
        let centroids: Vec<f32> = centroids
            .chunks_exact(4)
            .map(|one| f32::from_le_bytes(word(one)))
            .collect();
        let mut total = 0_u64;
        let mut firsts = Vec::with_capacity(counts.len());
        for count in &counts {
            firsts.push(total);
            total += u64::from(*count);
        }
        let each = (HEAD + 2 * shape.length + 4) as u64;
        if total != shape.count || total.checked_mul(each) != Some(source.bytes()) {
            return Err(source.corrupt("its cells do not add up to its bytes"));
        }
        Ok(Self {
            cells: (numbers > 0).then(|| Cells::new(shape.length, centroids)),
            source,
            shape,
            counts,
            firsts,
        })
    }

    fn code_bytes(&self) -> u64 {
        (HEAD + self.shape.length) as u64
    }

    /// Heads and upper bytes of a cell.
    pub(super) fn codes(&self, cell: u32) -> Extent {
        let at = cell as usize;
        Extent {
            start: self.firsts[at] * self.code_bytes(),
            length: u64::from(self.counts[at]) * self.code_bytes(),
        }
    }

    /// Head of one vector.
    pub(super) fn head(&self, cell: u32, at: u32) -> Extent {
        Extent {
            start: self.codes(cell).start + u64::from(at) * HEAD as u64,
            length: HEAD as u64,
        }
    }

    /// Upper bytes of one vector.
    pub(super) fn upper(&self, cell: u32, at: u32) -> Extent {
        let heads = u64::from(self.counts[cell as usize]) * HEAD as u64;
        let length = self.shape.length as u64;
        Extent {
            start: self.codes(cell).start + heads + u64::from(at) * length,
            length,
        }
    }

    /// Lower bytes of one vector.
    pub(super) fn lower(&self, cell: u32, at: u32) -> Extent {
        let length = self.shape.length as u64;
        let codes = self.shape.count * self.code_bytes();
        Extent {
            start: codes + (self.firsts[cell as usize] + u64::from(at)) * length,
            length,
        }
    }

    /// Rows of all vectors, in a few ranges.
    pub(super) fn rows(&self) -> Vec<Extent> {
        const EACH: u64 = 4 << 20;
        let start = self.shape.count * (self.code_bytes() + self.shape.length as u64);
        let end = start + self.shape.count * 4;
        let starts = (start..end).step_by(4 << 20);
        starts
            .map(|start| Extent {
                start,
                length: EACH.min(end - start),
            })
            .collect()
    }

    /// The cell of the vector at a place among all, and its place in that.
    pub(super) fn place(&self, place: u64) -> (u32, u32) {
        let cell = self.firsts.partition_point(|first| *first <= place) - 1;
        // Empty cells share their first with the one after them, which is found.
        let at = u32::try_from(place - self.firsts[cell]).unwrap_or(u32::MAX);
        (u32::try_from(cell).unwrap_or(u32::MAX), at)
    }
}
