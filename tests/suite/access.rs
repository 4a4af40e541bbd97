//! Who is let in.

use anyhow::{Result, ensure};
use axum::{body::Body, http::StatusCode};
use libtest_mimic::Trial;
use tests::{
    site::Site,
    world::{Adapter, Lab},
};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("access::with_tokens_everybody_shows_one", tokens),
        test_async("access::pages_of_other_names_are_refused", names),
    ]
}

/// BLAKE3 of `open sesame`.
fn settings() -> String {
    let digest = blake3::hash(b"open sesame").to_hex();
    format!("auth:\n  tokens: blake3:{digest}\n")
}

async fn status(
    site: &Site,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<StatusCode> {
    let answer = site.send(method, path, headers, Body::from("{}")).await?;
    Ok(StatusCode::from_u16(answer.status)?)
}

async fn tokens() -> Result<()> {
    let site = Site::in_memory(&[], &settings())?;
    let (known, unknown) = (
        [("authorization", "Bearer open sesame")],
        [("authorization", "Bearer sesame")],
    );
    for (method, path, open) in [
        ("GET", "/healthz", true),
        ("GET", "/", true),
        ("GET", "/api/live/status", false),
        ("GET", "/metrics", false),
        ("POST", "/api/ingest/webhook/orders", false),
        ("POST", "/api/query", false),
        ("GET", "/no/such/path", false),
    ] {
        for headers in [&[][..], &unknown[..]] {
            let found = status(&site, method, path, headers).await?;
            let refused = found == StatusCode::UNAUTHORIZED;
            ensure!(refused != open, "{path} with {headers:?}: {found}");
        }
        let found = status(&site, method, path, &known).await?;
        ensure!(
            found != StatusCode::UNAUTHORIZED,
            "{path} with its token: {found}"
        );
    }
    Ok(())
}

async fn names() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let rebound = [
        ("host", "evil.example:8080"),
        ("origin", "http://evil.example:8080"),
    ];
    let read = [
        ("host", "evil.example:8080"),
        ("sec-fetch-site", "same-origin"),
    ];
    for headers in [&rebound[..], &read[..]] {
        let found = status(&site, "POST", "/api/live/stop", headers).await?;
        ensure!(found == StatusCode::FORBIDDEN, "{headers:?}: {found}");
    }
    // A page's reads of its own origin carry neither header: the name alone tells.
    for path in [
        "/",
        "/healthz",
        "/metrics",
        "/api/models",
        "/api/live/status",
    ] {
        for host in [
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
        ] {
            let found = status(&site, "GET", path, &[("host", host)]).await?;
            ensure!(found == StatusCode::FORBIDDEN, "{path} of {host}: {found}");
        }
        for headers in [
            &[][..],
            &[("host", "localhost:8080")],
            &[("host", "127.0.0.1:8080")],
            &[("host", "[::1]:8080")],
        ] {
            let found = status(&site, "GET", path, headers).await?;
            ensure!(found.is_success(), "{path} of {headers:?}: {found}");
        }
    }
    // Where a gateway lets callers in, its name is the one they use.
    let lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    let deployed = Site::driven(lab, "")?;
    let gateway = [("host", "abc.execute-api.eu-west-1.amazonaws.com")];
    let found = status(&deployed, "GET", "/api/models", &gateway).await?;
    ensure!(found.is_success(), "behind a gateway: {found}");
    // With tokens any name will do: the page of another has none to show.
    let guarded = Site::in_memory(&[], &settings())?;
    let known = [
        ("host", "headwater.example"),
        ("authorization", "Bearer open sesame"),
    ];
    let found = status(&guarded, "GET", "/api/models", &known).await?;
    ensure!(found.is_success(), "with a token: {found}");
    let own = [
        ("host", "localhost:8080"),
        ("origin", "http://localhost:8080"),
    ];
    let found = status(&site, "POST", "/api/live/stop", &own).await?;
    ensure!(found.is_success(), "our own page: {found}");
    Ok(())
}
