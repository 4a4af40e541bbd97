//! Cells: centroids by k-means on a sample, and the cell of a vector.

use super::arithmetic::dot;

/// Vectors of the sample per cell, and rounds over it.
pub(super) const SAMPLE_PER_CELL: usize = 40;
const ROUNDS: usize = 6;
/// Cells, and vectors, that are compared with each other at a time.
const TILE: usize = 32;
/// Cells: the square root of the number of vectors, within these.
const CELLS_MIN: usize = 16;
const CELLS_MAX: usize = 4_096;

/// How many cells so many vectors are grouped in.
pub(super) fn number(count: u64) -> usize {
    let root = usize::try_from(count.isqrt()).unwrap_or(CELLS_MAX);
    root.clamp(CELLS_MIN, CELLS_MAX)
}

/// Centroids, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cells {
    pub(super) length: usize,
    pub(super) numbers: Vec<f32>,
    /// Half the square of each one's length.
    halves: Vec<f32>,
}

impl Cells {
    pub(super) fn new(length: usize, numbers: Vec<f32>) -> Self {
        let halves = numbers
            .chunks_exact(length.max(1))
            .map(|one| dot(one, one) / 2.0)
            .collect();
        Self {
            length,
            numbers,
            halves,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.halves.len()
    }

    fn at(&self, cell: usize) -> &[f32] {
        &self.numbers[cell * self.length..(cell + 1) * self.length]
    }

    /// The nearest cell of each of some vectors. Some cells at a time, and some vectors, so that both stay near the processor.
    pub(super) fn nearest(&self, vectors: &[f32], out: &mut [u32]) {
        let length = self.length;
        for (vectors, out) in vectors.chunks(TILE * length).zip(out.chunks_mut(TILE)) {
            let mut best = [f32::NEG_INFINITY; TILE];
            for first in (0..self.len()).step_by(TILE) {
                let last = (first + TILE).min(self.len());
                let each = vectors.chunks_exact(length).zip(&mut best).zip(&mut *out);
                for ((vector, best), nearest) in each {
                    for cell in first..last {
                        let score = dot(vector, self.at(cell)) - self.halves[cell];
                        if score > *best {
                            *best = score;
                            *nearest = u32::try_from(cell).unwrap_or(u32::MAX);
                        }
                    }
                }
            }
        }
    }

    /// All cells, the nearest of a vector first.
    pub(super) fn ranked(&self, vector: &[f32], by_product: bool) -> Vec<u32> {
        let mut scored: Vec<(f32, u32)> = (0_u32..)
            .zip(&self.halves)
            .map(|(cell, half)| {
                let product = dot(vector, self.at(cell as usize));
                let half = if by_product { 0.0 } else { *half };
                (product - half, cell)
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        scored.into_iter().map(|(_, cell)| cell).collect()
    }

    /// Trains on a sample, the same way each time: seeds are vectors of the sample, and a cell that is empty takes a vector
    /// of the fullest.
    pub(super) fn train(length: usize, cells: usize, sample: &[f32], threads: usize) -> Self {
        let count = sample.len() / length.max(1);
        let cells = cells.min(count).max(1);
        let seeds = (0..cells).flat_map(|cell| {
            let (first, last) = (cell * count / cells, (cell + 1) * count / cells);
            let step = usize::try_from(chance(cell as u64) >> 32).unwrap_or(0);
            let at = first + step % (last - first).max(1);
            sample[at * length..(at + 1) * length].iter().copied()
        });
        let mut trained = Self::new(length, seeds.collect());
        let mut nearest = vec![0_u32; count];
        for _ in 0..ROUNDS {
            in_parts(threads, length, sample, &mut nearest, |vectors, out| {
                trained.nearest(vectors, out);
            });
            trained = Self::new(length, means(length, cells, sample, &nearest));
        }
        trained
    }
}

/// A number that looks like any, the same one each time.
pub(super) fn chance(at: u64) -> u64 {
    let mixed = (at ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
}

/// The mean of the vectors of each cell.
fn means(length: usize, cells: usize, sample: &[f32], nearest: &[u32]) -> Vec<f32> {
    let mut sums = vec![0.0_f32; cells * length];
    let mut counts = vec![0_u32; cells];
    for (vector, cell) in sample.chunks_exact(length).zip(nearest) {
        let cell = *cell as usize;
        counts[cell] += 1;
        let sum = &mut sums[cell * length..(cell + 1) * length];
        for (sum, number) in sum.iter_mut().zip(vector) {
            *sum += number;
        }
    }
    let fullest = (0..cells).max_by_key(|cell| counts[*cell]).unwrap_or(0);
    let mut spare = (0..nearest.len()).filter(|at| nearest[*at] as usize == fullest);
    for cell in 0..cells {
        let mean = &mut sums[cell * length..(cell + 1) * length];
        if counts[cell] > 0 {
            #[expect(clippy::cast_precision_loss, reason = "samples are small")]
            let count = counts[cell] as f32;
            mean.iter_mut().for_each(|number| *number /= count);
        } else if let Some(at) = spare.next() {
            mean.copy_from_slice(&sample[at * length..(at + 1) * length]);
        }
    }
    sums
}

/// Does something to vectors and a number of each, on several threads.
pub(super) fn in_parts(
    threads: usize,
    length: usize,
    vectors: &[f32],
    out: &mut [u32],
    work: impl Fn(&[f32], &mut [u32]) + Sync,
) {
    let each = out.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for (vectors, out) in vectors.chunks(each * length).zip(out.chunks_mut(each)) {
            let work = &work;
            scope.spawn(move || work(vectors, out));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_has_vectors_of_two_clumps() {
        let mut sample = Vec::new();
        for at in 0..4_000_u16 {
            let clump = f32::from(at % 4) * 10.0;
            sample.extend([clump, clump + f32::from(at % 7) * 0.01, 1.0]);
        }
        let cells = Cells::train(3, 32, &sample, 2);
        let mut nearest = vec![0; 4_000];
        cells.nearest(&sample, &mut nearest);
        let mut clump_of = vec![None; cells.len()];
        for (at, cell) in nearest.iter().enumerate() {
            let clump = clump_of[*cell as usize].get_or_insert(at % 4);
            assert_eq!(*clump, at % 4, "{at}");
        }
        assert_eq!(cells.ranked(&[10.0, 10.0, 1.0], false).len(), 32);
        assert_eq!(cells, Cells::train(3, 32, &sample, 1));
    }
}
