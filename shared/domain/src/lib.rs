//! The words and rules of Headwater: values in, values out.
//!
//! Nothing here performs I/O, reads a clock, draws a random number, or knows of Arrow, DataFusion or AWS.
//!
//! ## Invariants
//! * **S-1** sequences of a table are contiguous from 1 and fixed at commit
//! * **W-1** a watermark never moves down
//! * **C-1** a model refreshes only from snapshots its cycle fixed
//! * **E-1** no two different calls share a fingerprint

pub mod cdc;
pub mod duration;
pub mod entry;
pub mod fingerprint;
pub mod items;
pub mod lag;
pub mod live;
pub mod model;
pub mod name;
pub mod parse;
pub mod plan;
pub mod position;
pub mod project;
pub mod rfc3339;
pub mod schedule;
pub mod sql;
pub mod time;
mod traced;
mod validate;

pub use entry::EntrySettings;
pub use fingerprint::Fingerprint;
pub use live::{LiveSettings, Maintenance, SLOW_READS};
pub use model::{Assert, Config, Materialized, Model, OnSchemaChange, Severity, Strategy};
pub use name::TableName;
pub use position::Position;
pub use project::{Finding, Project};
pub use time::{Duration, Timestamp};

/// The sequence column: `BIGINT`, 1, 2, 3 and on per table.
pub const SEQUENCE: &str = "_seq";
/// The name other projects know [`SEQUENCE`] by; accepted anywhere in a model or query.
pub const SEQUENCE_ALIAS: &str = "_havn_seq";
/// The flag of a row that was deleted softly: `BOOLEAN`.
pub const DELETED: &str = "_deleted";
/// The name other projects know [`DELETED`] by; accepted anywhere in a model or query.
pub const DELETED_ALIAS: &str = "_havn_deleted";
/// The column of a change feed that says what happened to the row: `insert`, `update_before`, `update_after`, `delete`.
pub const CHANGE: &str = "_change";
/// The schema that holds landing tables.
pub const LANDING: &str = "landing";
