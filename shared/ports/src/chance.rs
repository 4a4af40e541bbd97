//! Randomness and ids, by the door.

use domain::Timestamp;

/// Where ids and random numbers come from.
pub trait Chance: Send + Sync + std::fmt::Debug {
    /// A fresh id, unique for ever, text order close to time order (UUID version 7, lower case).
    fn id(&self, now: Timestamp) -> String;

    /// A number in `[0, 1)`.
    fn fraction(&self) -> f64;
}
