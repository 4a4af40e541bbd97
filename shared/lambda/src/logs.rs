//! Structured logs: one JSON object per line, which is how the log service indexes fields.

use tracing_subscriber::EnvFilter;

/// What is logged unless `RUST_LOG` says otherwise: the AWS crates tell of every retry.
const FILTER: &str = "info,aws_config=warn,aws_smithy_runtime=warn,hyper=warn";

/// Starts logging to standard output; a second call changes nothing.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(FILTER));
    let logs = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_env_filter(filter)
        // It would tell of a failed write by one more, which panics.
        .log_internal_errors(false)
        // The log service stamps lines itself.
        .without_time();
    // Someone who started logging before us keeps their own.
    let _ = logs.try_init();
}
