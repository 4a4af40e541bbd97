//! Vectors in cells: nearest centroids first, then the vectors of the nearest cells, from ranges of one object.
//!
//! A vector is stored as integers of 16 bits with a scale of its own, the upper eight bits of all vectors of a cell together,
//! the lower eight apart. A search goes over the upper ones of a few cells and over both of the best of these. Up to a number
//! of rows there is one cell, and the answer is exact: what the upper bits leave in doubt is looked at whole. How many cells a
//! search looks into is measured while the index is built, on vectors of its own.
//!
//! A graph (HNSW) answers as fast from memory. It has to be there as a whole, though, built as read: cells are read from the
//! object store by a few ranges, built within bounded memory, and need no foreign code.

mod arithmetic;
mod build;
mod cells;
mod open;
mod search;
mod spool;

use domain::entry::Metric;

pub(crate) use build::build;
pub(crate) use open::VectorIndex;
pub(crate) use search::search;

/// Longest vector.
pub(crate) const LENGTH_MAX: usize = 16_384;
/// Bytes of what is kept of a vector beside its numbers: row, scale, square of its length.
const HEAD: usize = 12;

/// What is to be built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) metric: Metric,
    /// Up to so many rows are searched one by one.
    pub(crate) exact_max: u64,
}
