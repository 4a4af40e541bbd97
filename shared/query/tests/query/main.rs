//! The query engine over a lake in memory.

mod damage;
mod feeds;
mod floats;
mod limits;
mod names;
mod reading;
mod repeats;
mod semi;

mod sql;
mod world;
