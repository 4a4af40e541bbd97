//! The query engine over a lake in memory.

mod limits;
mod reading;
mod sql;
mod world;
