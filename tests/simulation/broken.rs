//! Deliberately broken builds: wrappers around the ports that take one promise away each.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use domain::{Duration, TableName, Timestamp, items::Column};
use engine::World;
use ports::{
    Landing, Queue, Result, State, Tables,
    feed::{Between, Changes},
    landing::{Advanced, Append, Appended},
    queue::Announcement,
    state::{Expect, Item, Key, Outcome, Span, Write},
    tables::{Change, Pin, Scan, Staged},
    upkeep::{Compacted, Fold, Folded, Forgotten, Keep, Sweep, Swept},
};

use crate::{scheduler::Scheduler, spoilt::Spoilt};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Watermarks are committed apart from their data.
    SplitCommit,
    /// Announcements get lost where no schedule makes up for it.
    LostWakeUp,
    /// Tombstones are dropped before anything late can arrive.
    NoTombstones,
    /// Rows of several inputs keep the sequences they came with.
    NoRestamp,
    /// Idempotency keys are ignored.
    NoKeys,
    /// Objects that nothing names yet are removed at once.
    NoGrace,
    /// Transactions do not look at what they expect.
    NoConditions,
    /// Indexes are published whatever became of their job and their entry.
    CarelessIndex,
    /// Builders that died are never taken over.
    ImmortalLease,
    /// Rows of entries are read as they were a while ago.
    StaleReads,
    /// The data of an entry goes before its row.
    DataFirst,
    /// Answers to a client are of another entry.
    Crossed,
}

impl Broken {
    pub(crate) const ALL: [Self; 7] = [
        Self::SplitCommit,
        Self::LostWakeUp,
        Self::NoTombstones,
        Self::NoRestamp,
        Self::NoKeys,
        Self::NoGrace,
        Self::NoConditions,
    ];

    /// Those that only entries notice.
    pub(crate) const OF_ENTRIES: [Self; 4] = [
        Self::CarelessIndex,
        Self::ImmortalLease,
        Self::StaleReads,
        Self::DataFirst,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SplitCommit => "a_watermark_committed_apart_from_its_data",
            Self::LostWakeUp => "a_lost_wake_up",
            Self::NoTombstones => "a_tombstone_dropped_early",
            Self::NoRestamp => "a_re_stamp_left_out",
            Self::NoKeys => "an_idempotency_key_ignored",
            Self::NoGrace => "an_orphan_removed_without_grace",
            Self::NoConditions => "a_transaction_without_conditions",
            Self::CarelessIndex => "an_index_published_without_conditions",
            Self::ImmortalLease => "a_dead_builder_never_taken_over",
            Self::StaleReads => "a_row_read_as_it_was_before",
            Self::DataFirst => "data_removed_before_its_row",
            Self::Crossed => "an_answer_for_another_entry",
        }
    }

    /// The state as the broken build sees it.
    pub(crate) fn state(self, inner: Arc<dyn State>) -> Arc<dyn State> {
        match self {
            Self::SplitCommit => Arc::new(Split { inner }),
            Self::NoConditions => Arc::new(Careless { inner }),
            _ => inner,
        }
    }

    /// The rest of the world as the broken build sees it.
    pub(crate) fn world(self, mut world: World, scheduler: &Arc<Scheduler>) -> World {
        match self {
            Self::NoTombstones | Self::NoRestamp | Self::NoGrace => {
                world.tables = Arc::new(BadTables {
                    inner: world.tables,
                    broken: self,
                });
            }
            Self::NoKeys => {
                world.landing = Arc::new(Forgetful {
                    inner: world.landing,
                });
            }
            Self::LostWakeUp => {
                world.queue = Arc::new(Deaf {
                    inner: world.queue,
                    scheduler: scheduler.clone(),
                });
            }
            Self::CarelessIndex | Self::ImmortalLease | Self::StaleReads | Self::DataFirst => {
                world.state = Arc::new(Spoilt {
                    inner: world.state,
                    entries: world.entries.clone(),
                    scheduler: scheduler.clone(),
                    broken: self,
                    seen: Mutex::default(),
                });
            }
            Self::SplitCommit | Self::NoConditions | Self::Crossed => {}
        }
        world
    }
}

/// A sweep long after everything, that waits for nothing.
const AT_ONCE: Sweep = Sweep {
    now: Timestamp(4_000_000_000_000_000),
    grace: Duration::ZERO,
    orphans: Duration::ZERO,
    most: 200,
};

#[derive(Debug)]
struct Split {
    inner: Arc<dyn State>,
}

#[async_trait]
impl State for Split {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        self.inner.get_many(keys).await
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        self.inner.query(span).await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        let is_mark = |write: &Write| write.key().sort.starts_with("consumed#");
        let (marks, data): (Vec<_>, Vec<_>) = writes.into_iter().partition(is_mark);
        if marks.is_empty() || data.is_empty() {
            let all = marks.into_iter().chain(data).collect();
            return self.inner.transact(all).await;
        }
        match self.inner.transact(data).await? {
            Outcome::Committed(_) => self.inner.transact(marks).await,
            conflict => Ok(conflict),
        }
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        self.inner.change_counter().await
    }
}

#[derive(Debug)]
struct Careless {
    inner: Arc<dyn State>,
}

#[async_trait]
impl State for Careless {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        self.inner.get_many(keys).await
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        self.inner.query(span).await
    }

    async fn transact(&self, mut writes: Vec<Write>) -> Result<Outcome> {
        for write in &mut writes {
            match write {
                Write::Put { expect, .. } | Write::Delete { expect, .. } => *expect = Expect::Any,
                Write::Check { .. } => {}
            }
        }
        self.inner.transact(writes).await
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        self.inner.change_counter().await
    }
}

#[derive(Debug)]
struct Deaf {
    inner: Arc<dyn Queue>,
    scheduler: Arc<Scheduler>,
}

#[async_trait]
impl Queue for Deaf {
    async fn send(&self, announcements: &[Announcement]) -> Result<()> {
        if self.scheduler.chance(0.2) {
            return Ok(());
        }
        self.inner.send(announcements).await
    }

    async fn receive(&self) -> Result<Vec<Announcement>> {
        self.inner.receive().await
    }
}

#[derive(Debug)]
struct BadTables {
    inner: Arc<dyn Tables>,
    broken: Broken,
}

#[async_trait]
impl Tables for BadTables {
    async fn pin(&self, table: &TableName) -> Result<Option<Pin>> {
        self.inner.pin(table).await
    }

    async fn scan(&self, pin: &Pin, after: u64) -> Result<Scan> {
        self.inner.scan(pin, after).await
    }

    async fn changes(&self, between: &Between) -> Result<Changes> {
        self.inner.changes(between).await
    }

    async fn schema(&self, pin: &Pin) -> Result<arrow::datatypes::SchemaRef> {
        self.inner.schema(pin).await
    }

    async fn retypes(&self, pin: &Pin, rows: &arrow::datatypes::SchemaRef) -> Result<bool> {
        self.inner.retypes(pin, rows).await
    }

    async fn stage(&self, mut change: Change) -> Result<Staged> {
        if self.broken == Broken::NoRestamp {
            change.restamp_from = None;
        }
        let table = change.table.clone();
        let mut staged = self.inner.stage(change).await?;
        if self.broken == Broken::NoGrace {
            // Somebody tidies up at this moment: what is found goes at once.
            for _ in 0..2 {
                self.inner.sweep(&table, &AT_ONCE).await?;
            }
        }
        if self.broken == Broken::NoTombstones
            && let Some(tombstones) = staged.tombstones.take()
        {
            let name = tombstones.table.to_string();
            staged.writes.retain(|write| write.key().sort != name);
        }
        Ok(staged)
    }

    async fn expire(&self, table: &TableName, keep: &Keep) -> Result<Option<u64>> {
        self.inner.expire(table, keep).await
    }

    async fn sweep(&self, table: &TableName, sweep: &Sweep) -> Result<Swept> {
        self.inner.sweep(table, sweep).await
    }

    async fn compact(&self, table: &TableName, key: &[String], bytes: u64) -> Result<Compacted> {
        self.inner.compact(table, key, bytes).await
    }
}

#[derive(Debug)]
struct Forgetful {
    inner: Arc<dyn Landing>,
}

#[async_trait]
impl Landing for Forgetful {
    async fn append(&self, append: Append) -> Result<Appended> {
        self.inner
            .append(Append {
                key: None,
                ..append
            })
            .await
    }

    async fn declare(&self, table: &TableName, columns: &[Column]) -> Result<()> {
        self.inner.declare(table, columns).await
    }

    async fn advance(&self, table: &TableName, now: Timestamp) -> Result<Option<Advanced>> {
        self.inner.advance(table, now).await
    }

    async fn fold(&self, table: &TableName, fold: &Fold) -> Result<Folded> {
        self.inner.fold(table, fold).await
    }

    async fn forget(&self, table: &TableName, before: Timestamp) -> Result<Forgotten> {
        self.inner.forget(table, before).await
    }

    async fn sweep(&self, table: &TableName, sweep: &Sweep) -> Result<Swept> {
        self.inner.sweep(table, sweep).await
    }
}
