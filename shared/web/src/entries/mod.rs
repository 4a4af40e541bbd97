//! `/api/materialize/..`: entries over HTTP.
//!
//! | call | does |
//! |---|---|
//! | `GET ..` | lists; `key`, `tenant`, `status`, `expired`, `limit`, `after` |
//! | `POST ../fingerprint` | the fingerprint of a call |
//! | `POST ../query` | a query over the lake, from its entry or computed |
//! | `POST ../sweep`, `../reconcile` | maintenance |
//! | `GET ../{id}` | the entry: one read when its rows ride inline |
//! | `GET ../{id}/data` | its parquet file, by a signed link |
//! | `DELETE ../{id}` | evicts |
//! | `POST ../{id}/lease` | the entry, or the right to build it |
//! | `PUT ../{id}/upload`, `POST ../{id}/commit`, `../{id}/abort` | the build, under the lease's token |
//! | `POST ../{id}/upload` | where its file is sent, when that is not here |
//! | `POST ../{id}/query` | SQL over the entry, which is called `this` |
//! | `POST ../{id}/index`, `GET ../{id}/index` | has it indexed; how far that is |
//! | `POST ../{id}/search`, `../{id}/vector-search` | its rows by words, or nearest to a vector |
//! | `POST ../{id}/refresh`, `../{id}/tokens` | computes it anew; makes a token that reads it |

mod answer;
mod ask;
mod build;
mod data;
mod manage;
mod query;
mod reader;
mod search;

use axum::http::StatusCode;
use axum::{
    Router,
    routing::{get, post, put},
};
use domain::entry::EntryId;
use engine::entries::{Refused, Registry};
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::{
    BODY_PAUSE_MAX, Shared,
    problem::{Answer, ENTRY_MISSING, INDEX_NOT_READY, Problem},
};

pub(crate) use ask::{json_body, object};
pub(crate) use data::is_signed;
pub(crate) use reader::{admit, token_of};

/// The routes.
pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/materialize", get(manage::list))
        .route("/api/materialize/fingerprint", post(ask::fingerprint))
        .route("/api/materialize/query", post(query::run))
        .route("/api/materialize/sweep", post(manage::sweep))
        .route("/api/materialize/reconcile", post(manage::reconcile))
        .route(
            "/api/materialize/{id}",
            get(ask::look_up).delete(manage::evict),
        )
        .route("/api/materialize/{id}/data", get(data::data))
        .route("/api/materialize/{id}/lease", post(build::lease))
        .route(
            "/api/materialize/{id}/upload",
            put(build::upload).post(build::sending),
        )
        .route("/api/materialize/{id}/commit", post(build::commit))
        .route("/api/materialize/{id}/abort", post(build::abort))
        .route("/api/materialize/{id}/query", post(query::over))
        .route(
            "/api/materialize/{id}/index",
            get(search::list).post(search::ask),
        )
        .route("/api/materialize/{id}/search", post(search::words))
        .route("/api/materialize/{id}/vector-search", post(search::vectors))
        .route("/api/materialize/{id}/refresh", post(manage::refresh))
        .route("/api/materialize/{id}/tokens", post(reader::mint))
        // What an upload does with `Expect: 100-continue` and limits is its own.
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(RequestBodyTimeoutLayer::new(BODY_PAUSE_MAX))
}

impl Shared {
    /// The registry of this world.
    pub(crate) fn entries(&self) -> Registry {
        Registry::new(self.world.clone(), self.settings.materialize.clone())
    }
}

/// An entry named in a path.
fn id(text: &str) -> Answer<EntryId> {
    text.parse().map_err(|error: domain::entry::IdError| {
        Problem::typed(
            StatusCode::BAD_REQUEST,
            "urn:headwater:problem:fingerprint",
            error.to_string(),
        )
    })
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        let (status, kind) = match refused {
            Refused::Port(error) => return error.into(),
            Refused::NotIndexed(..) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "urn:headwater:problem:not-indexed",
            ),
            Refused::IndexNotReady(shown) => {
                return search::not_ready(&shown, INDEX_NOT_READY, detail);
            }
            Refused::IndexFailed(shown) => {
                let kind = "urn:headwater:problem:index-failed";
                return search::not_ready(&shown, kind, detail);
            }
            Refused::Missing(_) => (StatusCode::NOT_FOUND, ENTRY_MISSING),
            Refused::Fenced(_) => (StatusCode::CONFLICT, "urn:headwater:problem:lease-lost"),
            Refused::NothingUploaded(_) => (
                StatusCode::CONFLICT,
                "urn:headwater:problem:nothing-uploaded",
            ),
            Refused::Unfit(..) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "urn:headwater:problem:upload-refused",
            ),
            Refused::OtherEntry | Refused::OnlyReads => {
                (StatusCode::FORBIDDEN, "urn:headwater:problem:token-scope")
            }
            Refused::NoLink => (StatusCode::FORBIDDEN, "urn:headwater:problem:link-over"),
            Refused::NoReader => (StatusCode::UNAUTHORIZED, "urn:headwater:problem:token-void"),
        };
        Self::typed(status, kind, detail)
    }
}
