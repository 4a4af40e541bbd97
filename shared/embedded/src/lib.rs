//! The ports on one machine: SQLite for state, durable files for objects, a queue that wakes at
//! once.
//!
//! Twins of what runs in the cloud: the same contracts (`testkit::contract`), so that everything
//! above cannot tell the difference. Several processes may share one state file and one warehouse
//! folder; the queue is of one process, and a poll finds what another one announced.
//!
//! ## Invariants
//! * what was acknowledged survives `kill -9` at any moment, and loss of power as far as the disk
//!   keeps its word
//! * an object is there whole, or not at all
//! * a file that is not ours is refused and left as it is

mod alerts;
mod chance;
mod clock;
mod embed;
mod objects;
mod queue;
mod sqlite;

pub use alerts::{Channel, ChannelAlerts, HttpPost, LogAlerts, Post, channels};
pub use chance::SystemChance;
pub use clock::SystemClock;
pub use embed::{Answered, Exchange, HttpEmbedder};
pub use object_store::memory::InMemory as MemoryObjects;
pub use objects::FileObjects;
pub use queue::WakingQueue;
pub use sqlite::SqliteState;
