//! Wrappers that count requests and bytes, so that a test can say what an operation may cost.

mod objects;
mod state;

pub use objects::{CountedObjects, ObjectCounts};
pub use state::{CountedState, StateCounts};
