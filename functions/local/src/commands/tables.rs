//! `headwater tables`: what a statement can read.

use std::collections::BTreeMap;

use domain::{Materialized, Model, TableName};
use engine::{quarantine, read, status};
use ports::{columns, query::Statement};
use serde_json::{Value, json};

use super::{Context, named, print_json};
use crate::{
    failure::Failure,
    screen::{number, say, table, text},
    world,
};

/// Shows all tables, or the columns of one.
pub(super) async fn tables(context: &Context, one: Option<&str>) -> Result<(), Failure> {
    let world = world::open_any(&context.settings()?)?;
    match one {
        Some(one) => show_columns(context, &world, &named(one)?).await,
        None => show_tables(context, &world).await,
    }
}

async fn show_tables(context: &Context, world: &engine::World) -> Result<(), Failure> {
    let status = status::status(world, None).await?;
    let kept = quarantine::list(world, None).await?.tables;
    let mut found: BTreeMap<TableName, (&str, Option<u64>)> = BTreeMap::new();
    for model in world.project.models.values() {
        found.insert(model.name.clone(), (kind(model), None));
    }
    for model in &status.models {
        found.insert(model.model.clone(), ("live model", Some(model.rows)));
    }
    for source in &status.sources {
        found.insert(source.source.clone(), ("landing", Some(source.rows)));
    }
    for kept in kept {
        found.insert(kept.table, ("quarantine", Some(kept.rows)));
    }
    if context.json {
        let row = |(name, (kind, rows)): (&TableName, &(&str, Option<u64>))| json!({ "table": name, "kind": kind, "rows": rows });
        let rows: Vec<Value> = found.iter().map(row).collect();
        return print_json(&json!({ "tables": rows }));
    }
    if found.is_empty() {
        return Ok(say(
            "there are no tables: nothing has landed, and there is no model under transform/",
        )?);
    }
    let mut shown = table(&["table", "what", ">rows"]);
    for (name, (kind, rows)) in &found {
        let rows = rows.map_or_else(|| text(""), number);
        shown.add_row([text(name), text(kind), rows]);
    }
    Ok(say(&shown.to_string())?)
}

fn kind(model: &Model) -> &'static str {
    match model.config.materialized {
        Materialized::View => "view",
        Materialized::Ephemeral => "ephemeral",
        Materialized::Table | Materialized::Incremental => "model",
    }
}

async fn show_columns(
    context: &Context,
    world: &engine::World,
    name: &TableName,
) -> Result<(), Failure> {
    let statement = Statement::new(format!("SELECT * FROM {name}"));
    let catalog = read::catalog(world, &statement.sql).await?;
    let schema = world.query.describe(&statement, &catalog).await?;
    let columns = schema.fields().iter();
    let columns = columns.map(|field| (field.name(), columns::word(field.data_type())));
    if context.json {
        let columns: Vec<Value> = columns
            .map(|(name, kind)| json!({ "column": name, "type": kind }))
            .collect();
        return print_json(&json!({ "table": name, "columns": columns }));
    }
    let mut shown = table(&["column", "type"]);
    for (name, kind) in columns {
        shown.add_row([text(name), text(kind)]);
    }
    Ok(say(&shown.to_string())?)
}
