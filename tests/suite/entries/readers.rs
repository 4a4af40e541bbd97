//! Tokens that read one entry.

use anyhow::{Context, Result, ensure};
use domain::Duration;
use libtest_mimic::Trial;
use serde_json::json;
use tests::site::Site;

use super::{Desk, kind, rows};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "entries::a_token_reads_one_entry_and_does_nothing_else",
            scope,
        ),
        test_async("entries::evicting_revokes_tokens", revoked),
    ]
}

/// BLAKE3 of `open sesame`.
fn settings() -> String {
    let digest = blake3::hash(b"open sesame").to_hex();
    format!("auth:\n  tokens: blake3:{digest}\n")
}

const OWNER: (&str, &str) = ("authorization", "Bearer open sesame");

/// Builds an entry as its owner.
async fn build(desk: &Desk) -> Result<()> {
    let lease = desk.with("POST", "/lease", &[OWNER], json!({})).await?;
    let token = lease.json()?["lease"]["token"]
        .as_str()
        .context("no lease")?
        .to_owned();
    let path = format!("/api/materialize/{}/upload", desk.id);
    let file = tests::parquet::of_objects(&rows())?;
    desk.site
        .send("PUT", &path, &[OWNER, ("headwater-lease", &token)], file)
        .await?;
    let done = desk
        .with("POST", "/commit", &[OWNER], json!({ "token": token }))
        .await?;
    ensure!(done.status == 200, "{}", done.text());
    Ok(())
}

async fn mint(desk: &Desk, ttl: u64) -> Result<String> {
    let answer = desk
        .with("POST", "/tokens", &[OWNER], json!({ "ttl": ttl }))
        .await?;
    let token = answer.json()?["token"]
        .as_str()
        .context("no token")?
        .to_owned();
    Ok(format!("Bearer {token}"))
}

async fn scope() -> Result<()> {
    let desk = Desk::on(Site::in_memory(&[], &settings())?)?;
    build(&desk).await?;
    let token = mint(&desk, 60).await?;
    let shown = [("authorization", token.as_str())];
    ensure!(desk.get().await?.status == 401);
    let sql = json!({ "sql": "SELECT sum(n) AS n FROM this" });
    ensure!(desk.with("GET", "", &shown, json!({})).await?.status == 200);
    ensure!(
        desk.with("POST", "/query", &shown, sql.clone())
            .await?
            .status
            == 200
    );
    // A search may read, and says what it lacks; having it indexed is not reading.
    let search = desk
        .with("POST", "/search", &shown, json!({ "query": "a" }))
        .await?;
    ensure!(search.status == 422, "{}", search.text());
    let near = json!({ "column": "n", "vector": [1.0] });
    ensure!(
        desk.with("POST", "/vector-search", &shown, near)
            .await?
            .status
            == 422
    );
    for (method, path) in [
        ("POST", "/lease"),
        ("POST", "/index"),
        ("POST", "/refresh"),
        ("DELETE", ""),
        ("POST", "/tokens"),
        ("POST", "/commit"),
        ("PUT", "/upload"),
    ] {
        let answer = desk.with(method, path, &shown, json!({})).await?;
        ensure!(
            answer.status == 403 && kind(&answer)?.ends_with("token-scope"),
            "{method} {path}: {}",
            answer.text()
        );
        // It is its entry; what is refused is what it asks for.
        ensure!(
            answer.text().contains("does nothing else") && !answer.text().contains("another"),
            "{method} {path}: {}",
            answer.text()
        );
    }
    for (method, path) in [
        ("GET", "/api/materialize"),
        ("POST", "/api/query"),
        ("POST", "/api/materialize/query"),
        ("GET", "/metrics"),
        ("GET", "/api/live/status"),
        ("GET", "/"),
        ("GET", "/healthz"),
        ("GET", "/api/materialize/"),
        ("GET", "/api/materialize/none"),
        ("POST", "/api/materialize//query"),
        ("GET", "/no/such/path"),
    ] {
        let answer = desk
            .site
            .send(method, path, &shown, sql.to_string())
            .await?;
        ensure!(answer.status == 403, "{method} {path}: {}", answer.status);
    }
    // Another entry, another token's text, and no time left.
    let other = Desk {
        id: domain::fingerprint::Call::new("other", 1)
            .fingerprint()?
            .to_string(),
        ..desk
    };
    build(&other).await?;
    let answer = other.with("GET", "", &shown, json!({})).await?;
    ensure!(
        answer.status == 403
            && kind(&answer)?.ends_with("token-scope")
            && answer.text().contains("another entry"),
        "{}",
        answer.text()
    );
    let forged = format!("Bearer hwe.{}.{}", other.id, "0".repeat(72));
    let answer = other
        .with("GET", "", &[("authorization", &forged)], json!({}))
        .await?;
    ensure!(
        answer.status == 401 && kind(&answer)?.ends_with("token-void"),
        "{}",
        answer.text()
    );
    let short = mint(&other, 60).await?;
    let shown = [("authorization", short.as_str())];
    ensure!(other.with("GET", "", &shown, json!({})).await?.status == 200);
    other.site.lab.clock.advance(Duration::from_secs(60));
    ensure!(other.with("GET", "", &shown, json!({})).await?.status == 401);
    let long = other
        .with("POST", "/tokens", &[OWNER], json!({ "ttl": "2d" }))
        .await?;
    ensure!(long.status == 400, "{}", long.text());
    Ok(())
}

async fn revoked() -> Result<()> {
    let desk = Desk::on(Site::in_memory(&[], &settings())?)?;
    build(&desk).await?;
    let token = mint(&desk, 600).await?;
    let shown = [("authorization", token.as_str())];
    ensure!(desk.with("GET", "", &shown, json!({})).await?.status == 200);
    ensure!(desk.with("DELETE", "", &[OWNER], json!({})).await?.status == 200);
    ensure!(desk.with("GET", "", &shown, json!({})).await?.status == 401);
    // The entry comes back, the token does not.
    build(&desk).await?;
    ensure!(desk.with("GET", "", &shown, json!({})).await?.status == 401);
    ensure!(
        desk.with(
            "GET",
            "",
            &[("authorization", &mint(&desk, 60).await?)],
            json!({})
        )
        .await?
        .status
            == 200
    );
    Ok(())
}
