//! An engine without a lake: for statements over one entry's rows, wherever those are.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use domain::TableName;
use ports::{
    Error, Kind, Objects, Query, Result, Tables,
    feed::{Between, Changes},
    tables::{Change, Pin, Scan, Staged},
};

use crate::{engine::engine, session::Settings};

/// Starts an engine that reads entries and no tables; the files of an entry are in `objects`.
///
/// # Errors
/// As [`engine`].
pub fn reader(objects: Objects, settings: Settings) -> Result<Arc<dyn Query>> {
    engine(Arc::new(NoTables), objects, settings)
}

/// A lake without tables.
#[derive(Debug)]
struct NoTables;

fn none<T>(action: &'static str) -> Result<T> {
    Err(Error::new(Kind::NotFound, action, "table").because("there is no lake here, only an entry"))
}

#[async_trait]
impl Tables for NoTables {
    async fn pin(&self, _table: &TableName) -> Result<Option<Pin>> {
        Ok(None)
    }

    async fn scan(&self, _pin: &Pin, _after: u64) -> Result<Scan> {
        none("scan")
    }

    async fn changes(&self, _between: &Between) -> Result<Changes> {
        none("read changes of")
    }

    async fn schema(&self, _pin: &Pin) -> Result<SchemaRef> {
        none("read columns of")
    }

    async fn stage(&self, _change: Change) -> Result<Staged> {
        none("stage")
    }
}
