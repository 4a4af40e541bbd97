//! Landing tables: append-only, their sequences fixed at commit.
//!
//! A commit is one transaction: the head, moved from the version it was read at; the commit's own `advance#<to>`; and
//! one mark per idempotency key. Small batches ride in the advance item itself, larger ones are a parquet object that
//! is put before. Appends of one process to one table share commits.
//!
//! ## Invariants
//! * **S-1** sequences of a table are contiguous from 1 and fixed at commit
//! * **Q-1** nothing is dropped silently: an append is stored once, or refused with a reason

mod scan;

pub use scan::{pin, scan};
