//! Model tables: Apache Iceberg v2, merge-on-read.
//!
//! A change writes new data files, and for the rows it replaces one file of position deletes; a snapshot is made of
//! them, and the catalog pointer that makes it the table is moved by the caller's transaction. Until then nobody sees
//! anything, and after it nothing that somebody holds a pin on is touched.
//!
//! ## Invariants
//! * **M-1** one row per key after a merge
//! * **C-2** readers never see what was staged and not committed
//! * **W-2** the pointer moves only from the snapshot the change was based on

mod bounds;
mod cache;
mod chain;
mod changes;
mod collect;
mod columns;
mod commit;
mod compact;
mod deletes;
mod draft;
mod events;
mod fill;
mod flags;
mod gap;
mod gaps;
mod intake;
mod keymap;
mod keys;
mod limits;
mod load;
mod manifests;
mod mend;
mod names;
mod origins;
mod pointer;
mod probe;
mod prune;
mod rank;
mod read;
mod replace;
mod rewrite;
mod shape;
mod stage;
mod table;
#[cfg(test)]
mod tests;
mod tombstones;
mod truncate;
mod types;
mod upkeep;
mod verdict;
mod winners;
mod write;

use std::{fmt, sync::Arc};

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use domain::{
    TableName, Timestamp,
    items::{self, HEAD, Head, Snapshot},
};
use ports::{
    Chance, Clock, Objects, Result, State, Tables,
    feed::{Between, Changes},
    state::Key,
    tables::{Change, Pin, Scan, Staged, damaged},
    upkeep::{Collected, Compacted, Keep, Sweep, Swept},
};

pub(crate) use read::FileReader;

use self::{cache::Cache, limits::Limits, names::Root, read::Footers, table::Table};

/// Tables remembered by a process.
const TABLES_KEPT: usize = 256;
/// Scans of landing tables whose beginning is remembered by a process.
const ARRIVALS_KEPT: usize = 256;
/// Footers of data files remembered by a process.
const FOOTERS_KEPT: usize = 256;

/// The lake's tables over an object store and a state store.
pub struct Lake {
    state: Arc<dyn State>,
    objects: Objects,
    root: Root,
    chance: Arc<dyn Chance>,
    clock: Arc<dyn Clock>,
    tables: Cache<Snapshot, Arc<Table>>,
    footers: Footers,
    /// When the first row after a sequence of a landing table arrived, as scans found it.
    arrivals: Cache<(TableName, u64), Timestamp>,
    limits: Limits,
}

impl fmt::Debug for Lake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lake")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Lake {
    /// A lake whose warehouse outside readers find at `root_uri`, such as `file:///srv/warehouse` or `s3://bucket`.
    #[must_use]
    pub fn new(
        state: Arc<dyn State>,
        objects: Objects,
        root_uri: String,
        chance: Arc<dyn Chance>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let root = Root::new(&root_uri);
        let (tables, footers) = (Cache::new(TABLES_KEPT), Cache::new(FOOTERS_KEPT));
        let limits = Limits::default();
        Self {
            state,
            objects,
            root,
            chance,
            clock,
            tables,
            footers,
            arrivals: Cache::new(ARRIVALS_KEPT),
            limits,
        }
    }

    /// What there is to read of a landing table in `(after, through]`.
    async fn landed(
        &self,
        table: &TableName,
        schema: &SchemaRef,
        after: u64,
        through: u64,
    ) -> Result<Scan> {
        let (state, objects) = (&*self.state, &self.objects);
        let scan = crate::landing::scan(state, objects, table, schema, after, through);
        let (scan, arrived) = scan.await?;
        if let Some(at) = arrived {
            self.arrivals.put((table.clone(), after), at);
        }
        Ok(scan)
    }

    /// A table at a snapshot: remembered, or read.
    async fn table(&self, table: &TableName, snapshot: &Snapshot) -> Result<Arc<Table>> {
        if let Some(kept) = self.tables.get(snapshot) {
            return Ok(kept);
        }
        let read = load::load(&self.objects, &self.root, table, snapshot).await;
        let read = Arc::new(read.map_err(|error| damaged(error, table))?);
        self.tables.put(snapshot.clone(), read.clone());
        Ok(read)
    }
}

#[async_trait]
impl Tables for Lake {
    async fn pin(&self, table: &TableName) -> Result<Option<Pin>> {
        if table.is_landing() {
            return crate::landing::pin(&*self.state, table).await;
        }
        let Some(item) = self.state.get(&Key::new(items::table(table), HEAD)).await? else {
            return Ok(None);
        };
        match item.decode::<Head>()?.snapshot {
            Some(snapshot) => Ok(Some(Pin::Model {
                table: table.clone(),
                snapshot,
            })),
            // Quarantine tables are of landing form outside of the landing schema.
            None => crate::landing::pin(&*self.state, table).await,
        }
    }

    fn accepts(&self, table: &TableName, columns: &Schema) -> Result<()> {
        columns::incoming(table, columns).map(drop)
    }

    async fn scan(&self, pin: &Pin, after: u64) -> Result<Scan> {
        match pin {
            Pin::Landing {
                table,
                schema,
                through,
            } => self.landed(table, schema, after, *through).await,
            Pin::Model { table, snapshot } => Ok(self.table(table, snapshot).await?.scan()),
        }
    }

    async fn changes(&self, between: &Between) -> Result<Changes> {
        let changes = changes::changes(self, between).await;
        changes.map_err(|error| damaged(error, between.to.table()))
    }

    async fn schema(&self, pin: &Pin) -> Result<SchemaRef> {
        match pin {
            Pin::Landing { schema, .. } => Ok(schema.clone()),
            Pin::Model { table, snapshot } => {
                Ok(self.table(table, snapshot).await?.columns.shown.clone())
            }
        }
    }

    async fn retypes(&self, pin: &Pin, rows: &SchemaRef) -> Result<bool> {
        let Pin::Model { table, snapshot } = pin else {
            return Ok(false);
        };
        let known = self.table(table, snapshot).await?;
        let incoming = columns::incoming(table, rows)?;
        Ok(incoming.iter().any(|column| {
            let at = known.columns.position(&column.name);
            match (at, &column.kind) {
                (Some(at), Some(kind)) => kind != known.columns.read.field(at).data_type(),
                _ => false,
            }
        }))
    }

    fn arrived(&self, table: &TableName, after: u64) -> Option<Timestamp> {
        self.arrivals.get(&(table.clone(), after))
    }

    async fn stage(&self, change: Change) -> Result<Staged> {
        stage::stage(self, change).await
    }

    async fn expire(&self, table: &TableName, keep: &Keep) -> Result<Option<u64>> {
        upkeep::expire(self, table, keep).await
    }

    async fn sweep(&self, table: &TableName, sweep: &Sweep) -> Result<Swept> {
        upkeep::sweep(self, table, sweep).await
    }

    async fn collect(
        &self,
        table: &TableName,
        sequence: &str,
        before: Timestamp,
        known: Option<&str>,
    ) -> Result<Option<Collected>> {
        collect::collect(self, table, sequence, before, known).await
    }

    async fn compact(&self, table: &TableName, key: &[String], bytes: u64) -> Result<Compacted> {
        upkeep::compact(self, table, key, bytes).await
    }
}
