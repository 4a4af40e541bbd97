//! Settings of the live runner, with the defaults of the seed.

use crate::{Duration, cdc::Placeholder};

/// The `live:` block.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveSettings {
    /// Start the runner in `serve`.
    pub enabled: bool,
    /// Least time between two cycle starts.
    pub min_interval: Duration,
    /// Quiet time that closes a batch early.
    pub debounce: Duration,
    /// Longest a batch is held open.
    pub max_latency: Duration,
    /// Heads are re-read this often, for what nobody announced.
    pub poll_interval: Duration,
    /// One aggregated log row per model per interval.
    pub log_interval: Duration,
    /// First retry delay after a failure.
    pub backoff_base: Duration,
    /// Longest retry delay.
    pub backoff_max: Duration,
    /// Fraction by which a retry delay is moved either way, so that models that failed together do not retry
    /// together; zero for exact delays. Not a setting of `headwater.yml`.
    pub jitter: f64,
    /// Least time between two runs of the assertions; zero checks every refresh.
    pub assertion_interval: Duration,
    /// A live model is profiled at most this often.
    pub profile_interval: Duration,
    /// Lag above which a model is stale.
    pub max_lag: Duration,
    /// What stands for a value that the sender of a change did not have, since it did not change.
    pub unavailable_value: Placeholder,
    /// How long a tombstone is kept after the delete was applied.
    pub tombstone_retention: Duration,
    /// What is done at quiet moments.
    pub maintenance: Maintenance,
}

/// How many times its own time a statement may last when its reader is slow. What it reads stays so long.
pub const SLOW_READS: u32 = 5;

/// The `maintenance:` block: what is tidied up, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// Whether anything is done by itself; `headwater maintain` works either way.
    pub enabled: bool,
    /// Least time between two rounds of one process.
    pub interval: Duration,
    /// Time one round takes, about.
    pub budget: Duration,
    /// Landing commits younger than this are left alone.
    pub fold_after: Duration,
    /// Snapshots of model tables younger than this stay, however many there are.
    pub retention: Duration,
    /// How long an object stays after nothing names it any more: the longest a read may take.
    pub grace: Duration,
    /// How long an object stays that nothing ever named: the longest a refresh may take.
    pub orphans: Duration,
    /// How long the idempotency key of an event is remembered.
    pub idempotency: Duration,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            enabled: true,
            interval: Duration::from_secs(10),
            budget: Duration::from_millis(200),
            fold_after: Duration::from_secs(5),
            retention: Duration::from_secs(3_600),
            grace: Duration::from_secs(600),
            orphans: Duration::from_secs(86_400),
            idempotency: Duration::from_secs(7 * 86_400),
        }
    }
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            min_interval: Duration::from_secs(1),
            debounce: Duration::from_millis(200),
            // Under steady traffic no burst ever settles: this is then how long models lag behind.
            max_latency: Duration::from_millis(500),
            poll_interval: Duration::from_secs(5),
            log_interval: Duration::from_secs(60),
            backoff_base: Duration::from_secs(2),
            backoff_max: Duration::from_secs(300),
            jitter: 0.1,
            assertion_interval: Duration::ZERO,
            profile_interval: Duration::from_secs(300),
            max_lag: Duration::from_secs(300),
            unavailable_value: Placeholder::default(),
            tombstone_retention: Duration::from_secs(7 * 86_400),
            maintenance: Maintenance::default(),
        }
    }
}
