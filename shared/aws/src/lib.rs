//! The ports on AWS: state on DynamoDB, objects on S3, the queue on SQS. The twins of `embedded`.
//!
//! One configuration, one HTTP connector and one retry policy serve all three ([`clients`]).
//!
//! ## Invariants
//! * **S-1** sequences of a table are contiguous from 1 and fixed at commit
//! * **W-2** data and its watermarks commit together or not at all
//! * **Q-1** nothing is dropped silently: it is stored, refused with a reason, or quarantined

mod answer;
pub mod clients;
#[cfg(test)]
mod fake;
pub mod objects;
mod patience;
pub mod queue;
pub mod signing;
pub mod state;
