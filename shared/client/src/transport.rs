//! How requests reach the registry: a seam of one call, so that tests need no socket.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, Uri,
    header::{AUTHORIZATION, HeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::TokioExecutor,
};

use crate::error::BoxError;

/// A body on its way, either way.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// No body.
#[must_use]
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is there whole.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Sends requests.
///
/// Contract: a URI without a host is the registry's own, and is sent with whatever lets this caller in; one with a host is
/// somebody else's (a signed URL of an object store), and is sent as it is. An answer of any status is an answer.
#[async_trait]
pub trait Transport: Send + Sync + std::fmt::Debug {
    /// Sends one request.
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, BoxError>;
}

/// HTTP/1.1 to a server or a function, with the system's certificates. Connections are kept. Redirects are not followed: they
/// would take a token elsewhere.
#[derive(Debug)]
pub struct Http {
    base: String,
    token: Option<HeaderValue>,
    pool: Pool<HttpsConnector<HttpConnector>, Body>,
}

impl Http {
    /// A transport to `https://host[/prefix]`, or `http://` of a machine one trusts the way to. The token is one of `auth.tokens`.
    ///
    /// # Errors
    /// When the address is none, the token has characters that no header has, or the system's certificates cannot be read.
    pub fn new(base: &str, token: Option<&str>) -> Result<Self, BoxError> {
        let uri: Uri = base.parse()?;
        if uri.host().is_none() || uri.scheme_str().is_none_or(|s| s != "http" && s != "https") {
            return Err(format!("`{base}` is no address: http(s)://host[:port]").into());
        }
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let token = token.transpose()?.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        let mut plain = HttpConnector::new();
        plain.set_nodelay(true);
        plain.enforce_http(false);
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(provider)?
            .https_or_http()
            .enable_http1()
            .wrap_connector(plain);
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            token,
            pool: Pool::builder(TokioExecutor::new()).build(connector),
        })
    }
}

#[async_trait]
impl Transport for Http {
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if request.uri().host().is_none() {
            *request.uri_mut() = format!("{}{}", self.base, request.uri()).parse()?;
            if let Some(token) = &self.token {
                request.headers_mut().insert(AUTHORIZATION, token.clone());
            }
        }
        let answer = self.pool.request(request).await?;
        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_are_taken() {
        for (base, taken) in [
            ("http://127.0.0.1:8080", true),
            ("https://example.org/prefix/", true),
            ("ftp://example.org", false),
            ("example.org", false),
            ("", false),
        ] {
            assert_eq!(Http::new(base, Some("token")).is_ok(), taken, "{base}");
        }
        assert!(Http::new("http://127.0.0.1", Some("two\nlines")).is_err());
    }

    #[test]
    fn a_token_is_not_shown() {
        let http = Http::new("http://127.0.0.1", Some("hush")).expect("a transport");
        assert!(!format!("{http:?}").contains("hush"));
    }
}
