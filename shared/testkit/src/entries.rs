//! A place for the data of entries that holds none, for tests of everything else.

use async_trait::async_trait;
use ports::{
    Entries, Error, Kind, Result,
    entries::{DataSet, Stored, Upload},
    tables::{Rows, Scan},
};

/// Holds no entries and takes none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEntries;

fn none<T>(set: &DataSet) -> Result<T> {
    Err(Error::new(Kind::Unavailable, "use entry", set).because("this world holds no entries"))
}

#[async_trait]
impl Entries for NoEntries {
    async fn write(&self, set: &DataSet, _: Rows) -> Result<Stored> {
        none(set)
    }

    async fn receive(&self, set: &DataSet, _: Upload, _: u64) -> Result<Stored> {
        none(set)
    }

    async fn check(&self, _: &DataSet) -> Result<Option<Stored>> {
        Ok(None)
    }

    async fn find(&self, _: &DataSet) -> Result<Option<Stored>> {
        Ok(None)
    }

    async fn scan(&self, set: &DataSet, _: &Stored) -> Result<Scan> {
        none(set)
    }

    async fn read(&self, set: &DataSet, _: u64) -> Result<Rows> {
        none(set)
    }

    async fn columns(&self, set: &DataSet, _: u64, _: &[String]) -> Result<Rows> {
        none(set)
    }

    async fn pick(
        &self,
        set: &DataSet,
        _: u64,
        _: &[u32],
        _: &[String],
    ) -> Result<ports::entries::Picked> {
        none(set)
    }

    async fn beside(&self, _: &DataSet) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn remove(&self, _: &DataSet, _: &str) -> Result<()> {
        Ok(())
    }

    async fn delete(&self, _: &DataSet) -> Result<()> {
        Ok(())
    }

    async fn list(&self) -> Result<Vec<DataSet>> {
        Ok(Vec::new())
    }
}
