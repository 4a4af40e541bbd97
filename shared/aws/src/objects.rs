//! Objects on S3.
