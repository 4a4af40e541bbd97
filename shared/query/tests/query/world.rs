//! A lake in memory: tables of parquet files and batches, and an engine over them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use datafusion::{
    arrow::{
        array::{ArrayRef, Int64Array, RecordBatch, StringArray},
        compute::concat_batches,
        datatypes::{DataType, Field, Schema, SchemaRef},
        util::pretty::pretty_format_batches,
    },
    parquet::{arrow::ArrowWriter, file::properties::WriterProperties},
};
use domain::{TableName, items::Snapshot};
use futures::TryStreamExt;
use object_store::{ObjectStoreExt, memory::InMemory};
use ports::{
    Error, Kind, Query, Result, Tables,
    feed::{Between, Changes},
    query::{Catalog, Statement},
    tables::{Bounds, Change, FilePart, Part, Pin, Scan, Staged},
};
use query::Settings;

/// Rows of a row group of every file written here.
pub(crate) const GROUP_ROWS: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct FakeTables {
    scans: Mutex<BTreeMap<TableName, Scan>>,
    /// The `after` of every scan.
    pub(crate) asked: Mutex<Vec<u64>>,
}

impl FakeTables {
    fn find(&self, table: &TableName) -> Result<Scan> {
        let scans = self.scans.lock().expect("lock");
        scans
            .get(table)
            .cloned()
            .ok_or_else(|| Error::new(Kind::NotFound, "find table", table))
    }
}

#[async_trait]
impl Tables for FakeTables {
    async fn pin(&self, _: &TableName) -> Result<Option<Pin>> {
        Ok(None)
    }

    async fn scan(&self, pin: &Pin, after: u64) -> Result<Scan> {
        self.asked.lock().expect("lock").push(after);
        self.find(pin.table())
    }

    async fn changes(&self, between: &Between) -> Result<Changes> {
        Err(Error::new(Kind::NotFound, "compare", between.to.table()))
    }

    async fn schema(&self, pin: &Pin) -> Result<SchemaRef> {
        Ok(self.find(pin.table())?.schema)
    }

    async fn stage(&self, change: Change) -> Result<Staged> {
        Err(Error::new(Kind::Invalid, "stage", change.table))
    }
}

pub(crate) struct World {
    pub(crate) objects: Arc<InMemory>,
    pub(crate) tables: Arc<FakeTables>,
    pub(crate) query: Arc<dyn Query>,
    pub(crate) catalog: Catalog,
    files: usize,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings {
            memory: 256 << 20,
            spill: None,
            threads: 2,
        })
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let (objects, tables) = (Arc::new(InMemory::new()), Arc::new(FakeTables::default()));
        let query = query::engine(
            Arc::clone(&tables) as _,
            Arc::clone(&objects) as _,
            settings,
        )
        .expect("the engine starts");
        Self {
            objects,
            tables,
            query,
            catalog: Catalog::default(),
            files: 0,
        }
    }

    /// Writes a file of rows.
    pub(crate) async fn file(&mut self, batch: &RecordBatch, deleted: &[u64]) -> FilePart {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).expect("a writer");
        writer.write(batch).expect("written");
        writer.close().expect("closed");
        self.files += 1;
        let path = format!("data/{}.parquet", self.files);
        let size = bytes.len() as u64;
        self.objects
            .put(&path.as_str().into(), bytes.into())
            .await
            .expect("put");
        FilePart {
            path,
            size,
            rows: batch.num_rows() as u64,
            first_sequence: None,
            deleted: (!deleted.is_empty()).then(|| Arc::new(deleted.iter().copied().collect())),
            bounds: BTreeMap::new(),
        }
    }

    /// Declares a model table.
    pub(crate) fn model(&mut self, name: &str, schema: SchemaRef, files: Vec<FilePart>) {
        let table: TableName = name.parse().expect("a name");
        let parts = files
            .into_iter()
            .map(|file| Part::File(Arc::new(file)))
            .collect();
        self.tables
            .scans
            .lock()
            .expect("lock")
            .insert(table.clone(), Scan { schema, parts });
        let snapshot = Snapshot {
            metadata: String::from("m"),
            id: 1,
        };
        self.catalog
            .tables
            .insert(table.clone(), Pin::Model { table, snapshot });
    }

    /// A model table of one file per batch.
    pub(crate) async fn model_of(&mut self, name: &str, batches: &[RecordBatch]) {
        let mut files = Vec::new();
        for batch in batches {
            files.push(self.file(batch, &[]).await);
        }
        self.model(name, batches[0].schema(), files);
    }

    /// Declares a landing table.
    pub(crate) fn landing(
        &mut self,
        name: &str,
        schema: SchemaRef,
        parts: Vec<Part>,
        through: u64,
    ) {
        let table: TableName = name.parse().expect("a name");
        let scan = Scan {
            schema: Arc::clone(&schema),
            parts,
        };
        self.tables
            .scans
            .lock()
            .expect("lock")
            .insert(table.clone(), scan);
        self.catalog.tables.insert(
            table.clone(),
            Pin::Landing {
                table,
                schema,
                through,
            },
        );
    }

    /// A landing table of payloads in memory, sequences from 1.
    pub(crate) fn payloads(&mut self, name: &str, payloads: &[&str]) {
        let last = i64::try_from(payloads.len()).expect("few");
        let batch = batch(vec![
            ("payload", Arc::new(StringArray::from(payloads.to_vec()))),
            ("_seq", Arc::new(Int64Array::from_iter_values(1..=last))),
        ]);
        self.landing(
            name,
            batch.schema(),
            vec![Part::Memory(batch)],
            last.unsigned_abs(),
        );
    }

    pub(crate) fn view(&mut self, name: &str, sql: &str) {
        self.catalog
            .views
            .insert(name.parse().expect("a name"), sql.to_owned());
    }

    pub(crate) async fn run(&self, statement: &Statement) -> Result<RecordBatch> {
        let rows = self.query.run(statement, &self.catalog).await?;
        let batches: Vec<RecordBatch> = rows.stream.try_collect().await?;
        Ok(concat_batches(&rows.schema, &batches).expect("batches of one schema"))
    }

    pub(crate) async fn batch(&self, sql: &str) -> RecordBatch {
        match self.run(&Statement::new(sql)).await {
            Ok(batch) => batch,
            Err(error) => panic!("{sql}: {}", error.chain()),
        }
    }

    /// Rows as text: columns joined by `|`, rows by a space.
    pub(crate) async fn text(&self, sql: &str) -> String {
        rows(&self.batch(sql).await).join(" ")
    }

    pub(crate) async fn error(&self, sql: &str) -> Error {
        match self.run(&Statement::new(sql)).await {
            Ok(batch) => panic!("{sql}: {:?}", rows(&batch)),
            Err(error) => error,
        }
    }

    /// The statement is refused as `Invalid` and the message holds `needle`.
    pub(crate) async fn refused(&self, sql: &str, needle: &str) {
        let error = self.error(sql).await;
        let message = error.chain();
        assert_eq!(error.kind, Kind::Invalid, "{sql}: {message}");
        assert!(message.contains(needle), "{sql}: {message}");
    }
}

pub(crate) fn rows(batch: &RecordBatch) -> Vec<String> {
    let table = pretty_format_batches(std::slice::from_ref(batch))
        .expect("printable")
        .to_string();
    let lines = table.lines().skip(3).filter(|line| line.starts_with('|'));
    lines
        .map(|line| {
            let cells = line.trim_matches('|').split('|').map(str::trim);
            cells.collect::<Vec<_>>().join("|")
        })
        .collect()
}

pub(crate) fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(schema, arrays).expect("columns of one length")
}

pub(crate) fn ints(values: Range<i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

pub(crate) fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields = columns
        .iter()
        .map(|(name, kind)| Field::new(*name, kind.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

pub(crate) fn bounds(min: ArrayRef, max: ArrayRef) -> Bounds {
    Bounds {
        min: Some(min),
        max: Some(max),
        nulls: Some(0),
    }
}
