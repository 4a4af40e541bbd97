//! The query engine over a lake in memory.

mod limits;
mod names;
mod reading;
mod semi;

mod sql;
mod world;
