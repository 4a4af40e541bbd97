//! `/`: the live status page, one self-contained document.

use axum::{
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY},
    response::{Html, IntoResponse},
};

/// Inline style and script only, and requests to this server only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`.
pub(crate) async fn page() -> impl IntoResponse {
    (
        [
            (CONTENT_SECURITY_POLICY, POLICY),
            (CACHE_CONTROL, "no-cache"),
        ],
        Html(include_str!("page.html")),
    )
}
