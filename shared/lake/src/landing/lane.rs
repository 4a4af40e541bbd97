//! The queue of one table's appends: while one commit is in flight the next gathers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::TableName;
use ports::{
    Error, Kind, Result,
    landing::{Append, Appended},
};
use tokio::sync::oneshot;

use super::{World, commit::Known, draft, group, schema};

/// Most rows of one commit, unless one append alone has more.
const ROWS_MAX: usize = 64 * 1024;
/// Most bytes of one commit, in memory, unless one append alone has more.
const BYTES_MAX: usize = 16 << 20;
/// Most idempotency keys of one commit: a transaction holds a hundred writes, and head, advance and listing are three.
const KEYS_MAX: usize = 96;

/// One landing table in this process.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) table: TableName,
    /// What the last commit left. Held while a commit of the table is in flight.
    pub(super) known: tokio::sync::Mutex<Option<Known>>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    appends: VecDeque<Pending>,
    /// A task is taking them.
    draining: bool,
}

/// An append somebody waits for.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) append: Append,
    pub(super) bytes: usize,
    answer: oneshot::Sender<Result<Appended>>,
}

impl Pending {
    /// Answers the caller; one that has gone away hears nothing.
    pub(super) fn answer(self, answer: Result<Appended>) {
        let _ = self.answer.send(answer);
    }
}

impl Lane {
    pub(super) fn new(table: TableName) -> Self {
        Self {
            table,
            known: tokio::sync::Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an append; true when the caller has to start the task.
    fn push(&self, pending: Pending) -> bool {
        let mut waiting = self.waiting();
        waiting.appends.push_back(pending);
        !std::mem::replace(&mut waiting.draining, true)
    }

    /// The next commit's appends, within bounds; empty when nothing waits, and then the task is over.
    fn take(&self) -> Vec<Pending> {
        let mut waiting = self.waiting();
        let (mut rows, mut bytes, mut keys) = (0, 0, 0);
        let mut group = Vec::new();
        while let Some(next) = waiting.appends.front() {
            rows += next.append.rows.num_rows();
            bytes += next.bytes;
            keys += usize::from(next.append.key.is_some());
            if !group.is_empty() && (rows > ROWS_MAX || bytes > BYTES_MAX || keys > KEYS_MAX) {
                break;
            }
            group.extend(waiting.appends.pop_front());
        }
        waiting.draining = !group.is_empty();
        group
    }
}

/// Queues an append and waits for the commit that takes it. The commit is a task of its own: a caller that goes away
/// stops nothing, and its rows are stored all the same.
pub(super) async fn append(
    world: &Arc<World>,
    lane: Arc<Lane>,
    mut append: Append,
) -> Result<Appended> {
    append.rows = schema::canonical(&append.table, append.rows)?;
    let (answer, answered) = oneshot::channel();
    let pending = Pending {
        bytes: draft::size(&append.rows),
        append,
        answer,
    };
    if lane.push(pending) {
        tokio::spawn(drain(Arc::clone(world), Arc::clone(&lane)));
    }
    answered.await.unwrap_or_else(|_| {
        Err(Error::new(Kind::Unavailable, "append to", &lane.table)
            .because("the commit was cut short; whether the rows were stored is unknown"))
    })
}

async fn drain(world: Arc<World>, lane: Arc<Lane>) {
    let mut draining = Draining {
        lane: &lane,
        over: false,
    };
    loop {
        let group = lane.take();
        if group.is_empty() {
            draining.over = true;
            return;
        }
        group::commit(&world, &lane, group).await;
    }
}

/// Lets go of the queue when the task is cut short: those who wait are told, and the next append starts a new task.
struct Draining<'a> {
    lane: &'a Lane,
    over: bool,
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        if !self.over {
            *self.lane.waiting() = Waiting::default();
        }
    }
}
