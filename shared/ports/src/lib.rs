//! What the rules need from the world: narrow, object-safe seams with one contract each.
//!
//! Adapters (`embedded`, `aws`, `lake`, `query`, `testkit`) implement them, `engine` uses them, and `testkit` holds the
//! contract suites every adapter must pass. Nothing here opens a file or a socket.

pub mod alerts;
pub mod chance;
pub mod clock;
pub mod columns;
pub mod entries;
pub mod error;
pub mod feed;
pub mod jobs;
pub mod landing;
pub mod query;
pub mod queue;
pub mod refreshes;
pub mod search;
pub mod state;
pub mod tables;
pub mod upkeep;

pub use alerts::Alerts;
pub use chance::Chance;
pub use clock::Clock;
pub use entries::Entries;
pub use error::{Error, Kind, Recovery, Result};
pub use jobs::Jobs;
pub use landing::Landing;
pub use query::Query;
pub use queue::Queue;
pub use refreshes::Refreshes;
pub use search::{Embedder, Search};
pub use state::State;
pub use tables::Tables;

/// Object storage: the `object_store` crate's own contract. Paths are relative to the warehouse. An adapter makes an
/// object durable before `put` returns.
pub type Objects = std::sync::Arc<dyn object_store::ObjectStore>;
