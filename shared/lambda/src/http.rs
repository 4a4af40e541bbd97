//! HTTP requests through whatever gateway, answered by an axum router.

use axum::{
    Router,
    body::{Body, to_bytes},
};
use http_body_util::Full;
use lambda_http::{
    Adapter, Request, Response,
    http::{StatusCode, header::CONTENT_TYPE},
    request::LambdaRequest,
    service_fn,
};
use lambda_runtime::{Context, Error, LambdaEvent, Service};
use serde_json::Value;
use tower::ServiceExt;

/// Largest answer: the service takes 6 MB, and what is no text grows by a third in its encoding.
const ANSWER_MAX: usize = 4 << 20;

/// Answers requests by a router.
#[derive(Clone, Debug)]
pub struct Http {
    router: Router,
}

impl Http {
    /// Around a router.
    #[must_use]
    pub fn new(router: Router) -> Self {
        Self { router }
    }

    /// Answers one request in the form its gateway expects. Bodies that the gateway encoded are decoded, and answers that
    /// are no text are encoded.
    ///
    /// # Errors
    /// When the answer cannot be put in that form.
    pub async fn answer(&self, request: LambdaRequest, context: Context) -> Result<Value, Error> {
        let router = self.router.clone();
        let mut adapter = Adapter::from(service_fn(move |request: Request| {
            let router = router.clone();
            async move {
                let answer = router.oneshot(request.map(into_body)).await;
                let (parts, body) = answer.unwrap_or_else(|never| match never {}).into_parts();
                match to_bytes(body, ANSWER_MAX).await {
                    Ok(bytes) => Ok::<_, Error>(Response::from_parts(parts, Full::new(bytes))),
                    Err(_) => too_large(),
                }
            }
        }));
        let response = adapter.call(LambdaEvent::new(request, context)).await?;
        Ok(serde_json::to_value(response)?)
    }
}

fn into_body(body: lambda_http::Body) -> Body {
    match body {
        lambda_http::Body::Text(text) => Body::from(text),
        lambda_http::Body::Binary(bytes) => Body::from(bytes),
        // The type may grow; what is no bytes is no body.
        _ => Body::empty(),
    }
}

/// The answer in place of one that the service would refuse.
fn too_large() -> Result<Response<Full<axum::body::Bytes>>, Error> {
    let detail =
        format!("the answer is larger than {ANSWER_MAX} bytes; ask for less, with LIMIT for one");
    let problem = serde_json::json!({
        "type": "about:blank", "title": "the answer is too large", "status": 413, "detail": detail,
    });
    let response = Response::builder()
        .status(StatusCode::PAYLOAD_TOO_LARGE)
        .header(CONTENT_TYPE, "application/problem+json");
    Ok(response.body(Full::new(problem.to_string().into()))?)
}
