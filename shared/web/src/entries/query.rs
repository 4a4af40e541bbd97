//! SQL over an entry, and entries that are queries over the lake.

use axum::{
    extract::{Path, Request, State},
    http::HeaderMap,
    response::Response,
};
use domain::{
    Duration,
    entry::{IndexSpec, Mode},
};
use engine::entries::{Asked, Ran};
use ports::query::{Limits, Parameter, RowOrder, Statement};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    answer,
    ask::{BODY_BYTES_MAX, Span, object, present},
    build::indexes,
    id,
};
use crate::{
    Shared,
    problem::{Answer, ENTRY_MISSING},
    query::{encoded, parameter},
};

/// `POST /api/materialize/{id}/query`: `{"sql", "parameters"}`, the entry is called `this`.
pub(super) async fn over(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Response> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Raw<'a> {
        sql: String,
        #[serde(default, borrow)]
        parameters: Vec<&'a RawValue>,
    }
    let id = id(&name)?;
    let (parts, body) = request.into_parts();
    let taken = shared
        .bodies
        .take(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    let raw: Raw<'_> = object(&taken.bytes, r#"`{"sql", "parameters"}`"#)?;
    let limits = &shared.settings.query;
    let statement = Statement {
        order: RowOrder::Any,
        watermarks: None,
        parameters: bound(&raw.parameters)?,
        sql: raw.sql,
        limits: Limits {
            time: limits.timeout,
            rows: Some(limits.rows_max),
        },
    };
    drop(taken);
    let over = shared.entries().over(&id, &statement).await?;
    encoded(&shared, over.rows, &parts.headers).await
}

fn bound(raw: &[&RawValue]) -> Answer<Vec<Parameter>> {
    let each = raw.iter().enumerate();
    each.map(|(at, raw)| parameter(at + 1, raw.get())).collect()
}

/// When a query entry goes stale beside its ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Invalidate {
    Advance,
}

/// `POST /api/materialize/query`.
pub(super) async fn run(State(shared): State<Shared>, request: Request) -> Answer<Response> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Raw<'a> {
        sql: String,
        #[serde(default, borrow)]
        parameters: Vec<&'a RawValue>,
        #[serde(default, deserialize_with = "present")]
        ttl: Option<Option<Span>>,
        mode: Option<Mode>,
        invalidate_on: Option<Invalidate>,
        key: Option<String>,
        tenant: Option<String>,
        wait: Option<Span>,
        #[serde(default)]
        index: Vec<IndexSpec>,
    }
    let (parts, body) = request.into_parts();
    let taken = shared
        .bodies
        .take(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    let form = r#"`{"sql", "parameters", "ttl", "mode", "invalidate_on": "advance", "key", "tenant", "wait", "index"}`"#;
    let raw: Raw<'_> = object(&taken.bytes, form)?;
    let settings = &shared.settings.materialize;
    let ttl = match &raw.ttl {
        None => Some(settings.ttl),
        Some(None) => None,
        Some(Some(span)) => Some(span.get()?),
    };
    let asked = Asked {
        parameters: bound(&raw.parameters)?,
        sql: raw.sql,
        key: raw.key,
        tenant: raw.tenant,
        ttl,
        mode: raw.mode.unwrap_or(settings.mode),
        on_advance: raw.invalidate_on.is_some(),
        wait: raw.wait.map_or(Ok(settings.wait_max), |span| span.get())?,
        time: shared.settings.query.timeout,
        indexes: raw.index,
    };
    indexes(&asked.indexes)?;
    drop(taken);
    // A function that has answered does nothing more: where no jobs are sent, the caller who finds the entry stale rebuilds it.
    let behind = !shared.driven;
    let registry = shared.entries();
    let served = async || ran(&shared, registry.run(&asked, behind).await?, &parts.headers).await;
    match served().await {
        // It was there when it was looked up, and its data was gone when its rows were read: now its row is gone too.
        Err(problem) if problem.is(ENTRY_MISSING) => served().await,
        answer => answer,
    }
}

/// What came of a query, as an answer.
pub(super) async fn ran(shared: &Shared, ran: Ran, headers: &HeaderMap) -> Answer<Response> {
    match ran {
        Ran::Hit(entry) => answer::entry(shared, &entry, "hit", headers, None).await,
        Ran::Stale(entry) => answer::entry(shared, &entry, "stale", headers, None).await,
        Ran::Built(entry) => answer::entry(shared, &entry, "built", headers, None).await,
        Ran::Wait { id, until } => Ok(answer::building(shared, &id, Some(until))),
    }
}

/// How long a statement may run.
pub(super) fn time(shared: &Shared) -> Duration {
    shared.settings.query.timeout
}
