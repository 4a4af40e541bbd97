//! The engine on pretend ports: what it does between them, and when.

mod cycles;
mod orders;
mod pretend;
mod runner;
