//! The catalog for readers: pointers of the catalog as rows of PyIceberg's SQL catalog.
//!
//! Items are what counts and rows follow them, in the same transaction. A reader opens the state
//! file with `SqlCatalog("headwater", uri="sqlite:///<file>")`.

use domain::{TableName, items::Pointed};
use ports::{Result, state::Write};
use rusqlite::{Connection, params};

/// Name that readers give as the catalog's.
const CATALOG_NAME: &str = "headwater";

/// What a write does to the mirror.
#[derive(Debug)]
pub(super) struct Row(Pointed);

impl Row {
    /// The row for a write, if it is one to the catalog.
    pub(super) fn of(write: &Write) -> Result<Option<Self>> {
        let pointed = write.pointed()?;
        Ok(pointed.map(Self))
    }

    /// Brings the row in line.
    pub(super) fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
        match &self.0 {
            Pointed::To {
                table,
                location,
                previous,
            } => upsert(connection, table, location, previous.as_deref()),
            Pointed::Nowhere { table } => remove(connection, table),
        }
    }
}

fn upsert(
    connection: &Connection,
    table: &TableName,
    location: &str,
    previous: Option<&str>,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name,
                 metadata_location, previous_metadata_location, iceberg_type)
             VALUES (?1, ?2, ?3, ?4, ?5, 'TABLE')
             ON CONFLICT DO UPDATE SET metadata_location = excluded.metadata_location,
                 previous_metadata_location = excluded.previous_metadata_location",
        )?
        .execute(params![
            CATALOG_NAME,
            table.schema(),
            table.name(),
            location,
            previous
        ])?;
    // How PyIceberg notes that a namespace exists.
    connection
        .prepare_cached(
            "INSERT INTO iceberg_namespace_properties
                 (catalog_name, namespace, property_key, property_value)
             VALUES (?1, ?2, 'exists', 'true') ON CONFLICT DO NOTHING",
        )?
        .execute(params![CATALOG_NAME, table.schema()])?;
    Ok(())
}

fn remove(connection: &Connection, table: &TableName) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM iceberg_tables
             WHERE catalog_name = ?1 AND table_namespace = ?2 AND table_name = ?3",
        )?
        .execute(params![CATALOG_NAME, table.schema(), table.name()])?;
    connection
        .prepare_cached(
            "DELETE FROM iceberg_namespace_properties
             WHERE catalog_name = ?1 AND namespace = ?2 AND NOT EXISTS (
                 SELECT 1 FROM iceberg_tables WHERE catalog_name = ?1 AND table_namespace = ?2)",
        )?
        .execute(params![CATALOG_NAME, table.schema()])?;
    Ok(())
}
