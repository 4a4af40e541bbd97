//! The engine on pretend ports: what it does between them, and when.

mod cycles;
mod freshness;
mod orders;
mod pretend;
mod runner;
