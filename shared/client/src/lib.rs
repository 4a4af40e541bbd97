//! The Rust client of materialized entries: wrap an expensive function, and its results are kept, shared and queried.
//!
//! ```no_run
//! use client::{Client, materialize};
//! # use serde::{Deserialize, Serialize};
//! #[derive(Serialize, Deserialize)]
//! struct Signups { channel: String, n: i64 }
//!
//! #[materialize(key = "signups", ttl = "10m", version = 2)]
//! async fn signups(since: String) -> Result<Vec<Signups>, std::io::Error> {
//!     // What takes seconds, and is asked for all day.
//!     Ok(vec![Signups { channel: format!("since {since}"), n: 10 }])
//! }
//!
//! # async fn main_() -> Result<(), client::BoxError> {
//! Client::connect("http://127.0.0.1:8080", None)?.install();
//! let frame = signups(String::from("2026-07-01")).await?;
//! let top: Vec<Signups> = frame.filter("n__gte", 5).order_by(&["-n"]).slice(0, 10).rows().await?;
//! let sums = frame.sql("SELECT channel, sum(n) AS n FROM this GROUP BY channel").await?;
//! # Ok(()) }
//! ```
//!
//! A hit is one request and does not run the function. A miss runs it, serves its rows from this process and stores them behind.
//! A registry that does not answer costs a time limit now and then, never the answer.
//!
//! ## Invariants
//! * **E-1** no two different calls share an entry: a call is identified by the function's path, its version and its arguments
//! * **E-3** what is stored is stored under a lease; a builder that was taken over stores nothing
//! * whatever becomes of storing a result, its caller is served, unless the function says `on_error = "raise"`

mod batches;
mod behind;
mod breaker;
mod call;
mod client;
mod error;
mod frame;
mod held;
mod meta;
mod registry;
mod rows;
mod sending;
mod transport;

pub use crate::client::{Client, Settings};
pub use batches::{BatchStream, Batches, Data, Failed, IntoData, Outcome};
pub use behind::Flushed;
pub use call::{Call, Identity};
pub use client_macros::materialize;
pub use error::{BoxError, Error, Result};
pub use frame::{Lookups, MaterializedFrame, Operand, Search, Selection, VectorSearch};
pub use meta::{Index, Meta, Mode, OnError, Served, Spec, Ttl};
pub use ports::query::Parameter;
pub use transport::{Body, Http, Transport, empty, full};
