//! HTTP requests through whatever gateway, answered by an axum router.

use axum::{
    Router,
    body::{Body, to_bytes},
};
use http_body_util::Full;
use lambda_http::{
    Adapter, Request, Response,
    aws_lambda_events::{
        alb::AlbTargetGroupRequest,
        apigw::{ApiGatewayProxyRequest, ApiGatewayV2httpRequest},
    },
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HOST},
    },
    request::LambdaRequest,
    service_fn,
};
use lambda_runtime::{Context, Error, LambdaEvent, Service};
use serde_json::Value;
use tower::ServiceExt;

use crate::target::settle;

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
    pub async fn answer(
        &self,
        mut request: LambdaRequest,
        context: Context,
    ) -> Result<Value, Error> {
        if !is_readable(&request) {
            let why = "the gateway says that the body is Base64, and it is not";
            return refuse(&request, context, "the body cannot be read", why).await;
        }
        let hosts = match settle(&mut request) {
            Ok(hosts) => hosts,
            Err(why) => return refuse(&request, context, "the request is wrong", why).await,
        };
        let router = self.router.clone();
        let mut adapter = Adapter::from(service_fn(move |mut request: Request| {
            let router = router.clone();
            for host in &hosts {
                request.headers_mut().append(HOST, host.clone());
            }
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

/// Whether the body is encoded as its gateway says: the adapter takes that for granted, and panics.
fn is_readable(request: &LambdaRequest) -> bool {
    let (encoded, body) = match request {
        LambdaRequest::ApiGatewayV2(request) => (request.is_base64_encoded, &request.body),
        LambdaRequest::ApiGatewayV1(request) => (request.is_base64_encoded, &request.body),
        LambdaRequest::Alb(request) => (request.is_base64_encoded, &request.body),
        // The type may grow.
        _ => return true,
    };
    !encoded || body.as_deref().is_none_or(is_base64)
}

/// Whether a text is what Base64 makes of some bytes: whole groups of four, padded, and no bits left over.
fn is_base64(text: &str) -> bool {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = text
        .strip_suffix("==")
        .or(text.strip_suffix('='))
        .unwrap_or(text);
    let spare = match text.len() - digits.len() {
        0 => 0b00_0000,
        1 => 0b00_0011,
        _ => 0b00_1111,
    };
    let whole = text.len().is_multiple_of(4) && digits.bytes().all(|byte| digit(byte).is_some());
    let last = digits.bytes().last().and_then(digit).unwrap_or(0);
    whole && last & spare == 0 && (spare == 0 || digits.len() % 4 > 1)
}

/// The refusal of what cannot be read, in the form that the gateway expects.
async fn refuse(
    request: &LambdaRequest,
    context: Context,
    title: &'static str,
    why: &'static str,
) -> Result<Value, Error> {
    let mut adapter = Adapter::from(service_fn(move |_: Request| async move {
        problem(StatusCode::BAD_REQUEST, title, why)
    }));
    let response = adapter
        .call(LambdaEvent::new(like(request), context))
        .await?;
    Ok(serde_json::to_value(response)?)
}

/// A request of the same gateway without anything in it.
fn like(request: &LambdaRequest) -> LambdaRequest {
    let root = Some("/".to_owned());
    match request {
        LambdaRequest::ApiGatewayV1(_) => {
            let mut empty = ApiGatewayProxyRequest::default();
            empty.path = root;
            LambdaRequest::ApiGatewayV1(empty)
        }
        LambdaRequest::Alb(_) => {
            let mut empty = AlbTargetGroupRequest::default();
            empty.path = root;
            LambdaRequest::Alb(empty)
        }
        _ => {
            let mut empty = ApiGatewayV2httpRequest::default();
            empty.raw_path = root;
            LambdaRequest::ApiGatewayV2(empty)
        }
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
    problem(
        StatusCode::PAYLOAD_TOO_LARGE,
        "the answer is too large",
        &detail,
    )
}

fn problem(
    status: StatusCode,
    title: &str,
    detail: &str,
) -> Result<Response<Full<axum::body::Bytes>>, Error> {
    let problem = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
    });
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/problem+json");
    Ok(response.body(Full::new(problem.to_string().into()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_base64_is_known() {
        for good in ["", "QQ==", "QUI=", "QUJD", "+/+/", "QUJDQQ=="] {
            assert!(is_base64(good), "{good}");
        }
        let bad = [
            "Q", "QQ", "QQ=", "QUJ", "Q===", "====", "=", "QR==", "QUK=", "QUJ-", "QU JD",
            "QUJD\n", "QQ==QUJD", "ä===",
        ];
        for bad in bad {
            assert!(!is_base64(bad), "{bad}");
        }
    }
}
