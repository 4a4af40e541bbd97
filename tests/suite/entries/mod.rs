//! Materialized entries, from outside: what callers of the HTTP interface are promised.

mod bad;
mod bugs;
mod cost;
mod deaths;
mod delivered;
mod deployed;
mod distinct;
mod evictions;
mod jobs;
mod large;
mod leases;
mod program;
mod queries;
mod readers;
mod search;
mod sending;

use anyhow::{Context, Result, ensure};
use domain::fingerprint::Call;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{http::Answer, parquet, site::Site};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = bugs::trials();
    trials.extend(bad::trials());
    trials.extend(cost::trials());
    trials.extend(deaths::trials());
    trials.extend(delivered::trials());
    trials.extend(deployed::trials());
    trials.extend(distinct::trials());
    trials.extend(evictions::trials());
    trials.extend(jobs::trials());
    trials.extend(large::trials());
    trials.extend(leases::trials());
    trials.extend(program::trials());
    trials.extend(queries::trials());
    trials.extend(readers::trials());
    trials.extend(search::trials());
    trials.extend(sending::trials());
    trials
}

/// A site and an entry of it.
struct Desk {
    site: Site,
    id: String,
}

impl Desk {
    fn new() -> Result<Self> {
        Self::on(Site::in_memory(&[], "materialize:\n  grace: 0s\n")?)
    }

    fn on(site: Site) -> Result<Self> {
        let id = Call::new("report", 1).fingerprint()?.to_string();
        Ok(Self { site, id })
    }

    /// A call below the entry.
    async fn send(&self, method: &str, path: &str, body: Value) -> Result<Answer> {
        self.with(method, path, &[], body).await
    }

    async fn with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Result<Answer> {
        let path = format!("/api/materialize/{}{path}", self.id);
        self.site
            .send(method, &path, headers, body.to_string())
            .await
    }

    async fn get(&self) -> Result<Answer> {
        self.send("GET", "", json!({})).await
    }

    /// Takes the lease that must be free.
    async fn lease(&self, body: Value) -> Result<String> {
        let answer = self.send("POST", "/lease", body).await?;
        let token = answer.json()?["lease"]["token"].as_str().map(str::to_owned);
        token.with_context(|| format!("no lease: {} {}", answer.status, answer.text()))
    }

    async fn upload(&self, token: &str, file: impl Into<axum::body::Body>) -> Result<Answer> {
        let path = format!("/api/materialize/{}/upload", self.id);
        self.site
            .send("PUT", &path, &[("headwater-lease", token)], file)
            .await
    }

    async fn commit(&self, token: &str) -> Result<Answer> {
        self.send("POST", "/commit", json!({ "token": token }))
            .await
    }

    /// Builds the entry from some rows.
    async fn build(&self, spec: Value, rows: &[Value]) -> Result<Value> {
        let token = self.lease(spec).await?;
        let answer = self.upload(&token, parquet::of_objects(rows)?).await?;
        ensure!(answer.status == 200, "upload: {}", answer.text());
        let answer = self.commit(&token).await?;
        ensure!(answer.status == 200, "commit: {}", answer.text());
        Ok(answer.json()?["entry"].clone())
    }

    /// Rows of SQL over the entry.
    async fn query(&self, sql: &str) -> Result<Value> {
        let answer = self.send("POST", "/query", json!({ "sql": sql })).await?;
        ensure!(answer.status == 200, "`{sql}`: {}", answer.text());
        Ok(answer.json()?["rows"].clone())
    }

    /// Names in the list.
    async fn listed(&self) -> Result<usize> {
        let answer = self.site.send("GET", "/api/materialize", &[], "").await?;
        Ok(answer.json()?["entries"]
            .as_array()
            .context("no list")?
            .len())
    }

    async fn data_sets(&self) -> Result<usize> {
        Ok(self.site.lab.world.entries.list().await?.len())
    }
}

/// The type of a problem document.
fn kind(answer: &Answer) -> Result<String> {
    ensure!(
        answer.header("content-type") == "application/problem+json",
        "{}",
        answer.text()
    );
    let kind = answer.json()?["type"].as_str().map(str::to_owned);
    kind.context("no type")
}

/// Two rows.
fn rows() -> Vec<Value> {
    vec![
        json!({ "channel": "organic", "n": 10 }),
        json!({ "channel": "paid", "n": 7 }),
    ]
}
