//! HTTP: ingest of events and changes, the control API, reads, materialized entries, metrics and the status page, over `engine`.
//!
//! Handlers pick a request apart, call one use case and put the answer together; what an error
//! becomes is decided in one place (`problem`). Nothing here knows which state store, lake or query
//! engine is behind the ports.
//!
//! Every error is an RFC 9457 problem document, whoever raised it: a use case, the router (404,
//! 405), a layer (415) or a panic (500).

mod auth;
mod body;
mod entries;
mod events;
mod ingest;
mod live;
mod metrics;
mod models;
mod page;
mod problem;
mod quarantine;
mod query;
pub mod rows;

use std::sync::Arc;

pub use events::FEEDS_MAX;

use axum::{
    Router, middleware,
    routing::{get, post},
};
use engine::{World, runner::Runner};
use settings::Settings;
use tower_http::{catch_panic::CatchPanicLayer, timeout::RequestBodyTimeoutLayer};

/// Longest pause between two pieces of a body: a client that sends nothing must not hold memory for ever.
const BODY_PAUSE_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// What the handlers are given.
#[derive(Clone, Debug)]
pub struct App {
    /// The ports and the project.
    pub world: World,
    /// The runner of this process, running or not.
    pub runner: Runner,
    /// Whether other processes run the models, told by the queue: then there is nothing to start or stop here.
    pub driven: bool,
    /// Settings of sources and of reads.
    pub settings: Arc<Settings>,
}

/// Shared by all handlers.
#[derive(Clone, Debug)]
struct Shared {
    app: App,
    counters: Arc<metrics::Counters>,
    bodies: body::Budget,
    answers: body::Budget,
    feeds: Arc<tokio::sync::Semaphore>,
}

impl std::ops::Deref for Shared {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

/// The routes of ingest alone: for a function that runs no SQL.
pub fn ingest_router(app: App) -> Router {
    let reads = Router::new().route("/healthz", get(live::health));
    finish(ingest_routes().merge(reads), app)
}

fn ingest_routes() -> Router<Shared> {
    Router::new()
        .route("/api/ingest/webhook/{source}", post(ingest::webhook))
        .route("/api/ingest/cdc/{source}", post(ingest::cdc))
        .layer(RequestBodyTimeoutLayer::new(BODY_PAUSE_MAX))
}

fn quarantine_routes() -> Router<Shared> {
    let of = |path: &str| format!("/api/live/models/{{model}}/quarantine{path}");
    Router::new()
        .route(&of(""), get(quarantine::list))
        .route(&of("/{id}"), get(quarantine::show))
        .route(&of("/replay"), post(quarantine::replay))
        .route(&of("/drop"), post(quarantine::drop))
        .layer(RequestBodyTimeoutLayer::new(BODY_PAUSE_MAX))
}

/// All routes of the program.
pub fn router(app: App) -> Router {
    let live = Router::new()
        .route("/api/live/status", get(live::status))
        .route("/api/live/events", get(events::events))
        .route("/api/live/models/{model}/pause", post(live::pause))
        .route("/api/live/models/{model}/resume", post(live::resume))
        .route("/api/live/models/{model}/refresh", post(live::refresh))
        .merge(quarantine_routes())
        .route("/api/live/sources/{source}/advance", post(live::advance))
        .route("/api/live/start", post(live::start))
        .route("/api/live/stop", post(live::stop));
    let reads = Router::new()
        .route("/api/models", get(models::list))
        .route("/api/models/{model}", get(models::one))
        .route("/api/models/{model}/lag", get(live::lag))
        .route("/api/dag", get(models::dag))
        .route(
            "/api/query",
            post(query::query).layer(RequestBodyTimeoutLayer::new(BODY_PAUSE_MAX)),
        )
        .route("/healthz", get(live::health))
        .route("/metrics", get(metrics::metrics))
        .route("/", get(page::page));
    finish(
        ingest_routes()
            .merge(live)
            .merge(reads)
            .merge(entries::routes()),
        app,
    )
}

/// What all routes have around them.
fn finish(routes: Router<Shared>, app: App) -> Router {
    let shared = Shared {
        app,
        counters: Arc::default(),
        bodies: body::Budget::default(),
        answers: body::Budget::of_answers(),
        feeds: events::places(),
    };
    routes
        .fallback(problem::not_found)
        .layer(middleware::from_fn(problem::refuse_other_origins))
        .layer(middleware::from_fn_with_state(shared.clone(), auth::guard))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(middleware::map_response(problem::fill_in))
        .layer(middleware::from_fn_with_state(
            shared.clone(),
            metrics::count,
        ))
        .with_state(shared)
}
