//! The lake: landing batches and Iceberg tables as parquet on an object store.

pub mod landing;
