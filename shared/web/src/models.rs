//! Models as JSON: definitions and lineage.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use domain::{Materialized, Model, OnSchemaChange, Project, Severity, Strategy, TableName};
use engine::profile;
use serde_json::{Value, json};

use crate::{
    Shared,
    problem::{Answer, Problem, table},
};

/// `GET /api/models`.
pub(crate) async fn list(State(shared): State<Shared>) -> Json<Value> {
    let project = &shared.world.project;
    let models: Vec<Value> = project
        .order
        .iter()
        .filter_map(|name| project.models.get(name))
        .map(brief)
        .collect();
    Json(json!({ "models": models }))
}

/// `GET /api/models/{model}`.
pub(crate) async fn one(
    State(shared): State<Shared>,
    Path(model): Path<String>,
) -> Answer<Json<Value>> {
    let name = table(&model)?;
    let project = &shared.world.project;
    let model = project.models.get(&name).ok_or_else(|| {
        let hint = project
            .nearest(&name.to_string())
            .map(|near| format!("; did you mean `{near}`?"))
            .unwrap_or_default();
        Problem::new(StatusCode::NOT_FOUND, format!("no model `{name}`{hint}"))
    })?;
    let profile = profile::stored(&shared.world, &name).await?;
    let mut all = full(project, model);
    if let Value::Object(all) = &mut all {
        all.insert("profile".to_owned(), json!(profile));
    }
    Ok(Json(all))
}

/// `GET /api/dag`: tables and models, and who reads whom.
pub(crate) async fn dag(State(shared): State<Shared>) -> Json<Value> {
    let project = &shared.world.project;
    let mut nodes = Vec::new();
    let mut edges = Vec::new();
    for model in project
        .order
        .iter()
        .filter_map(|name| project.models.get(name))
    {
        for input in &model.reads {
            edges.push(json!({ "from": input, "to": model.name }));
            let node = json!({ "name": input, "kind": outside(input), "live": false });
            if !project.models.contains_key(input) && !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes.push(json!({
            "name": model.name, "kind": materialized(model.config.materialized), "live": model.config.live,
        }));
    }
    Json(json!({ "nodes": nodes, "edges": edges }))
}

fn outside(table: &TableName) -> &'static str {
    if table.is_landing() {
        "landing"
    } else {
        "table"
    }
}

fn brief(model: &Model) -> Value {
    json!({
        "name": model.name,
        "materialized": materialized(model.config.materialized),
        "live": model.config.live,
        "strategy": strategy(model),
        "unique_key": model.config.unique_key,
        "reads": model.reads,
        "description": model.description,
        "owner": model.owner,
        "tags": model.config.tags,
        "file": model.file,
    })
}

fn full(project: &Project, model: &Model) -> Value {
    let readers: Vec<&TableName> = project
        .models
        .values()
        .filter(|other| other.reads.contains(&model.name))
        .map(|other| &other.name)
        .collect();
    let asserts: Vec<Value> = model
        .asserts
        .iter()
        .map(|assert| json!({ "expression": assert.expression, "severity": severity(assert.severity) }))
        .collect();
    let config = &model.config;
    let mut all = brief(model);
    let more = json!({
        "sql": model.sql,
        "filter": config.filter,
        "partition_by": config.partition_by,
        "on_schema_change": on_schema_change(config.on_schema_change),
        "live_interval_seconds": config.live_interval.map(|span| span.as_secs_f64()),
        "target_lag_seconds": config.target_lag.map(|span| span.as_secs_f64()),
        "cdc": config.cdc.as_ref().map(|cdc| json!({
            "op": cdc.op, "seq": cdc.seq, "deletes": if cdc.soft_deletes { "soft" } else { "hard" },
        })),
        "columns": model.columns,
        "asserts": asserts,
        "inputs": project.inputs.get(&model.name),
        "readers": readers,
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

fn materialized(how: Materialized) -> &'static str {
    match how {
        Materialized::View => "view",
        Materialized::Table => "table",
        Materialized::Incremental => "incremental",
        Materialized::Ephemeral => "ephemeral",
    }
}

fn strategy(model: &Model) -> Option<&'static str> {
    (model.config.materialized == Materialized::Incremental).then_some(
        match model.config.strategy {
            Strategy::Merge => "merge",
            Strategy::DeleteInsert => "delete+insert",
            Strategy::Append => "append",
            Strategy::Auto => "auto",
        },
    )
}

fn on_schema_change(what: OnSchemaChange) -> &'static str {
    match what {
        OnSchemaChange::AppendNewColumns => "append_new_columns",
        OnSchemaChange::Ignore => "ignore",
        OnSchemaChange::Fail => "fail",
        OnSchemaChange::SyncAllColumns => "sync_all_columns",
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warn",
        Severity::Error => "error",
    }
}
