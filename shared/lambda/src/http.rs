//! HTTP requests through whatever gateway, answered by an axum router.

use axum::{Router, body::Body};
use lambda_http::{Adapter, Request, request::LambdaRequest, service_fn};
use lambda_runtime::{Context, Error, LambdaEvent, Service};
use serde_json::Value;
use tower::ServiceExt;

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
            async move { router.oneshot(request.map(into_body)).await }
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
