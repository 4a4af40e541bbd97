//! What a function is made of. Each names the parts that it uses and is linked with no others: that is what keeps the ones
//! that run no SQL small and quick to start.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use aws::signing::Signer;
use domain::{TableName, Timestamp, items::Column};
use lake::{EntryLake, Lake, landing::LandingLake};
use ports::{
    Chance, Clock, Entries, Error, Kind, Landing, Objects, Query, Result, State, Tables,
    entries::{DataSet, Picked, Sign, Stored, Upload},
    feed::{Between, Changes},
    landing::{Advanced, Append, Appended},
    query::{Catalog, Statement},
    search::Searching,
    tables::{Change, Pin, Rows, Scan, Staged},
};
use settings::Settings;

/// What parts are made on.
#[derive(Debug)]
pub struct Ground<'a> {
    /// Versioned items.
    pub state: Arc<dyn State>,
    /// The warehouse.
    pub objects: Objects,
    /// The warehouse's address.
    pub uri: String,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness and ids.
    pub chance: Arc<dyn Chance>,
    /// What signs addresses of objects.
    pub links: Arc<dyn Sign>,
    /// The settings.
    pub settings: &'a Settings,
    /// Signs requests to services that no client is linked for.
    pub signer: Signer,
}

/// The ports that functions differ in.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Landing tables.
    pub landing: Arc<dyn Landing>,
    /// Reads and staged writes.
    pub tables: Arc<dyn Tables>,
    /// SQL.
    pub query: Arc<dyn Query>,
    /// Data of materialized entries.
    pub entries: Arc<dyn Entries>,
    /// Indexes of entries, and vectors of text.
    pub searching: Searching,
}

/// What makes the parts of a function.
pub type MakeParts = fn(&Ground<'_>) -> Result<Parts>;

impl Parts {
    /// For a function that takes steps, and looks at nothing but the state.
    ///
    /// # Errors
    /// None.
    pub fn steps(_: &Ground<'_>) -> Result<Self> {
        Ok(Self {
            landing: Arc::new(Without),
            tables: Arc::new(Without),
            query: Arc::new(Without),
            entries: Arc::new(Without),
            searching: Searching::default(),
        })
    }

    /// For a function that stores what comes in.
    ///
    /// # Errors
    /// None.
    pub fn intake(ground: &Ground<'_>) -> Result<Self> {
        Ok(Self {
            landing: Arc::new(Appending(ground.landing())),
            ..Self::steps(ground)?
        })
    }

    /// For a function that does everything, with a query engine.
    ///
    /// # Errors
    /// What making the engine answers.
    pub fn all(
        ground: &Ground<'_>,
        query: impl FnOnce(Arc<dyn Tables>, Objects, &Settings) -> Result<Arc<dyn Query>>,
    ) -> Result<Self> {
        let tables = ground.tables();
        Ok(Self {
            landing: Arc::new(ground.landing()),
            query: query(tables.clone(), ground.objects.clone(), ground.settings)?,
            tables,
            entries: ground.entries(),
            searching: Searching::default(),
        })
    }
}

impl Parts {
    /// The same with search.
    #[must_use]
    pub fn searching(mut self, searching: Searching) -> Self {
        self.searching = searching;
        self
    }
}

impl Ground<'_> {
    fn landing(&self) -> LandingLake {
        let (state, objects) = (self.state.clone(), self.objects.clone());
        LandingLake::new(state, objects, self.clock.clone(), self.chance.clone())
    }

    fn entries(&self) -> Arc<dyn Entries> {
        Arc::new(EntryLake::new(self.objects.clone()).signed_by(self.links.clone()))
    }

    fn tables(&self) -> Arc<dyn Tables> {
        let (state, objects) = (self.state.clone(), self.objects.clone());
        let (chance, clock) = (self.chance.clone(), self.clock.clone());
        Arc::new(Lake::new(state, objects, self.uri.clone(), chance, clock))
    }
}

/// Landing tables that rows are added to, and nothing else is done with.
#[derive(Debug)]
struct Appending(LandingLake);

#[async_trait]
impl Landing for Appending {
    async fn append(&self, append: Append) -> Result<Appended> {
        self.0.append(append).await
    }

    async fn declare(&self, table: &TableName, columns: &[Column]) -> Result<()> {
        self.0.declare(table, columns).await
    }

    async fn advance(&self, _: &TableName, _: Timestamp) -> Result<Option<Advanced>> {
        refuse("advance", "commits no files")
    }
}

/// A part that a function does not have: whatever is asked of it is refused.
#[derive(Clone, Copy, Debug)]
struct Without;

fn refuse<T>(action: &'static str, why: &str) -> Result<T> {
    let why = format!("this function {why}");
    Err(Error::new(Kind::Invalid, action, "on AWS").because(why))
}

#[async_trait]
impl Query for Without {
    async fn run(&self, _: &Statement, _: &Catalog) -> Result<Rows> {
        refuse("run statement", "runs no SQL")
    }

    async fn describe(&self, _: &Statement, _: &Catalog) -> Result<SchemaRef> {
        refuse("describe statement", "runs no SQL")
    }
}

#[async_trait]
impl Landing for Without {
    async fn append(&self, _: Append) -> Result<Appended> {
        refuse("append rows", "stores no rows")
    }

    async fn declare(&self, _: &TableName, _: &[Column]) -> Result<()> {
        refuse("declare table", "stores no rows")
    }

    async fn advance(&self, _: &TableName, _: Timestamp) -> Result<Option<Advanced>> {
        refuse("advance table", "stores no rows")
    }
}

#[async_trait]
impl Tables for Without {
    async fn pin(&self, _: &TableName) -> Result<Option<Pin>> {
        refuse("pin table", "reads no tables")
    }

    async fn scan(&self, _: &Pin, _: u64) -> Result<Scan> {
        refuse("scan table", "reads no tables")
    }

    async fn changes(&self, _: &Between) -> Result<Changes> {
        refuse("read changes", "reads no tables")
    }

    async fn schema(&self, _: &Pin) -> Result<SchemaRef> {
        refuse("read schema", "reads no tables")
    }

    async fn stage(&self, _: Change) -> Result<Staged> {
        refuse("stage rows", "writes no tables")
    }
}

#[async_trait]
impl Entries for Without {
    async fn write(&self, _: &DataSet, _: Rows) -> Result<Stored> {
        refuse("write entry", "keeps no entries")
    }

    async fn receive(&self, _: &DataSet, _: Upload, _: u64) -> Result<Stored> {
        refuse("receive entry", "keeps no entries")
    }

    async fn check(&self, _: &DataSet) -> Result<Option<Stored>> {
        refuse("check entry", "keeps no entries")
    }

    async fn find(&self, _: &DataSet) -> Result<Option<Stored>> {
        refuse("find entry", "keeps no entries")
    }

    async fn scan(&self, _: &DataSet, _: &Stored) -> Result<Scan> {
        refuse("scan entry", "keeps no entries")
    }

    async fn read(&self, _: &DataSet, _: u64) -> Result<Rows> {
        refuse("read entry", "keeps no entries")
    }

    async fn columns(&self, _: &DataSet, _: u64, _: &[String]) -> Result<Rows> {
        refuse("read entry", "keeps no entries")
    }

    async fn pick(&self, _: &DataSet, _: u64, _: &[u32], _: &[String]) -> Result<Picked> {
        refuse("read entry", "keeps no entries")
    }

    async fn beside(&self, _: &DataSet) -> Result<Vec<String>> {
        refuse("list indexes", "keeps no entries")
    }

    async fn remove(&self, _: &DataSet, _: &str) -> Result<()> {
        refuse("remove index", "keeps no entries")
    }

    async fn delete(&self, _: &DataSet) -> Result<()> {
        refuse("delete entry", "keeps no entries")
    }

    async fn list(&self) -> Result<Vec<DataSet>> {
        refuse("list entries", "keeps no entries")
    }
}
