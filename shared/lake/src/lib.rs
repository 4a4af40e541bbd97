//! The lake: landing batches and Iceberg tables as parquet on an object store.

mod garbage;
pub mod landing;
pub mod tables;

pub use tables::Lake;
