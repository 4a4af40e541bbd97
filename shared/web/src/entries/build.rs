//! Building from outside: lease, upload, commit, abort.

use axum::{
    Json,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use domain::{
    Duration,
    entry::{INDEXES_MAX, IndexSpec, Mode, Spec},
    items::Column,
};
use engine::entries::{Ask, Claim, Claimed, Commit, Granted};
use futures::TryStreamExt;
use ports::{Error, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    answer,
    ask::{Span, json_body, present},
    id,
};
use crate::{
    Shared,
    problem::{Answer, Problem},
};

/// The header that shows a lease's token.
const TOKEN: &str = "headwater-lease";
/// Longest key of an entry, in bytes.
const KEY_BYTES_MAX: usize = 1_000;
/// Longest name of whoever builds, in bytes.
const HOLDER_BYTES_MAX: usize = 200;
/// Most columns that a builder declares.
const COLUMNS_MAX: usize = 1_000;
/// Longest name, and longest type, of a column that is declared, in bytes.
const COLUMN_BYTES_MAX: usize = 200;

fn at_most(what: &str, text: &str, bytes_max: usize) -> Answer<()> {
    match text.len() <= bytes_max {
        true => Ok(()),
        false => Err(Problem::invalid(format!(
            "{what} has at most {bytes_max} bytes"
        ))),
    }
}

/// What a builder says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lease {
    #[serde(default)]
    key: String,
    #[serde(default)]
    version: i64,
    #[serde(default, deserialize_with = "present")]
    ttl: Option<Option<Span>>,
    mode: Option<Mode>,
    lease: Option<Span>,
    wait: Option<Span>,
    holder: Option<String>,
    #[serde(default)]
    columns: Vec<Column>,
    #[serde(default)]
    index: Vec<IndexSpec>,
}

/// `POST /api/materialize/{id}/lease`.
pub(super) async fn lease(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Response> {
    let id = id(&name)?;
    let (headers, asked): (_, Lease) = json_body(&shared, request).await?;
    let registry = shared.entries();
    let claim = claim(&shared, asked)?;
    let given = |granted: Granted| {
        let mut lease = json!({ "token": granted.token, "deadline": granted.deadline.to_string() });
        if let (Some(max), Some(lease)) = (registry.direct_max(), lease.as_object_mut()) {
            lease.insert("upload".into(), json!({ "direct_max": max }));
        }
        lease
    };
    Ok(match registry.claim(&id, &claim).await? {
        Claimed::Hit(entry) => answer::entry(&shared, &entry, "hit", &headers, None).await?,
        Claimed::Stale(entry, lease) => {
            let lease = lease.map(|granted| ("lease", given(granted)));
            answer::entry(&shared, &entry, "stale", &headers, lease).await?
        }
        Claimed::Build(granted) => {
            let body = json!({ "id": id.to_string(), "lease": given(granted) });
            (
                StatusCode::CREATED,
                [("headwater-entry", "lease")],
                Json(body),
            )
                .into_response()
        }
        Claimed::Wait { until } => answer::building(&shared, &id, Some(until)),
    })
}

fn claim(shared: &Shared, asked: Lease) -> Answer<Claim> {
    let settings = &shared.settings.materialize;
    at_most("a key", &asked.key, KEY_BYTES_MAX)?;
    let holder = asked.holder.unwrap_or_else(|| String::from("client"));
    at_most("a holder", &holder, HOLDER_BYTES_MAX)?;
    if asked.columns.len() > COLUMNS_MAX {
        return Err(Problem::invalid(format!(
            "an entry has at most {COLUMNS_MAX} columns"
        )));
    }
    for column in &asked.columns {
        at_most("the name of a column", &column.name, COLUMN_BYTES_MAX)?;
        at_most("the type of a column", &column.kind, COLUMN_BYTES_MAX)?;
    }
    indexes(&asked.index)?;
    let ttl = match asked.ttl {
        None => Some(settings.ttl),
        Some(None) => None,
        Some(Some(span)) => Some(span.get()?),
    };
    Ok(Claim {
        ask: Ask {
            mode: asked.mode,
            ..Ask::default()
        },
        spec: Spec {
            key: asked.key,
            version: asked.version,
            mode: asked.mode.unwrap_or(settings.mode),
            ttl_ms: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            query: None,
            declared: asked.columns,
            indexes: asked.index,
        },
        holder,
        lease: asked.lease.map(|span| span.get()).transpose()?,
        wait: asked.wait.map_or(Ok(Duration::ZERO), |span| span.get())?,
    })
}

/// Refuses indexes that are none by themselves; whether the columns are there is seen when they are.
pub(super) fn indexes(specs: &[IndexSpec]) -> Answer<()> {
    if specs.len() > INDEXES_MAX {
        return Err(Problem::invalid(format!(
            "an entry has at most {INDEXES_MAX} indexes"
        )));
    }
    let checked = specs.iter().try_for_each(IndexSpec::check);
    checked.map_err(Problem::invalid)
}

/// `PUT /api/materialize/{id}/upload`: a parquet file, streamed to where it stays.
pub(super) async fn upload(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Json<Value>> {
    let id = id(&name)?;
    let (parts, body) = request.into_parts();
    let token = shown(&parts.headers, None)?;
    let cut = |error: axum::Error| {
        Error::new(Kind::Invalid, "read", "upload").because(format!("it was cut short: {error}"))
    };
    let pieces = TryStreamExt::map_err(body.into_data_stream(), cut);
    let stored = shared
        .entries()
        .upload(&id, &token, Box::pin(pieces))
        .await?;
    Ok(Json(
        json!({ "row_count": stored.rows, "byte_size": stored.bytes }),
    ))
}

/// What a builder says of a file that it is about to send.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Coming {
    token: Option<String>,
    bytes: u64,
}

/// `POST /api/materialize/{id}/upload`: where a file of so many bytes is sent, which is here when the store takes none by itself.
pub(super) async fn sending(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Json<Value>> {
    let id = id(&name)?;
    let (headers, coming): (_, Coming) = json_body(&shared, request).await?;
    let token = shown(&headers, coming.token)?;
    let sending = shared.entries().sending(&id, &token, coming.bytes).await?;
    let upload = match sending {
        Some(sending) => json!({
            "method": "PUT",
            "href": sending.href,
            "headers": sending.headers,
            "expires_at": sending.expires_at.to_string(),
        }),
        None => json!({
            "method": "PUT",
            "href": format!("/api/materialize/{id}/upload"),
            "headers": { TOKEN: token },
        }),
    };
    Ok(Json(json!({ "upload": upload })))
}

/// Token, and what a commit may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ending {
    token: Option<String>,
    inline_max: Option<u64>,
    #[serde(default)]
    index: Vec<IndexSpec>,
}

/// `POST /api/materialize/{id}/commit`.
pub(super) async fn commit(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Json<Value>> {
    let id = id(&name)?;
    let (headers, said): (_, Ending) = json_body(&shared, request).await?;
    let token = shown(&headers, said.token)?;
    let inline_max = said.inline_max;
    let registry = shared.entries();
    indexes(&said.index)?;
    let entry = registry.commit(&id, &token, Commit { inline_max }).await?;
    if !said.index.is_empty() {
        registry.index(&id, &said.index).await?;
    }
    Ok(Json(json!({ "entry": registry.shown(&entry) })))
}

/// `POST /api/materialize/{id}/abort`.
pub(super) async fn abort(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Json<Value>> {
    let id = id(&name)?;
    let (headers, said): (_, Ending) = json_body(&shared, request).await?;
    let token = shown(&headers, said.token)?;
    shared.entries().abort(&id, &token).await?;
    Ok(Json(json!({ "id": id.to_string(), "status": "aborted" })))
}

/// The lease's token, of the header or the body.
fn shown(headers: &HeaderMap, said: Option<String>) -> Answer<String> {
    let header = headers.get(TOKEN).and_then(|value| value.to_str().ok());
    said.or_else(|| header.map(str::to_owned)).ok_or_else(|| {
        Problem::typed(
            StatusCode::BAD_REQUEST,
            "urn:headwater:problem:no-lease",
            format!("show the token of the lease: the header `{TOKEN}`, or `token` in the body"),
        )
    })
}
