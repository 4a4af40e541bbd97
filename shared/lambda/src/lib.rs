//! The Lambda shell: cold start, what an invocation brings, per-message outcomes, logs.
//!
//! A function is a [`Function`] handed to [`run`]; everything it does is a use case of `engine`.

mod batch;
mod bedrock;
mod buffered;
mod embed;
mod event;
mod http;
mod logs;
mod metrics;
mod parts;
mod serve;
mod steps;
mod target;
mod trace;
mod world;

pub use batch::{Outcomes, each};
pub use buffered::Buffered;
pub use embed::embedder;
pub use event::{Event, Message};
pub use http::Http;
pub use lambda_runtime::{Context, Error};
pub use parts::{Ground, MakeParts, Parts};
pub use serve::{Answer, Function, run};
pub use steps::{carry_out, step, tick};
pub use world::{Deployed, cold_start};
