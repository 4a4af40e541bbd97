//! Who may call. With tokens configured everybody shows one; without, only programs and pages of this machine are let in:
//! `serve` listens nowhere else, and answers to no name but this machine's.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::{
    body::Body,
    extract::State,
    http::{
        HeaderMap, HeaderValue, Request, StatusCode,
        header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{Shared, entries, problem::Problem};

/// What anybody may ask for: whether the server lives, and the page, which asks for a token itself.
const OPEN: [&str; 2] = ["/healthz", "/"];

/// Lets a request through, or says why not.
pub(crate) async fn guard(
    State(shared): State<Shared>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let tokens = &shared.settings.auth.tokens;
    // A name that somebody else points at this machine makes a page of theirs one of ours to the browser, which then says
    // nothing of its origin when it reads. What has no such name (HTTP/1.0) comes from no browser. The gateway of a
    // deployment has a name of its own and lets in whom it knows.
    let refused = match shared.driven {
        true => is_browser(request.headers()) && !is_local(request.headers()),
        false => request.headers().contains_key(HOST) && !is_local(request.headers()),
    };
    if tokens.is_empty() && refused {
        return Problem::new(
            StatusCode::FORBIDDEN,
            "this server is reached as localhost or by its address only; configure `auth.tokens` for other names",
        )
        .into_response();
    }
    // A token of an entry says less than any other: it is judged whatever else would let its caller in.
    if let Some(token) = entries::token_of(request.headers()) {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        return match entries::admit(&shared, method, path, token).await {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        };
    }
    // A signed link is its own token: it is judged where it leads.
    if tokens.is_empty()
        || entries::is_signed(request.uri())
        || OPEN.contains(&request.uri().path())
        || is_known(request.headers(), tokens)
    {
        return next.run(request).await;
    }
    let problem = Problem::new(
        StatusCode::UNAUTHORIZED,
        match request.headers().contains_key(AUTHORIZATION) {
            true => {
                "this token is not known here: `auth.tokens` names the digests of those that are, as `headwater token` prints \
                 them, and `Authorization: Bearer TOKEN` shows one"
            }
            false => "send a token: `Authorization: Bearer TOKEN`",
        },
    );
    let mut response = problem.into_response();
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Whether a request shows a token whose digest is configured. Digests are compared in constant time.
fn is_known(headers: &HeaderMap, tokens: &[[u8; 32]]) -> bool {
    let value = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let Some((scheme, token)) = value.and_then(|value| value.split_once(' ')) else {
        return false;
    };
    let digest = blake3::hash(token.trim().as_bytes());
    let mut known = false;
    for token in tokens {
        known |= digest == *token;
    }
    known && scheme.eq_ignore_ascii_case("bearer")
}

/// Whether a browser sent it: programs send neither header.
fn is_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site")
}

/// Whether it was sent to `localhost` or to an address, and not to a name that others can choose.
fn is_local(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let (name, is_v6) = match host.strip_prefix('[') {
        Some(rest) => (rest.split(']').next().unwrap_or_default(), true),
        None => (host.split(':').next().unwrap_or_default(), false),
    };
    match is_v6 {
        true => name.parse::<Ipv6Addr>().is_ok(),
        false => {
            name.parse::<Ipv4Addr>().is_ok()
                || name.eq_ignore_ascii_case("localhost")
                || name.to_ascii_lowercase().ends_with(".localhost")
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pair =
            |(name, value): &(HeaderName, &str)| (name.clone(), value.parse().expect("a header"));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_browser_reaches_this_machine_by_no_name_of_others() {
        for (host, local) in [
            ("localhost:8080", true),
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("shop.localhost", true),
            ("evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_local(&headers(&[(HOST, host)])), local, "{host}");
        }
        let mut two = headers(&[(HOST, "localhost:8080")]);
        two.append(HOST, HeaderValue::from_static("evil.example"));
        assert!(!is_local(&two), "one of two is not ours");
        assert!(is_browser(&headers(&[(ORIGIN, "http://localhost:8080")])));
        assert!(!is_browser(&headers(&[(HOST, "localhost")])));
    }

    #[test]
    fn a_token_is_known_by_its_digest() {
        let tokens = [
            *blake3::hash(b"first").as_bytes(),
            *blake3::hash(b"second").as_bytes(),
        ];
        for (shown, known) in [
            ("Bearer second", true),
            ("bearer first", true),
            ("Bearer third", false),
            ("Basic first", false),
            ("first", false),
            ("Bearer ", false),
        ] {
            assert_eq!(
                is_known(&headers(&[(AUTHORIZATION, shown)]), &tokens),
                known,
                "{shown}"
            );
        }
        assert!(!is_known(&HeaderMap::new(), &tokens));
    }
}
