//! Reads over the lake: a statement, the tables it names, one consistent set of pins.

use ports::{
    Result,
    query::{Catalog, Statement},
    tables::Rows,
};

use crate::World;

/// Pins every table the statement names, directly or through views.
///
/// # Errors
/// `Invalid` for SQL that cannot be read, `NotFound` for a table that is neither in the lake nor a view of the project,
/// with the nearest name.
pub async fn catalog(world: &World, sql: &str) -> Result<Catalog> {
    let _ = (world, sql);
    unimplemented!()
}

/// Runs a read-only statement.
///
/// # Errors
/// As [`catalog`], and what the query engine answers.
pub async fn query(world: &World, statement: &Statement) -> Result<Rows> {
    let _ = (world, statement);
    unimplemented!()
}
