//! Use cases: load, decide, do. Rules are `domain`'s, the world is behind `ports`.
//!
//! ## Invariants
//! * **S-2** an acknowledged event is read exactly once by every live model
//! * **W-2** data and its watermarks commit together or not at all
//! * **C-2** readers never see a failed refresh
//! * **E-2** a ready row's data exists; what no row names is garbage
//! * **E-3** an old fencing token commits nothing
//! * **Q-1** nothing is dropped silently: it is stored, refused with a reason, or quarantined

pub mod batch;
pub mod check;
pub mod control;
pub mod cycle;
pub mod entries;
pub mod explain;
pub mod freshness;
pub mod ingest;
mod known;
pub mod lags;
mod lasting;
mod load;
pub mod maintain;
mod pins;
pub mod profile;
pub mod quarantine;
pub mod read;
pub mod refresh;
pub mod runner;
pub mod sources;
pub mod status;
pub mod upkeep;
pub mod world;

pub use world::World;
