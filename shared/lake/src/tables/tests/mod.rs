//! Tables over memory: what is read after any history is what a naive table would hold.

mod changes;
mod event_rules;
mod events;
mod evolution;
mod gaps;
mod histories;
mod protocol;
mod splits;
mod upkeep;
mod world;
