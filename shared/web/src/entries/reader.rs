//! Tokens that read one entry: made here, and let in by the guard for the calls that read.

use axum::{
    Json,
    extract::{Path, Request, State},
    http::{HeaderMap, Method, header::AUTHORIZATION},
};
use domain::Duration;
use engine::entries::{Refused, is_token};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ask::{Span, json_body},
    id,
};
use crate::{Shared, problem::Answer};

/// How long a token lives when nobody says otherwise.
const LIFE: Duration = Duration::from_secs(600);

/// How long it is to live.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Life {
    ttl: Option<Span>,
}

/// `POST /api/materialize/{id}/tokens`: a token that reads this entry, for a while.
pub(super) async fn mint(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Json<Value>> {
    let id = id(&name)?;
    let (_, life): (_, Life) = json_body(&shared, request).await?;
    let life = life.ttl.map_or(Ok(LIFE), |span| span.get())?;
    let reader = shared.entries().mint(&id, life).await?;
    Ok(Json(json!({
        "token": reader.token,
        "expires_at": reader.expires_at.to_string(),
        "reads": id.to_string(),
    })))
}

/// The token of an entry that a request shows, if it shows one.
pub(crate) fn token_of(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let token = value.split_once(' ')?.1.trim();
    is_token(token).then(|| token.to_owned())
}

/// Judges a token of an entry: it reads its entry and does nothing else.
///
/// # Errors
/// Why it does not let this request in.
pub(crate) async fn admit(
    shared: &Shared,
    method: Method,
    path: String,
    token: String,
) -> Answer<()> {
    let rest = path.strip_prefix("/api/materialize/").unwrap_or_default();
    let name = match rest.split_once('/') {
        None if method == Method::GET || method == Method::HEAD => rest,
        Some((name, "query" | "search" | "vector-search")) if method == Method::POST => name,
        _ => return Err(Refused::OnlyReads.into()),
    };
    // What names no entry is not the token's entry, whatever it is.
    let id = name.parse().map_err(|_| Refused::OtherEntry)?;
    Ok(shared.entries().admit(&id, &token).await?)
}
