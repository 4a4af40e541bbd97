//! A lake in memory, and a reader that knows nothing of the lake's insides.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use arrow::{
    array::{Array, ArrayRef, RecordBatch},
    util::display::array_value_to_string,
};
use async_trait::async_trait;
use domain::{
    OnSchemaChange, Position, TableName, Timestamp,
    items::{self, HEAD, Head, Snapshot},
};
use futures::stream;
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ports::{
    Chance, Clock, Objects, Result, State, Tables,
    state::{Expect, Item, Key, Outcome, Span, Write},
    tables::{Apply, Change, Part, Pin, Rows, Staged},
};

use crate::tables::{Lake, limits::Limits};

/// State items in memory.
#[derive(Debug, Default)]
pub(super) struct TinyState {
    items: Mutex<(u64, BTreeMap<Key, Item>)>,
}

#[async_trait]
impl State for TinyState {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        let items = self.items.lock().expect("whole");
        Ok(keys.iter().map(|key| items.1.get(key).cloned()).collect())
    }

    async fn query(&self, _: &Span) -> Result<Vec<Item>> {
        Ok(Vec::new())
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        let mut items = self.items.lock().expect("whole");
        let broken = |write: &Write| match (write.expect(), items.1.get(write.key())) {
            (Expect::Any, _) | (Expect::Absent, None) => false,
            (Expect::Version(wanted), Some(item)) => item.version != wanted,
            (Expect::Absent, Some(_)) | (Expect::Version(_), None) => true,
        };
        let lost: Vec<usize> = (0..writes.len())
            .filter(|at| broken(&writes[*at]))
            .collect();
        if !lost.is_empty() {
            return Ok(Outcome::Conflict(lost));
        }
        let versions = writes.into_iter().map(|write| {
            items.0 += 1;
            let version = items.0;
            if let Write::Put { key, value, .. } = write {
                items.1.insert(
                    key.clone(),
                    Item {
                        key,
                        version,
                        value,
                    },
                );
            }
            version
        });
        Ok(Outcome::Committed(versions.collect()))
    }
}

/// Numbered ids.
#[derive(Debug, Default)]
struct Numbers(AtomicU64);

impl Chance for Numbers {
    fn id(&self, now: Timestamp) -> String {
        format!(
            "{:016x}-{:08x}",
            now.0,
            self.0.fetch_add(1, Ordering::Relaxed)
        )
    }

    fn fraction(&self) -> f64 {
        0.5
    }
}

/// A clock that moves when looked at.
#[derive(Debug, Default)]
struct Ticks(AtomicI64);

#[async_trait]
impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000_000_000_000 + self.0.fetch_add(1_000, Ordering::Relaxed))
    }

    async fn sleep_until(&self, _: Timestamp) {}
}

/// Limits under which even the smallest table keeps its deleted rows and merges its files.
pub(super) fn tight() -> Limits {
    Limits {
        tiny_bytes: 0,
        small_bytes: 1_400,
        small_files: 5,
        fold_bytes: 5_000,
        delete_files: 3,
        manifests: 4,
        snapshots: 6,
        ..Limits::default()
    }
}

/// A lake with one table.
pub(super) struct World {
    pub state: Arc<TinyState>,
    pub objects: Objects,
    pub lake: Lake,
    pub table: TableName,
    pub snapshot: Option<Snapshot>,
    limits: Limits,
}

impl World {
    pub(super) fn new(limits: Limits) -> Self {
        Self::over(Arc::new(InMemory::new()), "memory:///lake", limits)
    }

    pub(super) fn over(objects: Objects, root: &str, limits: Limits) -> Self {
        let state = Arc::new(TinyState::default());
        let (chance, clock) = (Arc::new(Numbers::default()), Arc::new(Ticks::default()));
        let mut lake = Lake::new(
            state.clone(),
            objects.clone(),
            root.to_owned(),
            chance,
            clock,
        );
        lake.limits = limits;
        let table = "silver.orders".parse().expect("a name");
        Self {
            state,
            objects,
            lake,
            table,
            snapshot: None,
            limits,
        }
    }

    /// A lake of the same objects that remembers nothing.
    pub(super) fn cold(&self) -> Lake {
        let lake = &self.lake;
        let (state, objects) = (lake.state.clone(), lake.objects.clone());
        let root = lake.root.location("");
        let mut cold = Lake::new(
            state,
            objects,
            root,
            lake.chance.clone(),
            lake.clock.clone(),
        );
        cold.limits = self.limits;
        cold
    }

    pub(super) fn change(&self, apply: Apply, batches: Vec<RecordBatch>) -> Change {
        let schema = batches[0].schema();
        Change {
            table: self.table.clone(),
            base: self.snapshot.clone(),
            pointers: BTreeMap::new(),
            apply,
            on_schema_change: OnSchemaChange::default(),
            rows: Rows {
                schema,
                stream: Box::pin(stream::iter(batches.into_iter().map(Ok))),
            },
            restamp_from: None,
            properties: BTreeMap::from([("watermark".to_owned(), "7".to_owned())]),
        }
    }

    pub(super) async fn commit(&mut self, staged: &Staged) {
        let outcome = self
            .state
            .transact(staged.writes.clone())
            .await
            .expect("answers");
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        let head = Head {
            rebuilt: 0,
            position: Position {
                sequence: 0,
                commits: 1,
            },
            rows: staged.rows,
            advanced_at: Timestamp(0),
            columns: Vec::new(),
            snapshot: Some(staged.snapshot.clone()),
        };
        let write = Write::put(
            Key::new(items::table(&self.table), HEAD),
            &head,
            Expect::Any,
        );
        self.state.transact(vec![write]).await.expect("answers");
        self.snapshot = Some(staged.snapshot.clone());
    }

    /// Stages and commits.
    pub(super) async fn apply(&mut self, apply: Apply, batches: Vec<RecordBatch>) -> Staged {
        let staged = self
            .lake
            .stage(self.change(apply, batches))
            .await
            .expect("stages");
        self.commit(&staged).await;
        staged
    }

    pub(super) fn pin(&self, snapshot: &Snapshot) -> Pin {
        Pin::Model {
            table: self.table.clone(),
            snapshot: snapshot.clone(),
        }
    }

    /// Rows of the published table, in text, sorted.
    pub(super) async fn rows(&self) -> Vec<Vec<String>> {
        let pin = self
            .lake
            .pin(&self.table)
            .await
            .expect("pins")
            .expect("is there");
        read(&self.lake, &self.objects, &pin).await
    }
}

/// Rows of a pin, in text, sorted.
pub(super) async fn read(lake: &Lake, objects: &Objects, pin: &Pin) -> Vec<Vec<String>> {
    let scan = lake.scan(pin, 0).await.expect("scans");
    let mut rows = Vec::new();
    for part in scan.parts {
        let Part::File(file) = part else {
            panic!("model tables are files")
        };
        let object = objects
            .get(&Path::from(file.path.as_str()))
            .await
            .expect("is there");
        let bytes = object.bytes().await.expect("reads");
        assert_eq!(bytes.len() as u64, file.size);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("parquet");
        let mut number = 0;
        for batch in reader.build().expect("reads") {
            let batch = batch.expect("decodes");
            let columns: Vec<_> = scan
                .schema
                .fields()
                .iter()
                .map(|field| {
                    let column = batch.column_by_name(field.name()).cloned();
                    column.inspect(|c| assert!(c.data_type().equals_datatype(field.data_type())))
                })
                .collect();
            for row in 0..batch.num_rows() {
                let deleted = file.deleted.as_ref().is_some_and(|d| d.contains(number));
                number += 1;
                if !deleted {
                    rows.push(columns.iter().map(|c| text(c.as_ref(), row)).collect());
                }
            }
        }
        assert_eq!(number, file.rows);
    }
    rows.sort();
    rows
}

/// A value in text.
pub(super) fn text(column: Option<&ArrayRef>, row: usize) -> String {
    match column {
        Some(column) if column.is_valid(row) => array_value_to_string(column, row).expect("prints"),
        _ => "NULL".to_owned(),
    }
}
