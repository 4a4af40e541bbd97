//! Status and controls of the live runner.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use domain::{Duration, Materialized, Position, TableName, Timestamp, items};
use engine::{control, lags, runner::Event, status};
use ports::{queue::Announcement, state::Key};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Shared,
    problem::{Answer, Problem, table},
};

/// Where everything stands, and of what.
#[derive(Debug, Serialize)]
pub(crate) struct Standing {
    /// The project's name.
    project: String,
    #[serde(flatten)]
    status: status::Status,
}

/// `GET /api/live/status`.
pub(crate) async fn status(State(shared): State<Shared>) -> Answer<Json<Standing>> {
    let project = shared.settings.name.clone();
    let status = status::status(&shared.world, Some(shared.runner.status())).await?;
    Ok(Json(Standing { project, status }))
}

/// `GET /api/models/{model}/lag`: the last hour by minutes, the last day by quarters of an hour.
pub(crate) async fn lag(
    State(shared): State<Shared>,
    Path(model): Path<String>,
) -> Answer<Json<lags::History>> {
    Ok(Json(lags::history(&shared.world, &table(&model)?).await?))
}

/// `POST /api/live/models/{model}/pause`.
pub(crate) async fn pause(
    State(shared): State<Shared>,
    Path(model): Path<String>,
) -> Answer<Json<Value>> {
    let model = table(&model)?;
    control::set_paused(&shared.world, &model, true).await?;
    record(&shared, &model, "pause");
    Ok(Json(
        json!({ "model": model, "paused": true, "status": "paused" }),
    ))
}

/// `POST /api/live/models/{model}/resume`.
pub(crate) async fn resume(
    State(shared): State<Shared>,
    Path(model): Path<String>,
) -> Answer<Json<Value>> {
    let model = table(&model)?;
    control::set_paused(&shared.world, &model, false).await?;
    record(&shared, &model, "resume");
    have_looked(&shared, &model).await?;
    Ok(Json(
        json!({ "model": model, "paused": false, "status": "active" }),
    ))
}

/// `POST /api/live/models/{model}/refresh`: at the next cycle, whatever backoff and interval say.
pub(crate) async fn refresh(
    State(shared): State<Shared>,
    Path(model): Path<String>,
) -> Answer<Json<Value>> {
    let model = table(&model)?;
    if is_live(&shared, &model) && !shared.driven && !shared.runner.is_running() {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "the runner is stopped; start it with POST /api/live/start",
        ));
    }
    control::refresh_now(&shared.world, &model).await?;
    record(&shared, &model, "refresh");
    have_looked(&shared, &model).await?;
    Ok(Json(json!({ "model": model, "status": "scheduled" })))
}

/// Has somebody look at the models of a deployment, whose functions run only when something is announced. It says nothing
/// new. A runner in the process looks by itself.
async fn have_looked(shared: &Shared, model: &TableName) -> Answer<()> {
    if shared.driven {
        let announcement = Announcement {
            table: model.clone(),
            position: Position::default(),
        };
        shared.world.queue.send(&[announcement]).await?;
    }
    Ok(())
}

/// `POST /api/live/sources/{source}/advance`.
pub(crate) async fn advance(
    State(shared): State<Shared>,
    Path(source): Path<String>,
) -> Answer<Json<Value>> {
    let source = table(&source)?;
    let found = control::advance(&shared.world, &source).await?;
    Ok(Json(json!({
        "source": source, "rows": found.rows, "advanced": found.rows > 0, "from": found.from, "to": found.to,
    })))
}

/// `POST /api/live/start`.
pub(crate) async fn start(State(shared): State<Shared>) -> Answer<Json<Value>> {
    refuse_driven(&shared)?;
    shared.runner.start();
    Ok(Json(json!({ "running": true })))
}

/// `POST /api/live/stop`: answers when the cycle in progress has ended.
pub(crate) async fn stop(State(shared): State<Shared>) -> Answer<Json<Value>> {
    refuse_driven(&shared)?;
    shared.runner.stop().await;
    Ok(Json(json!({ "running": false })))
}

fn refuse_driven(shared: &Shared) -> Answer<()> {
    match shared.driven {
        true => Err(Problem::new(
            StatusCode::CONFLICT,
            "models of a deployment are run by its functions; pause and resume the models",
        )),
        false => Ok(()),
    }
}

/// How long it is told that events could not be stored, unless some were stored since: who is sent nothing for that reason
/// is tried again.
const TROUBLE: Duration = Duration::from_secs(30);

/// `GET /healthz`: the process answers, its state store too, events could be stored when there were any lately, and the
/// runner runs if it is meant to.
pub(crate) async fn health(State(shared): State<Shared>) -> Answer<Json<Value>> {
    let world = &shared.world;
    world
        .state
        .get(&Key::new(items::CYCLE, items::CURRENT))
        .await?;
    world.state.change_counter().await?;
    let lately = |(at, _): &(Timestamp, _)| world.clock.now().since(*at) < TROUBLE;
    let stored = world.landing.trouble().filter(lately);
    let stored = stored.map(|(_, why)| format!("events cannot be stored: {why}"));
    let runs = || {
        let why = shared.runner.trouble()?;
        Some(format!(
            "the runner is down, and is started again soon: {why}"
        ))
    };
    match stored.or_else(runs) {
        None => Ok(Json(json!({ "status": "ok" }))),
        Some(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)),
    }
}

fn is_live(shared: &Shared, model: &TableName) -> bool {
    let model = shared.world.project.models.get(model);
    model.is_some_and(|model| {
        model.config.live && model.config.materialized == Materialized::Incremental
    })
}

/// Puts a control on the feed, and lets it take effect at once.
fn record(shared: &Shared, model: &TableName, action: &'static str) {
    let at = shared.world.clock.now().to_string();
    shared.runner.record(Event::Control {
        model: model.clone(),
        action,
        at,
    });
    shared.runner.wake();
}
