//! A pretend lake and a pretend query engine, just enough to see what the engine does with the real ones: rows are
//! sequence numbers, and every query yields those above its watermark of the only table it reads.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::{
    array::{Int64Array, RecordBatch},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use async_trait::async_trait;
use domain::{
    LiveSettings, Position, Project, Severity, TableName, Timestamp,
    items::{self, Advance, BatchData, Column, Head, Snapshot},
};
use engine::World;
use futures::{StreamExt, TryStreamExt, stream};
use ports::{
    Error, Kind, Landing, Query, Result, State, Tables,
    feed::{Between, Changes},
    landing::{Advanced, Append, Appended},
    query::{Catalog, Statement},
    state::{Expect, Key, Write, pack},
    tables::{Change, Pin, Rows, Scan, Staged},
};
use testkit::{MemoryQueue, NoEntries, RecordedAlerts, SeededChance, SimulatedClock};

/// A world and the strings it hangs on.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) clock: Arc<SimulatedClock>,
    pub(crate) alerts: Arc<RecordedAlerts>,
    pub(crate) lake: Arc<Lake>,
}

/// A table name.
pub(crate) fn table(name: &str) -> TableName {
    name.parse().expect("a table name")
}

/// Settings without jitter.
pub(crate) fn exact() -> LiveSettings {
    LiveSettings {
        jitter: 0.0,
        ..LiveSettings::default()
    }
}

/// landing.ev -> bronze.ev -> silver.ev, both appended.
pub(crate) fn chain() -> Project {
    let model = |name: &str, input: &str| {
        let text = format!(
            "@config materialized=incremental, live=true, incremental_strategy=append, \
             incremental_filter=WHERE _seq > {{watermark}}\n\nSELECT _seq FROM {input}\n"
        );
        (format!("transform/{}.sql", name.replace('.', "/")), text)
    };
    project(&[
        model("bronze.ev", "landing.ev"),
        model("silver.ev", "bronze.ev"),
    ])
}

/// A project that must load.
pub(crate) fn project(files: &[(String, String)]) -> Project {
    let (project, findings) = Project::load(files, None);
    let errors: Vec<_> = findings
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    project
}

impl Lab {
    pub(crate) fn new(state: Arc<dyn State>, project: Project, live: LiveSettings) -> Self {
        let clock = Arc::new(SimulatedClock::default());
        let alerts = Arc::new(RecordedAlerts::new());
        let lake = Arc::new(Lake {
            state: state.clone(),
            trouble: Mutex::default(),
        });
        let world = World {
            state,
            landing: lake.clone(),
            tables: lake.clone(),
            entries: Arc::new(NoEntries),
            searching: ports::search::Searching::default(),
            jobs: None,
            query: lake.clone(),
            queue: Arc::new(MemoryQueue::new()),
            clock: clock.clone(),
            chance: Arc::new(SeededChance::new(1)),
            alerts: alerts.clone(),
            project: Arc::new(project),
            live: Arc::new(live),
        };
        Self {
            world,
            clock,
            alerts,
            lake,
        }
    }

    /// Commits rows to a landing table, announced to nobody.
    pub(crate) async fn land(&self, name: &str, rows: u64) -> Position {
        let key = Key::new(items::table(&table(name)), items::HEAD);
        let item = self.world.state.get(&key).await.expect("state answers");
        let before = item
            .as_ref()
            .map(|item| item.decode::<Head>().expect("a head").position);
        let before = before.unwrap_or_default();
        let to = before.sequence + rows;
        let position = Position {
            sequence: to,
            commits: before.commits + 1,
        };
        let now = self.world.clock.now();
        let head = Head {
            rebuilt: 0,
            position,
            rows: to,
            advanced_at: now,
            columns: Vec::new(),
            snapshot: None,
        };
        let advance = Advance {
            from: before.sequence,
            to,
            rows,
            origin_at: now,
            committed_at: now,
            data: Some(BatchData::Inline),
        };
        let commit = Key::new(items::table(&table(name)), items::advance(to));
        let writes = vec![
            Write::put(key, &head, Expect::as_read(item.as_ref())),
            Write::Put {
                key: commit,
                value: pack(&advance, b""),
                expect: Expect::Absent,
            },
        ];
        let outcome = self
            .world
            .state
            .transact(writes)
            .await
            .expect("state answers");
        assert!(outcome.is_committed());
        position
    }
}

/// What goes wrong with statements over a table: its name and the kind of the error.
type Trouble = Option<(TableName, Kind)>;

/// The pretend lake.
#[derive(Debug)]
pub(crate) struct Lake {
    state: Arc<dyn State>,
    trouble: Mutex<Trouble>,
}

impl Lake {
    /// Lets statements that read a table fail, or none any more.
    pub(crate) fn trouble(&self, trouble: Trouble) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("_seq", DataType::Int64, true)]))
}

fn unused<T>() -> Result<T> {
    Err(Error::new(Kind::Invalid, "pretend", "this"))
}

#[async_trait]
impl Landing for Lake {
    async fn append(&self, _: Append) -> Result<Appended> {
        unused()
    }

    async fn declare(&self, _: &TableName, _: &[Column]) -> Result<()> {
        unused()
    }

    async fn advance(&self, _: &TableName, _: Timestamp) -> Result<Option<Advanced>> {
        Ok(None)
    }
}

#[async_trait]
impl Query for Lake {
    async fn run(&self, statement: &Statement, catalog: &Catalog) -> Result<Rows> {
        let pin = catalog.tables.values().next().expect("one table");
        if let Some((table, kind)) = &*self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
            && table == pin.table()
        {
            return Err(Error::new(*kind, "run", "statement").because("as the test wants"));
        }
        // A model's snapshot is named after the last sequence it holds.
        let through = match pin {
            Pin::Landing { through, .. } => *through,
            Pin::Model { snapshot, .. } => u64::try_from(snapshot.id).expect("not negative"),
        };
        let watermark = statement
            .sql
            .rsplit('>')
            .next()
            .and_then(|n| n.trim().parse().ok());
        let watermark: u64 = watermark.unwrap_or(0);
        let rows = (watermark + 1..=through).map(|n| i64::try_from(n).expect("small"));
        let column = Arc::new(Int64Array::from_iter_values(rows));
        let batch = RecordBatch::try_new(columns(), vec![column]).expect("a batch");
        Ok(Rows {
            schema: columns(),
            stream: stream::iter([Ok(batch)]).boxed(),
        })
    }

    async fn describe(&self, _: &Statement, _: &Catalog) -> Result<SchemaRef> {
        Ok(columns())
    }
}

#[async_trait]
impl Tables for Lake {
    async fn pin(&self, _: &TableName) -> Result<Option<Pin>> {
        unused()
    }

    async fn scan(&self, _: &Pin, _: u64) -> Result<Scan> {
        unused()
    }

    async fn changes(&self, _: &Between) -> Result<Changes> {
        unused()
    }

    async fn schema(&self, _: &Pin) -> Result<SchemaRef> {
        Ok(columns())
    }

    async fn stage(&self, change: Change) -> Result<Staged> {
        let key = Key::new(items::CATALOG, change.table.to_string());
        let pointer = self.state.get(&key).await?;
        let batches: Vec<RecordBatch> = change.rows.stream.try_collect().await?;
        let added = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let before = change.base.as_ref().map_or(0, |base| base.id);
        let after = before + i64::try_from(added).expect("small");
        Ok(Staged {
            snapshot: Snapshot {
                metadata: format!("{}/{after}", change.table),
                id: after,
            },
            changed: added > 0,
            added,
            deleted: 0,
            rows: u64::try_from(after).expect("not negative"),
            sequence_max: (added > 0).then(|| u64::try_from(after).expect("not negative")),
            schema: columns(),
            writes: vec![Write::put(key, &after, Expect::as_read(pointer.as_ref()))],
            tombstones: None,
            refused: Vec::new(),
            late: Vec::new(),
            truncated: None,
            unavailable: 0,
        })
    }
}
