//! Functions that run no SQL, and are small and start fast because of it.

use std::sync::Arc;

use async_trait::async_trait;
use ports::{
    Error, Kind, Query, Result,
    query::{Catalog, Statement},
    tables::Rows,
};

/// Refuses every statement.
#[derive(Clone, Copy, Debug)]
pub struct NoQuery;

impl NoQuery {
    /// As a port.
    #[must_use]
    pub fn port() -> Arc<dyn Query> {
        Arc::new(Self)
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

    async fn describe(
        &self,
        _: &Statement,
        _: &Catalog,
    ) -> Result<arrow::datatypes::SchemaRef> {
        refuse()
    }
}
