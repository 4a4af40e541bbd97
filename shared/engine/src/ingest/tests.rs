//! What ingest promises, over pretend worlds.

mod exact;
mod files;
mod webhooks;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{AsArray, RecordBatch},
    compute::{cast, concat_batches},
    datatypes::DataType,
};
use async_trait::async_trait;
use domain::{LiveSettings, Position, TableName, Timestamp, items::Column};
use ports::{
    Landing, Query, Result, Tables,
    landing::{Advanced, Append, Appended},
    query::{Catalog, Statement},
    tables::{Change, Pin, Rows, Scan, Staged},
};
use testkit::{MemoryQueue, MemoryState, RecordedAlerts, SeededChance, SimulatedClock};

use crate::World;

/// Landing tables that only remember.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    tables: Mutex<BTreeMap<TableName, Vec<Append>>>,
}

impl Remembered {
    fn appends(&self, table: &str) -> Vec<Append> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables
            .get(&table.parse().expect("a name"))
            .cloned()
            .unwrap_or_default()
    }

    /// A column of all rows, as text; `<null>` for NULL. All batches must have the same columns.
    fn column(&self, table: &str, name: &str) -> Vec<String> {
        let batches: Vec<RecordBatch> = self
            .appends(table)
            .into_iter()
            .map(|append| append.rows)
            .collect();
        let Some(first) = batches.first() else {
            return Vec::new();
        };
        let all = concat_batches(&first.schema(), &batches).expect("the same columns");
        let column = cast(
            all.column_by_name(name).expect("the column"),
            &DataType::Utf8,
        );
        let column = column.expect("text");
        let texts = column.as_string::<i32>().iter();
        texts
            .map(|text| text.unwrap_or("<null>").to_owned())
            .collect()
    }
}

#[async_trait]
impl Landing for Remembered {
    async fn append(&self, append: Append) -> Result<Appended> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let appends = tables.entry(append.table.clone()).or_default();
        let before: usize = appends.iter().map(|append| append.rows.num_rows()).sum();
        let first = before as u64 + 1;
        let last = (before + append.rows.num_rows()) as u64;
        appends.push(append);
        let position = Position {
            sequence: last,
            commits: appends.len() as u64,
        };
        Ok(Appended {
            first,
            last,
            position,
            duplicate: false,
        })
    }

    async fn declare(&self, _: &TableName, _: &[Column]) -> Result<()> {
        unreachable!("ingest declares nothing")
    }

    async fn advance(&self, _: &TableName, _: Timestamp) -> Result<Option<Advanced>> {
        unreachable!("ingest advances nothing")
    }
}

/// What ingest never asks for.
#[derive(Debug)]
struct Unasked;

#[async_trait]
impl Tables for Unasked {
    async fn pin(&self, _: &TableName) -> Result<Option<Pin>> {
        unreachable!("ingest pins nothing")
    }

    async fn scan(&self, _: &Pin, _: u64) -> Result<Scan> {
        unreachable!("ingest scans nothing")
    }

    async fn changes(&self, _: &ports::feed::Between) -> Result<ports::feed::Changes> {
        unreachable!("ingest follows nothing")
    }

    async fn schema(&self, _: &Pin) -> Result<arrow::datatypes::SchemaRef> {
        unreachable!("ingest reads no schema")
    }

    async fn stage(&self, _: Change) -> Result<Staged> {
        unreachable!("ingest stages nothing")
    }
}

#[async_trait]
impl Query for Unasked {
    async fn run(&self, _: &Statement, _: &Catalog) -> Result<Rows> {
        unreachable!("ingest runs no statement")
    }

    async fn describe(&self, _: &Statement, _: &Catalog) -> Result<arrow::datatypes::SchemaRef> {
        unreachable!("ingest plans no statement")
    }
}

fn world() -> (World, Arc<Remembered>, Arc<MemoryQueue>) {
    let (landing, queue) = (
        Arc::new(Remembered::default()),
        Arc::new(MemoryQueue::new()),
    );
    let world = World {
        state: Arc::new(MemoryState::new()),
        landing: landing.clone(),
        tables: Arc::new(Unasked),
        entries: Arc::new(testkit::NoEntries),
        searching: ports::search::Searching::default(),
        jobs: None,
        query: Arc::new(Unasked),
        queue: queue.clone(),
        clock: Arc::new(SimulatedClock::default()),
        chance: Arc::new(SeededChance::default()),
        alerts: Arc::new(RecordedAlerts::new()),
        project: Arc::default(),
        live: Arc::new(LiveSettings::default()),
    };
    (world, landing, queue)
}

fn column(name: &str, kind: &str) -> Column {
    Column {
        name: name.into(),
        kind: kind.into(),
    }
}
