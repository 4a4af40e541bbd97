//! Reads: a few connections, lent to blocking threads.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use ports::{
    Error, Kind, Result,
    state::{Item, Key, Span},
};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::{failure::failure, file, witness::Witness};

/// Most reads at one time.
const READERS_MAX: usize = 8;

/// The four forms of a query over a span.
macro_rules! select {
    ($bound:literal, $order:literal) => {
        concat!(
            "SELECT sort, version, value FROM items WHERE partition = ?1 AND sort >= ?2 ",
            $bound,
            " ORDER BY sort ",
            $order,
            " LIMIT ?3"
        )
    };
}

const READ: &str = "read state";

/// Connections that read.
#[derive(Debug)]
pub(super) struct Readers {
    path: Arc<Path>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    /// Never writes, so that every commit of any connection changes what it sees.
    watch: Mutex<Connection>,
    witness: Witness,
}

impl Readers {
    pub(super) fn new(path: Arc<Path>, watch: Connection, witness: Witness) -> Self {
        Self {
            path,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(READERS_MAX)),
            watch: Mutex::new(watch),
            witness,
        }
    }

    /// Reads items as of one moment, in the order asked.
    pub(super) async fn get_many(self: &Arc<Self>, keys: Vec<Key>) -> Result<Vec<Option<Item>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.read(move |connection| get_many(connection, keys))
            .await
    }

    /// Reads a stretch of one partition.
    pub(super) async fn query(self: &Arc<Self>, span: Span) -> Result<Vec<Item>> {
        self.read(move |connection| query(connection, &span)).await
    }

    /// SQLite's own count of changes, as one connection sees them; of a file that is where it was opened.
    pub(super) async fn change_counter(self: &Arc<Self>) -> Result<u64> {
        let readers = self.clone();
        self.blocking(move || {
            readers.witness.check(READ)?;
            let watch = readers.watch.lock().unwrap_or_else(PoisonError::into_inner);
            let counter = watch.prepare_cached("PRAGMA data_version");
            let mut counter = counter.map_err(|error| failure(READ, &readers.path, &error))?;
            counter
                .query_row([], |row| row.get::<_, i64>(0))
                .map(i64::cast_unsigned)
                .map_err(|error| failure(READ, &readers.path, &error))
        })
        .await
    }

    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|error| self.unavailable().because(error))?;
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let readers = self.clone();
        let joined = tokio::task::spawn_blocking(move || {
            // Held to the end of the work, even when nobody waits for it any more.
            let _permit = permit;
            let connection = idle.map_or_else(|| file::connect(&readers.path), Ok)?;
            let answer = work(&connection).map_err(|e| failure(READ, &readers.path, &e))?;
            // After an error it is closed instead: the next read begins afresh.
            readers
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
            Ok(answer)
        });
        joined
            .await
            .map_err(|error| self.unavailable().because(error))?
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let joined = tokio::task::spawn_blocking(work).await;
        joined.map_err(|error| self.unavailable().because(error))?
    }

    fn unavailable(&self) -> Error {
        Error::new(Kind::Unavailable, READ, self.path.display())
    }
}

fn get_many(connection: &Connection, keys: Vec<Key>) -> rusqlite::Result<Vec<Option<Item>>> {
    // One statement is one moment by itself.
    let moment = (keys.len() > 1)
        .then(|| connection.unchecked_transaction())
        .transpose()?;
    let mut items = Vec::with_capacity(keys.len());
    {
        let mut statement = connection.prepare_cached(
            "SELECT version, value FROM items WHERE partition = ?1 AND sort = ?2",
        )?;
        for key in keys {
            let stored = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get(1)?));
            let found: Option<(i64, Vec<u8>)> = statement
                .query_row([&key.partition, &key.sort], stored)
                .optional()?;
            items.push(found.map(|(version, value)| Item {
                key,
                version: version.cast_unsigned(),
                value: Bytes::from(value),
            }));
        }
    }
    if let Some(moment) = moment {
        moment.finish()?;
    }
    Ok(items)
}

fn query(connection: &Connection, span: &Span) -> rusqlite::Result<Vec<Item>> {
    let sql = match (span.until.is_some(), span.reverse) {
        (true, false) => select!("AND sort < ?4", "ASC"),
        (true, true) => select!("AND sort < ?4", "DESC"),
        (false, false) => select!("", "ASC"),
        (false, true) => select!("", "DESC"),
    };
    let item = |row: &rusqlite::Row<'_>| {
        Ok(Item {
            key: Key::new(span.partition.as_str(), row.get::<_, String>(0)?),
            version: row.get::<_, i64>(1)?.cast_unsigned(),
            value: Bytes::from(row.get::<_, Vec<u8>>(2)?),
        })
    };
    let Span {
        partition,
        from,
        until,
        ..
    } = span;
    let limit = i64::try_from(span.limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    let rows = match until {
        Some(until) => statement.query_map(params![partition, from, limit, until], item),
        None => statement.query_map(params![partition, from, limit], item),
    };
    rows?.collect()
}
