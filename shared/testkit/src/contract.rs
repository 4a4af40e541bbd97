//! Contract suites: what every adapter of a port must do. Each check panics with what was broken.
//!
//! A suite may be run on a store that holds other things: it uses names of its own.

mod objects;
mod queue;
mod state;

use std::collections::HashSet;

use domain::Timestamp;
use ports::Chance;

pub use objects::objects;
pub use queue::{distant_queue, queue};
pub use state::state;

/// Runs checks in order, each under its name, so that captured output says which one failed.
macro_rules! checks {
    ($port:literal, $subject:expr, [$($check:ident),+ $(,)?]) => {
        $(
            eprintln!("contract of {}: {}", $port, stringify!($check));
            $check($subject, &crate::contract::place(stringify!($check))).await;
        )+
    };
}
use checks;

/// A name that no earlier run of the suite has used.
fn place(check: &str) -> String {
    format!("contract-{:016x}-{check}", rand::random::<u64>())
}

/// The contract of chance: ids are unique, lower-case, and in order of time to the millisecond.
///
/// # Panics
/// When it is broken.
pub fn chance(chance: &dyn Chance) {
    let ids: Vec<String> = (0..1_000)
        .map(|i| chance.id(Timestamp(i * 1_000_000)))
        .collect();
    assert!(ids.is_sorted(), "ids of later milliseconds sort later");
    assert_eq!(
        ids.iter().collect::<HashSet<_>>().len(),
        ids.len(),
        "ids are unique"
    );
    assert!(
        ids.iter()
            .all(|id| *id == id.to_lowercase() && id.len() == 36),
        "lower-case UUIDs"
    );
    let now = Timestamp(1_767_225_600_000_000);
    let same: HashSet<String> = (0..1_000).map(|_| chance.id(now)).collect();
    assert_eq!(same.len(), 1_000, "ids of one moment are unique");
    let fractions: Vec<f64> = (0..1_000).map(|_| chance.fraction()).collect();
    assert!(
        fractions.iter().all(|f| (0.0..1.0).contains(f)),
        "fractions are in [0, 1)"
    );
    assert!(fractions.iter().any(|f| *f < 0.5) && fractions.iter().any(|f| *f >= 0.5));
}
