//! State on DynamoDB.
//!
//! ## The table
//! One on-demand table. Its hash key `p` is the partition and its range key `s` the sort key, both behind one `=`, because
//! DynamoDB takes no empty key; a mark that all share leaves the order, which is by UTF-8 bytes, as it was.
//!
//! | attribute | is | holds |
//! |---|---|---|
//! | `v` | N | the version |
//! | `c` | B | the commit that wrote it: how its writer recognises an outcome nobody told it |
//! | `b` | N | the version it replaced, when the writer expected one |
//! | `d` | B | the value; or instead of it |
//! | `o`, `n` | S, N | the object that holds a large value, and its length |
//! | `ttl` | N | of an idempotency mark: when it may go, in seconds. Housekeeping only, nothing here goes by it |
//!
//! Leases have none: their fencing tokens go on from what the item holds.
//!
//! ## Versions
//! A version is 63 bits of the commit's id, 62 of them random: no counter to contend for, and nothing to remember of an item
//! that was deleted. A writer is fooled only when one of the commits between its read and its write drew the very version it
//! read, which for a million of them is a chance of one in four million million.
//!
//! ## What happened
//! Writes are never retried by the SDK, because a retry would meet the success of its own first attempt and take it for
//! somebody else's. `commit.rs` says what is done instead, and `large.rs` what becomes of values
//! that an item cannot hold.

mod catalog;
mod commit;
mod failure;
mod item;
mod keys;
mod large;
mod owner;
mod prepare;
mod read;
mod setup;
mod sweep;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use ports::{
    Chance, Clock, Objects, Result, State,
    state::{Item, Key, Outcome, Span, Write, validate},
    upkeep::{Sweep, Swept},
};

use self::{catalog::Catalog, prepare::Commit};

/// Longest first pause of a retry; each further one may be twice as long.
const PAUSE: Duration = Duration::from_millis(25);
/// Longest pause of all.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Names of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Holds the state.
    pub state: String,
    /// PyIceberg's catalog, into which pointers are mirrored; none for no mirror.
    pub catalog: Option<String>,
}

/// The state store in a DynamoDB table, for any number of processes at once.
///
/// Pointers of the catalog are mirrored into the table that PyIceberg's DynamoDB catalog reads, in the same transaction.
#[derive(Clone, Debug)]
pub struct DynamoState {
    client: Client,
    table: Arc<str>,
    catalog: Option<Catalog>,
    objects: Option<Objects>,
    /// How long idempotency marks stay; none for ever.
    marks: Option<Duration>,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    retries: Arc<AtomicU64>,
}

impl DynamoState {
    /// A store over tables that exist. Values too large for an item go to `objects`; without it they are refused.
    #[must_use]
    pub fn new(
        client: Client,
        tables: Tables,
        objects: Option<Objects>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Self {
        Self {
            client,
            table: tables.state.into(),
            catalog: tables.catalog.map(Catalog::new),
            objects,
            marks: None,
            clock,
            chance,
            retries: Arc::default(),
        }
    }

    /// The same store, whose idempotency marks DynamoDB removes by itself some time after they are this old.
    #[must_use]
    pub fn forgetting(mut self, marks: Duration) -> Self {
        self.marks = Some(marks);
        self
    }

    /// Requests sent once more since the process began, because another transaction was in the way, the table was
    /// throttled or an answer was lost: a metric.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Waits before attempt number `attempt` (the first retry is 1), any time up to a bound that doubles: those who met
    /// once should not meet again.
    async fn pause(&self, attempt: u32) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        let bound = PAUSE.saturating_mul(1 << attempt.saturating_sub(1).min(16));
        let pause = bound.min(PAUSE_MAX).mul_f64(self.chance.fraction());
        self.clock.sleep_until(self.clock.now() + pause).await;
    }
}

#[async_trait]
impl State for DynamoState {
    async fn get(&self, key: &Key) -> Result<Option<Item>> {
        read::get(self, key).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        read::get_many(self, keys).await
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        read::query(self, span).await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        validate(&writes)?;
        let commit = Commit::prepare(self, &writes).await?;
        commit.run(self).await
    }

    fn sheds(&self) -> bool {
        self.objects.is_some()
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<Swept> {
        sweep::sweep(self, sweep).await
    }
}
