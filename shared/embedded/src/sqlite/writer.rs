//! The one thread of a process that writes, and how it shares a commit among all who wait.

use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread,
};

use bytes::Bytes;
use ports::{
    Error, Kind, Result,
    state::{Expect, Key, Outcome, Write},
};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::{
    failure::{blames_one, failure},
    mirror::Row,
    witness::Witness,
};

/// Most transactions in one commit: bounds how long the first of them waits.
const GROUP_MAX: usize = 256;

const WRITE: &str = "write state";

/// One write, and what it does to the catalog's mirror.
#[derive(Debug)]
pub(super) struct Entry {
    write: Write,
    row: Option<Row>,
}

impl Entry {
    pub(super) fn new(write: Write) -> Result<Self> {
        Ok(Self {
            row: Row::of(&write)?,
            write,
        })
    }
}

/// A transaction that waits for its turn.
#[derive(Debug)]
struct Job {
    entries: Vec<Entry>,
    answer: oneshot::Sender<Result<Outcome>>,
}

/// The way to the thread. It ends when the last of these is dropped, after all that was sent.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    path: Arc<Path>,
    jobs: mpsc::Sender<Job>,
}

impl Writer {
    pub(super) fn start(connection: Connection, path: Arc<Path>, witness: Witness) -> Result<Self> {
        let (jobs, waiting) = mpsc::channel();
        let shared = path.clone();
        thread::Builder::new()
            .name("state-writer".to_owned())
            .spawn(move || run(&connection, (&shared, &witness), &waiting))
            .map_err(|e| Error::new(Kind::Unavailable, "open state", path.display()).because(e))?;
        Ok(Self { path, jobs })
    }

    /// Sends a transaction and waits for its answer. It happens even if the caller stops waiting.
    pub(super) async fn transact(&self, entries: Vec<Entry>) -> Result<Outcome> {
        let stopped = || {
            let error = Error::new(Kind::Unavailable, WRITE, self.path.display());
            error.because("its writer has stopped")
        };
        let (answer, answered) = oneshot::channel();
        self.jobs
            .send(Job { entries, answer })
            .map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

fn run(connection: &Connection, file: (&Path, &Witness), waiting: &mpsc::Receiver<Job>) {
    let (path, witness) = file;
    while let Ok(first) = waiting.recv() {
        let mut group = vec![first];
        group.extend(waiting.try_iter().take(GROUP_MAX - 1));
        if witness.check(WRITE).is_ok() {
            settle(connection, path, group);
            continue;
        }
        for job in group {
            // Looked at again, for each its own error: files that are back are written to.
            match witness.check(WRITE) {
                Ok(()) => settle(connection, path, vec![job]),
                Err(error) => drop(job.answer.send(Err(error))),
            }
        }
    }
}

/// Commits a group and answers everybody in it.
fn settle(connection: &Connection, path: &Path, group: Vec<Job>) {
    match commit(connection, &group) {
        Ok(outcomes) => {
            for (job, outcome) in group.into_iter().zip(outcomes) {
                // Who no longer waits does not need the answer.
                let _ = job.answer.send(Ok(outcome));
            }
        }
        Err(error) if group.len() > 1 && blames_one(&error) => {
            for job in group {
                settle(connection, path, vec![job]);
            }
        }
        Err(error) => {
            for job in group {
                let _ = job.answer.send(Err(failure(WRITE, path, &error)));
            }
        }
    }
}

/// Applies every transaction of the group whose conditions hold, in order, and makes them durable
/// together. After an error nothing of the group has happened.
fn commit(connection: &Connection, group: &[Job]) -> rusqlite::Result<Vec<Outcome>> {
    // Immediate: it waits for other processes here, before the first condition is read.
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let before: i64 = transaction
        .prepare_cached("SELECT last FROM versions WHERE id = 1")?
        .query_row([], |row| row.get(0))?;
    let mut version = before;
    let mut outcomes = Vec::with_capacity(group.len());
    for job in group {
        outcomes.push(attempt(&transaction, &job.entries, &mut version)?);
    }
    if version != before {
        transaction
            .prepare_cached("UPDATE versions SET last = ?1 WHERE id = 1")?
            .execute([version])?;
    }
    transaction.commit()?;
    Ok(outcomes)
}

/// Checks every condition of one transaction, then does all of it or nothing.
fn attempt(
    connection: &Connection,
    entries: &[Entry],
    version: &mut i64,
) -> rusqlite::Result<Outcome> {
    let mut failed = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if !holds(connection, entry.write.key(), entry.write.expect())? {
            failed.push(index);
        }
    }
    if !failed.is_empty() {
        return Ok(Outcome::Conflict(failed));
    }
    let mut versions = Vec::with_capacity(entries.len());
    for entry in entries {
        versions.push(apply(connection, &entry.write, version)?);
        if let Some(row) = &entry.row {
            row.apply(connection)?;
        }
    }
    Ok(Outcome::Committed(versions))
}

fn holds(connection: &Connection, key: &Key, expect: Expect) -> rusqlite::Result<bool> {
    if expect == Expect::Any {
        return Ok(true);
    }
    let found: Option<i64> = connection
        .prepare_cached("SELECT version FROM items WHERE partition = ?1 AND sort = ?2")?
        .query_row([&key.partition, &key.sort], |row| row.get(0))
        .optional()?;
    Ok(match expect {
        Expect::Any => true,
        Expect::Absent => found.is_none(),
        Expect::Version(version) => found.is_some_and(|found| found.cast_unsigned() == version),
    })
}

fn apply(connection: &Connection, write: &Write, version: &mut i64) -> rusqlite::Result<u64> {
    match write {
        Write::Put { key, value, .. } => {
            *version += 1;
            put(connection, key, value, *version)?;
            Ok(version.cast_unsigned())
        }
        Write::Delete { key, .. } => {
            connection
                .prepare_cached("DELETE FROM items WHERE partition = ?1 AND sort = ?2")?
                .execute([&key.partition, &key.sort])?;
            Ok(0)
        }
        Write::Check { .. } => Ok(0),
    }
}

fn put(connection: &Connection, key: &Key, value: &Bytes, version: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO items (partition, sort, version, value) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (partition, sort)
             DO UPDATE SET version = excluded.version, value = excluded.value",
        )?
        .execute(params![key.partition, key.sort, version, &value[..]])?;
    Ok(())
}
