//! Sizes at which files are closed, merged and written anew.

/// What a lake holds its tables to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Rows of a change held in memory, so that those replaced within it are never written.
    pub held_rows: u64,
    /// The same in bytes.
    pub held_bytes: usize,
    /// A data file is closed once it has so many bytes.
    pub file_bytes: usize,
    /// A table up to this size has no deleted rows: its files are written anew.
    pub tiny_bytes: u64,
    /// A table up to this size is written anew when it has many files or one is half deleted. A larger one's files
    /// below this size are folded into one when they are many.
    pub small_bytes: u64,
    /// How many files are many.
    pub small_files: usize,
    /// Most bytes of a larger table's files folded in one commit.
    pub fold_bytes: u64,
    /// Delete files a table may have.
    pub delete_files: usize,
    /// Small manifests a table may have.
    pub manifests: usize,
    /// Bytes of changed rows kept in memory, for each side of a comparison; more are read again.
    pub feed_bytes: usize,
    /// Changed rows compared in one pass.
    pub feed_rows: u64,
    /// Snapshots that stay in the metadata; older ones expire, their files are left to the sweep.
    pub snapshots: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            held_rows: 128 << 10,
            held_bytes: 24 << 20,
            file_bytes: 64 << 20,
            tiny_bytes: 1 << 20,
            small_bytes: 4 << 20,
            small_files: 8,
            fold_bytes: 16 << 20,
            delete_files: 8,
            manifests: 16,
            feed_bytes: 16 << 20,
            feed_rows: 512 << 10,
            snapshots: 50,
        }
    }
}
