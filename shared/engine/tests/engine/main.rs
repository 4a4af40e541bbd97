//! The engine on pretend ports: what it does between them, and when.

mod cycles;
mod pretend;
mod runner;
