//! Functions that run no SQL, and are small and start fast because of it.

use std::sync::Arc;

use async_trait::async_trait;
use ports::{
    Error, Kind, Objects, Query, Result, Tables,
    query::{Catalog, Statement},
    tables::Rows,
};
use settings::Settings;

/// Refuses every statement.
#[derive(Clone, Copy, Debug)]
pub struct NoQuery;

impl NoQuery {
    /// As a function's query engine.
    ///
    /// # Errors
    /// None.
    pub fn make(_: Arc<dyn Tables>, _: Objects, _: &Settings) -> Result<Arc<dyn Query>> {
        Ok(Arc::new(Self))
    }
}

fn refuse<T>() -> Result<T> {
    Err(Error::new(Kind::Invalid, "run", "statement").because("this function runs no SQL"))
}

#[async_trait]
impl Query for NoQuery {
    async fn run(&self, _: &Statement, _: &Catalog) -> Result<Rows> {
        refuse()
    }

    async fn describe(&self, _: &Statement, _: &Catalog) -> Result<arrow::datatypes::SchemaRef> {
        refuse()
    }
}
