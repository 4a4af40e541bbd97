//! SQL over the lake's pinned tables: DataFusion behind `ports::Query`.
//!
//! A statement is parsed by `domain::sql`, sees only the tables and views of the catalog it was given, and runs on threads
//! of its own under limits of memory, time and rows. Nothing here writes, opens a path of the machine or a URL.

mod affected;
mod aggregated;
mod alias;
mod alone;
mod bounds;
mod casts;
mod catalog;
mod checked;
mod converted;
mod decimals;
mod engine;
mod entry;
mod failure;
mod feed;
mod floats;
mod footers;
mod growth;
mod inlined;
mod json;
mod labels;
mod landing;
mod literals;
mod memberships;
mod model;
mod names;
mod nearest;
mod open;
mod orders;
mod parts;
mod plan;
mod rows;
mod running;
mod scope;
mod semi;
mod sequenced;
mod session;
mod shorthand;
mod sums;
mod types;
mod unions;

pub use alone::reader;
pub use engine::{DataFusionQuery, engine};
pub use session::Settings;
