//! Pretend worlds for tests: ports in memory, time that moves only when told to, faults on demand,
//! and the contract suites that every adapter must pass.
//!
//! Nothing here reads a wall clock, sleeps, or opens a file or a socket. A test that uses it ends
//! the same way every time for one seed.
//!
//! ```
//! use std::sync::Arc;
//! use ports::{State, state::{Expect, Key, Write}};
//! use testkit::{CountedState, MemoryState};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
//! # runtime.block_on(async {
//! let counted = CountedState::new(Arc::new(MemoryState::new()));
//! let write = Write::put(Key::new("model#a.b", "state"), &1, Expect::Absent);
//! assert!(counted.transact(vec![write]).await.expect("memory answers").is_committed());
//! assert_eq!(counted.counts().transacts, 1);
//! # });
//! ```

pub mod contract;
pub mod counted;
pub mod faults;

mod alerts;
mod chance;
mod clock;
mod embedder;
mod entries;
mod lock;
mod queue;
mod refreshes;
mod state;

pub use alerts::RecordedAlerts;
pub use chance::SeededChance;
pub use clock::SimulatedClock;
pub use counted::{CountedObjects, CountedState, ObjectCounts, StateCounts};
pub use embedder::TestsOnlyEmbedder;
pub use entries::NoEntries;
pub use faults::{Fault, Faults, FaultyObjects, FaultyState, Operation, Rates};
pub use queue::MemoryQueue;
pub use refreshes::MemoryRefreshes;
pub use state::MemoryState;
