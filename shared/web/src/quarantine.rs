//! Rows in quarantine of a model.

use axum::{
    Json,
    extract::{Path, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use domain::TableName;
use engine::quarantine::{self, Asked, Dropped, Listing, Row};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    Shared,
    entries::json_body,
    problem::{Answer, Problem, table},
};

/// The rows that are meant: without `ids` all of them, which only an empty body or an empty object says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chosen {
    #[serde(default, deserialize_with = "some")]
    ids: Option<Vec<u64>>,
}

/// A replay that another process will carry out: the listing of the model's quarantine says when it has.
#[derive(Debug, Serialize)]
struct Waiting {
    model: TableName,
    replay: Asked,
}

/// `null` is no list: whoever sends it meant something else than all rows.
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u64>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

/// What a call is about: a model, and some of its rows or all.
async fn asked(
    shared: &Shared,
    model: &str,
    request: Request,
) -> Answer<(TableName, Option<Vec<u64>>)> {
    if request.uri().query().is_some() {
        let why = "rows are named in the body, `{\"ids\": [5]}`, and not in the address";
        return Err(Problem::invalid(why));
    }
    let (_, chosen): (_, Chosen) = json_body(shared, request).await?;
    Ok((table(model)?, chosen.ids))
}

/// `GET /api/live/models/{model}/quarantine`.
pub(crate) async fn list(
    State(shared): State<Shared>,
    Path(model): Path<String>,
) -> Answer<Json<Listing>> {
    let model = table(&model)?;
    Ok(Json(quarantine::list(&shared.world, Some(&model)).await?))
}

/// `GET /api/live/models/{model}/quarantine/{id}`.
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((model, id)): Path<(String, String)>,
) -> Answer<Json<Row>> {
    let id = id.parse().map_err(|_| {
        Problem::invalid(format!("`{id}` is not the id of a row, which is a number"))
    })?;
    Ok(Json(
        quarantine::show(&shared.world, &table(&model)?, id).await?,
    ))
}

/// `POST /api/live/models/{model}/quarantine/replay`: at once, or by the process that writes tables.
pub(crate) async fn replay(
    State(shared): State<Shared>,
    Path(model): Path<String>,
    request: Request,
) -> Answer<Response> {
    let (model, ids) = asked(&shared, &model, request).await?;
    if shared.world.jobs.is_some() {
        let replay = quarantine::ask(&shared.world, &model, ids.as_deref()).await?;
        let will = Waiting { model, replay };
        return Ok((StatusCode::ACCEPTED, Json(will)).into_response());
    }
    let done = quarantine::replay(&shared.world, &model, ids.as_deref()).await?;
    Ok(Json(done).into_response())
}

/// `POST /api/live/models/{model}/quarantine/drop`.
pub(crate) async fn drop(
    State(shared): State<Shared>,
    Path(model): Path<String>,
    request: Request,
) -> Answer<Json<Dropped>> {
    let (model, ids) = asked(&shared, &model, request).await?;
    let done = quarantine::drop_rows(&shared.world, &model, ids.as_deref()).await?;
    Ok(Json(done))
}
