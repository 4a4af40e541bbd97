//! Searches of an entry, and what it is searched by.

use axum::{
    Json,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use domain::{
    Duration,
    entry::{EntryId, IndexSpec},
};
use engine::entries::{IndexShown, Sought, Wanted};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ask::{BODY_BYTES_MAX, Span, json_body, object},
    id,
};
use crate::{
    Shared,
    problem::{Answer, Problem},
    query::encoded,
};

/// Hits of an answer when nobody says otherwise.
const LIMIT: usize = 10;

/// What is asked of any search.
#[derive(Debug)]
struct Common {
    filter: Option<String>,
    limit: Option<usize>,
    offset: usize,
    select: Option<Vec<String>>,
    wait: Option<Span>,
}

impl Common {
    fn wanted(self, shared: &Shared) -> Answer<Wanted> {
        Ok(Wanted {
            filter: self.filter,
            limit: self.limit.unwrap_or(LIMIT),
            offset: self.offset,
            select: self.select,
            wait: self.wait.map_or(Ok(Duration::ZERO), |span| span.get())?,
            time: shared.settings.query.timeout,
        })
    }
}

/// Searches, and answers in the form that is asked for.
async fn searched(
    shared: &Shared,
    id: &EntryId,
    headers: &HeaderMap,
    sought: &Sought,
    common: Common,
) -> Answer<Response> {
    let wanted = common.wanted(shared)?;
    let found = shared.entries().search(id, sought, &wanted).await?;
    encoded(shared, found.rows, headers).await
}

/// `POST /api/materialize/{id}/search`: `{"query", "columns", "filter", "limit", "offset", "select", "wait"}`.
pub(super) async fn words(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Response> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Raw {
        query: String,
        #[serde(default)]
        columns: Vec<String>,
        filter: Option<String>,
        limit: Option<usize>,
        #[serde(default)]
        offset: usize,
        select: Option<Vec<String>>,
        wait: Option<Span>,
    }
    let id = id(&name)?;
    let (headers, raw): (_, Raw) = json_body(&shared, request).await?;
    let sought = Sought::Words {
        query: raw.query,
        columns: raw.columns,
    };
    let common = Common {
        filter: raw.filter,
        limit: raw.limit,
        offset: raw.offset,
        select: raw.select,
        wait: raw.wait,
    };
    searched(&shared, &id, &headers, &sought, common).await
}

/// `POST /api/materialize/{id}/vector-search`: `{"column", "vector" | "text", "filter", "limit", "offset", "select", "wait"}`.
/// Without `column` it is the only one that has vectors.
pub(super) async fn vectors(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Response> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Raw {
        column: Option<String>,
        vector: Option<Vec<f64>>,
        text: Option<String>,
        filter: Option<String>,
        limit: Option<usize>,
        #[serde(default)]
        offset: usize,
        select: Option<Vec<String>>,
        wait: Option<Span>,
    }
    let id = id(&name)?;
    let (headers, raw): (_, Raw) = json_body(&shared, request).await?;
    let column = raw.column;
    let sought = match (raw.vector, raw.text) {
        (Some(vector), None) => Sought::Vector {
            column,
            vector: narrowed(&vector),
        },
        (None, Some(text)) => Sought::Like { column, text },
        _ => {
            return Err(Problem::invalid(
                "name either `vector`, a list of numbers, or `text`",
            ));
        }
    };
    let common = Common {
        filter: raw.filter,
        limit: raw.limit,
        offset: raw.offset,
        select: raw.select,
        wait: raw.wait,
    };
    searched(&shared, &id, &headers, &sought, common).await
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "vectors are compared in 32 bits; what is too large becomes infinite and is refused"
)]
fn narrowed(vector: &[f64]) -> Vec<f32> {
    vector.iter().map(|number| *number as f32).collect()
}

/// `GET /api/materialize/{id}/index`: its indexes, and how far they are.
pub(super) async fn list(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Answer<Json<Value>> {
    let indexes = shared.entries().indexes(&id(&name)?).await?;
    Ok(Json(json!({ "indexes": indexes })))
}

/// `POST /api/materialize/{id}/index`: `{"index": [..], "wait"}`. 202 while something is being built.
pub(super) async fn ask(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Response> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Raw {
        index: Vec<IndexSpec>,
        wait: Option<Span>,
    }
    let id = id(&name)?;
    let (parts, body) = request.into_parts();
    let taken = shared
        .bodies
        .take(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    let form = r#"`{"index": [{"kind": "text", "columns": [..]}, {"kind": "vector", "column", "metric"}], "wait"}`"#;
    let raw: Raw = object(&taken.bytes, form)?;
    let wait = raw.wait.map_or(Ok(Duration::ZERO), |span| span.get())?;
    let registry = shared.entries();
    let mut indexes = registry.index(&id, &raw.index).await?;
    let wait = wait.min(shared.settings.materialize.wait_max);
    if wait > Duration::ZERO {
        registry.settle(&id, wait).await?;
        indexes = registry.indexes(&id).await?;
    }
    let busy = indexes.iter().any(|index| index.status == "building");
    let status = if busy {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(json!({ "indexes": indexes }))).into_response())
}

/// A problem that carries the job.
pub(super) fn not_ready(shown: &IndexShown, kind: &'static str, detail: String) -> Problem {
    let job = serde_json::to_value(shown).unwrap_or_default();
    Problem::typed(StatusCode::CONFLICT, kind, detail).with("job", job)
}
