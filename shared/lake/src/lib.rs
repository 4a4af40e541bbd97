//! The lake: landing batches, Iceberg tables and data of entries, as parquet on an object store.

pub mod entries;
mod garbage;
pub mod landing;
pub mod tables;

pub use entries::EntryLake;
pub use tables::Lake;
