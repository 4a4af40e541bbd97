//! Maintenance: folding of landing commits, expiry of snapshots and idempotency keys, removal of garbage, compaction.
//!
//! A round is many small steps under a budget. Each leaves the lake readable whatever happens next, none changes what a
//! reader reads, and one that loses to somebody else gives up: the next round, of whichever process, goes on. What was
//! reached is written down beside each table only so that work is not looked for where there is none.

mod tables;

use domain::{Duration, Maintenance, TableName, Timestamp, items, items::Head};
use ports::{
    Error, Result,
    state::{Expect, Item, Key, Span, Write, query_all},
    upkeep::{Fold, Sweep, Swept},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{World, lasting::lasting};

/// Tables listed by one request.
const PAGE: usize = 1_000;
/// Objects removed in one step.
const REMOVED_MAX: usize = 200;
/// After this long a table is looked at again even if nothing has happened to it.
pub(crate) const AGAIN: Duration = Duration::from_secs(15 * 60);

/// What a round may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Time, about: no step begins after it.
    pub time: Duration,
    /// Steps.
    pub steps: u32,
    /// Whether tables are looked at that were looked at a short while ago.
    pub all: bool,
}

impl Budget {
    /// The budget of a round beside other work.
    #[must_use]
    pub fn of(settings: &Maintenance) -> Self {
        Self {
            time: settings.budget,
            steps: 64,
            all: false,
        }
    }
}

/// What a round did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Landing commits that became part of another one.
    pub folded_commits: u64,
    /// Objects those were folded into.
    pub folds: u64,
    /// Rows in them.
    pub folded_rows: u64,
    /// Tombstones that had been kept long enough.
    pub tombstones: u64,
    /// Snapshots that went.
    pub snapshots: u64,
    /// Objects that were found to be named by nothing: they go after the grace time.
    pub garbage_found: u64,
    /// Objects that wait for that, in the tables looked at.
    pub garbage_waiting: u64,
    /// Objects removed.
    pub garbage_removed: u64,
    /// Their bytes.
    pub garbage_bytes: u64,
    /// Data files written anew without their deleted rows.
    pub compacted_files: u64,
    /// Their bytes before.
    pub compacted_bytes: u64,
    /// Idempotency keys forgotten.
    pub keys_forgotten: u64,
    /// Steps given up because somebody else was first.
    pub conflicts: u64,
    /// Steps taken.
    pub steps: u32,
    /// There is more to do at once.
    pub more: bool,
    /// What went wrong; the next round tries again.
    pub errors: Vec<String>,
}

impl Report {
    /// Adds what another round did.
    pub fn add(&mut self, other: Self) {
        self.folded_commits += other.folded_commits;
        self.folds += other.folds;
        self.folded_rows += other.folded_rows;
        self.tombstones += other.tombstones;
        self.snapshots += other.snapshots;
        self.garbage_found += other.garbage_found;
        self.garbage_waiting = other.garbage_waiting;
        self.garbage_removed += other.garbage_removed;
        self.garbage_bytes += other.garbage_bytes;
        self.compacted_files += other.compacted_files;
        self.compacted_bytes += other.compacted_bytes;
        self.keys_forgotten += other.keys_forgotten;
        self.conflicts += other.conflicts;
        self.steps += other.steps;
        self.more = other.more;
        self.errors.extend(other.errors);
    }

    /// Whether anything was done or given up, errors aside.
    pub(crate) fn did_anything(&self) -> bool {
        let quiet = Self {
            steps: self.steps,
            garbage_waiting: self.garbage_waiting,
            errors: self.errors.clone(),
            ..Self::default()
        };
        *self != quiet
    }
}

/// Takes steps until nothing is left to do or the budget is used up. What goes wrong is in the report.
pub async fn maintain(world: &World, budget: &Budget, now: Timestamp) -> Report {
    let mut round = Round {
        world,
        budget,
        now,
        began: world.clock.now(),
        report: Report::default(),
    };
    if let Err(error) = round.run().await {
        round.failed(&error);
    }
    round.report
}

/// Rounds at the interval of the settings, for ever: for a process that has no runner.
pub async fn rounds(world: World) {
    let settings = world.live.maintenance.clone();
    if !settings.enabled {
        return;
    }
    let rounds = || async {
        loop {
            let next = world.clock.now() + settings.interval;
            world.clock.sleep_until(next).await;
            let now = world.clock.now();
            tell(&maintain(&world, &Budget::of(&settings), now).await);
        }
    };
    lasting(&*world.clock, "maintenance", rounds).await;
}

/// Logs a round that did something.
pub fn tell(report: &Report) {
    for error in &report.errors {
        tracing::warn!(
            error,
            "a step of maintenance failed; the next round tries again"
        );
    }
    if report.did_anything() {
        tracing::debug!(?report, "maintained");
    }
}

/// How far the folding of a landing table has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FoldMark {
    /// Sequence after which to go on.
    after: u64,
    /// Commits of the table when all of it had been looked at; none while it has not.
    commits: Option<u64>,
    /// When that was.
    at: Timestamp,
}

/// When a table's objects were last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SweepMark {
    /// When.
    at: Timestamp,
    /// Commits of the table then.
    commits: u64,
    /// Whether anything was waiting to be removed.
    waiting: bool,
}

/// When large values that no item names were last looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ValuesMark {
    /// When.
    at: Timestamp,
}

const VALUES: &str = "values";
const FOLD: &str = "fold";
const SWEEP: &str = "sweep";

/// A round on its way.
struct Round<'a> {
    world: &'a World,
    budget: &'a Budget,
    now: Timestamp,
    began: Timestamp,
    report: Report,
}

impl Round<'_> {
    fn settings(&self) -> &Maintenance {
        &self.world.live.maintenance
    }

    /// Takes one step of the budget, if there is one left.
    fn step(&mut self) -> bool {
        let spent = self.world.clock.now().since(self.began);
        if self.report.steps >= self.budget.steps || spent > self.budget.time {
            self.report.more = true;
            return false;
        }
        self.report.steps += 1;
        true
    }

    fn failed(&mut self, error: &Error) {
        self.report.errors.push(error.chain());
    }

    async fn run(&mut self) -> Result<()> {
        if let Err(error) = self.values().await {
            self.failed(&error);
        }
        let mut heads = self.heads().await?;
        if heads.is_empty() {
            return Ok(());
        }
        // Nobody starves behind a table that uses up every budget.
        let first = usize::try_from(self.now.as_millis()).unwrap_or(0) % heads.len();
        heads.rotate_left(first);
        for (table, head) in &heads {
            let is_landing = head.as_ref().is_some_and(|head| head.snapshot.is_none());
            let done = match (head, is_landing) {
                (Some(head), true) => self.landing(table, head).await,
                (head, _) => self.model(table, head.as_ref()).await,
            };
            if let Err(error) = done {
                self.failed(&error);
            }
        }
        Ok(())
    }

    /// Removes large values that no item names any more. Nothing tells when there are some, and they are few.
    async fn values(&mut self) -> Result<()> {
        let state = &self.world.state;
        if !state.sheds() {
            return Ok(());
        }
        let key = Key::new(items::MAINTENANCE, VALUES);
        let item = state.get(&key).await?;
        let mark = item.as_ref().map(Item::decode::<ValuesMark>).transpose()?;
        let due = mark.is_none_or(|mark| self.now >= mark.at + self.settings().orphans);
        if !(due || self.budget.all) || !self.step() {
            return Ok(());
        }
        let swept = self.world.state.sweep(&self.sweep()).await?;
        self.report.garbage_removed += swept.removed;
        self.report.garbage_bytes += swept.bytes;
        self.report.more |= swept.more;
        if !swept.more {
            let write = Write::put(
                key,
                &ValuesMark { at: self.now },
                Expect::as_read(item.as_ref()),
            );
            let outcome = self.world.state.transact(vec![write]).await?;
            self.report.conflicts += u64::from(!outcome.is_committed());
        }
        Ok(())
    }

    /// Every table that is listed or is a model's, with its head.
    async fn heads(&self) -> Result<Vec<(TableName, Option<Head>)>> {
        let state = &*self.world.state;
        let listed = query_all(state, Span::prefix(items::TABLES, "", PAGE)).await?;
        let mut tables: Vec<TableName> = listed
            .iter()
            .filter_map(|item| item.key.sort.parse().ok())
            .collect();
        tables.extend(self.world.project.models.keys().cloned());
        tables.sort();
        tables.dedup();
        let mut heads = Vec::with_capacity(tables.len());
        for some in tables.chunks(100) {
            let keys: Vec<Key> = some.iter().map(crate::load::head).collect();
            for (table, item) in some.iter().zip(state.get_many(&keys).await?) {
                heads.push((table.clone(), item.map(|item| item.decode()).transpose()?));
            }
        }
        Ok(heads)
    }

    async fn landing(&mut self, table: &TableName, head: &Head) -> Result<()> {
        self.fold(table, head).await?;
        self.forget(table).await?;
        let commits = head.position.commits;
        let Some(mark) = self.sweep_due(table, commits).await? else {
            return Ok(());
        };
        let swept = self.world.landing.sweep(table, &self.sweep()).await?;
        self.swept(table, mark, commits, swept).await
    }

    async fn fold(&mut self, table: &TableName, head: &Head) -> Result<()> {
        let commits = head.position.commits;
        let (item, mark) = self.mark::<FoldMark>(table, FOLD).await?;
        let same = mark.commits == Some(commits) && self.now < mark.at + AGAIN;
        if same && !self.budget.all {
            return Ok(());
        }
        let cuts = self.cuts(table).await?;
        let until =
            Timestamp(self.now.0.saturating_sub(
                i64::try_from(self.settings().fold_after.as_micros()).unwrap_or(0),
            ));
        let (mut after, mut young) = (mark.after, mark.after > 0);
        let next = loop {
            if !self.step() {
                break FoldMark {
                    after,
                    commits: None,
                    at: self.now,
                };
            }
            let fold = Fold {
                after,
                until,
                now: self.now,
                cuts: cuts.clone(),
            };
            let folded = self.world.landing.fold(table, &fold).await?;
            self.report.folds += u64::from(folded.commits > 0);
            self.report.folded_commits += folded.commits;
            self.report.folded_rows += folded.rows;
            self.report.conflicts += u64::from(folded.conflict);
            young |= folded.young || folded.conflict || folded.commits > 0;
            match folded.next {
                Some(next) => after = next.max(after),
                None => {
                    break FoldMark {
                        after: 0,
                        commits: (!young).then_some(commits),
                        at: self.now,
                    };
                }
            }
        };
        // When it was looked at matters only when nothing is left to be looked at.
        let is_new = (next.after, next.commits) != (mark.after, mark.commits);
        if is_new || next.commits.is_some() {
            self.set_mark(table, FOLD, item, &next).await?;
        }
        Ok(())
    }

    async fn forget(&mut self, table: &TableName) -> Result<()> {
        let keep = i64::try_from(self.settings().idempotency.as_micros()).unwrap_or(i64::MAX);
        let before = Timestamp(self.now.0.saturating_sub(keep));
        loop {
            if !self.step() {
                return Ok(());
            }
            let forgotten = self.world.landing.forget(table, before).await?;
            self.report.keys_forgotten += forgotten.marks;
            self.report.conflicts += u64::from(forgotten.conflict);
            if !forgotten.more {
                return Ok(());
            }
        }
    }

    fn sweep(&self) -> Sweep {
        Sweep {
            now: self.now,
            grace: self.settings().grace,
            orphans: self.settings().orphans,
            most: REMOVED_MAX,
        }
    }

    /// Whether a table's objects are to be looked at: the item that says when they last were, if so.
    async fn sweep_due(&mut self, table: &TableName, commits: u64) -> Result<Option<Option<Item>>> {
        let (item, mark) = self.mark::<SweepMark>(table, SWEEP).await?;
        let busy = mark.waiting || mark.commits != commits;
        let wait = match busy {
            true => self.settings().grace,
            false => self.settings().orphans,
        };
        let due = item.is_none() || self.budget.all || self.now >= mark.at + wait;
        Ok((due && self.step()).then_some(item))
    }

    async fn swept(
        &mut self,
        table: &TableName,
        item: Option<Item>,
        commits: u64,
        swept: Swept,
    ) -> Result<()> {
        self.report.garbage_found += swept.found;
        self.report.garbage_removed += swept.removed;
        self.report.garbage_bytes += swept.bytes;
        self.report.garbage_waiting += swept.waiting;
        self.report.more |= swept.more;
        if swept.more {
            return Ok(());
        }
        let mark = SweepMark {
            at: self.now,
            commits,
            waiting: swept.waiting > 0,
        };
        self.set_mark(table, SWEEP, item, &mark).await
    }

    async fn mark<T: DeserializeOwned + Default>(
        &self,
        table: &TableName,
        what: &str,
    ) -> Result<(Option<Item>, T)> {
        let key = Key::new(items::maintenance(table), what);
        let item = self.world.state.get(&key).await?;
        let mark = item.as_ref().map(Item::decode).transpose()?;
        Ok((item, mark.unwrap_or_default()))
    }

    /// Writes down how far it came. Another process that did so first knows as much.
    async fn set_mark<T: Serialize>(
        &mut self,
        table: &TableName,
        what: &str,
        read: Option<Item>,
        mark: &T,
    ) -> Result<()> {
        let key = Key::new(items::maintenance(table), what);
        let write = Write::put(key, mark, Expect::as_read(read.as_ref()));
        let outcome = self.world.state.transact(vec![write]).await?;
        self.report.conflicts += u64::from(!outcome.is_committed());
        Ok(())
    }
}
