//! Reads over the lake: a statement, the tables it names, one consistent set of pins.

use std::collections::BTreeMap;

use domain::{Position, TableName};
use ports::{
    Error, Kind, Result,
    query::{Catalog, Statement},
    tables::Rows,
};

use crate::{
    World,
    load::{self, Items},
    pins::{self, Reads},
};

/// Pins every table the statement names, directly or through views, as of one moment.
///
/// # Errors
/// `Invalid` for SQL that cannot be read, `NotFound` for a table that is neither in the lake nor a view of the project,
/// with the nearest name.
pub async fn catalog(world: &World, sql: &str) -> Result<Catalog> {
    Ok(pinned(world, sql).await?.0)
}

/// As [`catalog`], with how far each table has come at that moment.
pub(crate) async fn pinned(
    world: &World,
    sql: &str,
) -> Result<(Catalog, BTreeMap<TableName, Position>)> {
    let named = named(sql).await?;
    let reads = Reads::of(&world.project, named.iter().cloned())?;
    let heads = Items::load(&*world.state, reads.tables.iter().map(load::head)).await?;
    let mut pinned = Vec::with_capacity(reads.tables.len());
    let mut positions = BTreeMap::new();
    for table in &reads.tables {
        let head = heads.head(table)?;
        // A landing table under a view may still be to come; one that was asked for by name may not.
        if head.is_none() && named.contains(table) {
            return Err(pins::missing(&world.project, table));
        }
        let position = head.as_ref().map(|head| head.position);
        positions.insert(table.clone(), position.unwrap_or_default());
        pinned.push(pins::pin(&world.project, table, head.as_ref(), None)?);
    }
    Ok((reads.catalog(pinned), positions))
}

/// Statements up to this many bytes are read in microseconds; longer ones, which callers can send a megabyte of, are not
/// read on the threads that serve everybody.
const SHORT: usize = 4 << 10;

/// The tables that a statement names.
pub(crate) async fn named(sql: &str) -> Result<Vec<TableName>> {
    const SUBJECT: &str = "statement";
    if sql.len() <= SHORT {
        return pins::tables(SUBJECT, sql);
    }
    let text = sql.to_owned();
    tokio::task::spawn_blocking(move || pins::tables(SUBJECT, &text))
        .await
        .unwrap_or_else(|error| Err(Error::new(Kind::Invalid, "read", SUBJECT).because(error)))
}

/// Runs a read-only statement.
///
/// # Errors
/// As [`catalog`], and what the query engine answers.
pub async fn query(world: &World, statement: &Statement) -> Result<Rows> {
    let catalog = catalog(world, &statement.sql).await?;
    world.query.run(statement, &catalog).await
}
