//! Lists, eviction, refreshes, maintenance.

use axum::{
    Json,
    extract::{Path, Query, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use engine::entries::{Filter, Ran, Reconciled, Refused, Swept};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{id, query};
use crate::{
    Shared,
    problem::{Answer, Problem},
};

/// Entries of a page when nobody says otherwise.
const PAGE: usize = 100;

/// Query parameters of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    key: Option<String>,
    tenant: Option<String>,
    status: Option<String>,
    expired: Option<bool>,
    limit: Option<usize>,
    after: Option<String>,
}

/// `GET /api/materialize`.
pub(super) async fn list(
    State(shared): State<Shared>,
    Query(wanted): Query<Wanted>,
) -> Answer<Json<Value>> {
    let ready = match wanted.status.as_deref() {
        None => None,
        Some("ready") => Some(true),
        Some("building") => Some(false),
        Some(other) => {
            return Err(Problem::invalid(format!(
                "`{other}` is neither `ready` nor `building`"
            )));
        }
    };
    if let Some(after) = &wanted.after {
        id(after)?;
    }
    let filter = Filter {
        key: wanted.key,
        tenant: wanted.tenant,
        ready,
        expired: wanted.expired,
    };
    let registry = shared.entries();
    let limit = wanted.limit.unwrap_or(PAGE);
    let page = registry
        .list(&filter, wanted.after.as_deref(), limit)
        .await?;
    let shown = |listed: &engine::entries::Listed| registry.listed(&listed.id, &listed.summary);
    let entries: Vec<_> = page.entries.iter().map(shown).collect();
    Ok(Json(json!({ "entries": entries, "next": page.next })))
}

/// `DELETE /api/materialize/{id}`.
pub(super) async fn evict(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Answer<Json<Value>> {
    let id = id(&name)?;
    match shared.entries().evict(&id).await? {
        true => Ok(Json(json!({ "id": id.to_string(), "status": "evicted" }))),
        false => Err(Refused::Missing(id).into()),
    }
}

/// `POST /api/materialize/{id}/refresh`.
pub(super) async fn refresh(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answer<Response> {
    let id = id(&name)?;
    let ran = shared.entries().refresh(&id, query::time(&shared)).await?;
    if let Ran::Stale(_) = ran {
        let body = json!({ "id": id.to_string(), "status": "expired" });
        return Ok(Json(body).into_response());
    }
    query::ran(&shared, ran, &headers).await
}

/// `POST /api/materialize/sweep`.
pub(super) async fn sweep(State(shared): State<Shared>) -> Answer<Json<Swept>> {
    Ok(Json(shared.entries().sweep().await?))
}

/// `POST /api/materialize/reconcile`.
pub(super) async fn reconcile(State(shared): State<Shared>) -> Answer<Json<Reconciled>> {
    Ok(Json(shared.entries().reconcile().await?))
}
