//! Rows in quarantine of a model.

use axum::{
    Json,
    extract::{Path, State},
};
use engine::quarantine::{self, Dropped, Listing, Replayed, Row};
use serde::Deserialize;

use crate::{
    Shared,
    problem::{Answer, table},
};

/// The rows that are meant: none is all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chosen {
    #[serde(default)]
    ids: Vec<u64>,
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
    Path((model, id)): Path<(String, u64)>,
) -> Answer<Json<Row>> {
    Ok(Json(
        quarantine::show(&shared.world, &table(&model)?, id).await?,
    ))
}

/// `POST /api/live/models/{model}/quarantine/replay`.
pub(crate) async fn replay(
    State(shared): State<Shared>,
    Path(model): Path<String>,
    chosen: Option<Json<Chosen>>,
) -> Answer<Json<Replayed>> {
    let ids = chosen.map(|Json(chosen)| chosen.ids).unwrap_or_default();
    Ok(Json(
        quarantine::replay(&shared.world, &table(&model)?, &ids).await?,
    ))
}

/// `POST /api/live/models/{model}/quarantine/drop`.
pub(crate) async fn drop(
    State(shared): State<Shared>,
    Path(model): Path<String>,
    chosen: Option<Json<Chosen>>,
) -> Answer<Json<Dropped>> {
    let ids = chosen.map(|Json(chosen)| chosen.ids).unwrap_or_default();
    Ok(Json(
        quarantine::drop_rows(&shared.world, &table(&model)?, &ids).await?,
    ))
}
