//! Entries of queries that are evicted or rebuilt, or lose their data, while somebody asks for them: who asks gets an answer,
//! and who reads keeps what is read.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use libtest_mimic::Trial;
use ports::{
    Error, Kind, Query, State,
    query::{Catalog, Statement},
    state::{Item, Key, Outcome, Span, Write},
    tables::Rows,
};
use serde_json::{Value, json};
use testkit::MemoryState;
use tests::{
    http::Answer,
    site::Site,
    world::{Adapter, Lab},
};
use tokio::sync::Semaphore;

use super::kind;
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "entries::a_query_whose_entry_is_evicted_while_it_is_built_is_answered",
            while_built,
        ),
        test_async(
            "entries::a_query_that_is_evicted_at_every_build_is_told_so",
            always,
        ),
        test_async(
            "entries::a_refresh_of_what_is_evicted_meanwhile_finds_nothing",
            while_refreshed,
        ),
        test_async(
            "entries::a_query_whose_data_vanished_is_computed_again",
            vanished,
        ),
        test_async(
            "entries::a_builder_that_stood_still_after_its_commit_takes_nothing_from_readers",
            async || stood_still(true).await,
        ),
        test_async(
            "entries::a_builder_whose_commit_was_not_answered_takes_nothing_from_readers",
            async || stood_still(false).await,
        ),
    ]
}

/// A query engine that says when it begins, and goes on when it is told to.
#[derive(Debug)]
struct Gate {
    inner: Arc<dyn Query>,
    runs: AtomicUsize,
    started: Semaphore,
    go_on: Semaphore,
}

#[async_trait]
impl Query for Gate {
    async fn run(&self, statement: &Statement, catalog: &Catalog) -> ports::Result<Rows> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.started.add_permits(1);
        self.go_on.acquire().await.expect("is open").forget();
        self.inner.run(statement, catalog).await
    }

    async fn describe(
        &self,
        statement: &Statement,
        catalog: &Catalog,
    ) -> ports::Result<arrow::datatypes::SchemaRef> {
        self.inner.describe(statement, catalog).await
    }
}

fn gated() -> Result<(Site, Arc<Gate>)> {
    let mut lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    let gate = Arc::new(Gate {
        inner: lab.world.query.clone(),
        runs: AtomicUsize::new(0),
        started: Semaphore::new(0),
        go_on: Semaphore::new(0),
    });
    lab.world.query = gate.clone();
    Ok((Site::new(lab, "")?, gate))
}

async fn ask(site: &Site) -> Result<Answer> {
    let body = json!({ "sql": "SELECT 1 AS one" }).to_string();
    site.send("POST", "/api/materialize/query", &[], body).await
}

async fn list(site: &Site) -> Result<Vec<Value>> {
    let answer = site
        .send("GET", "/api/materialize", &[], "")
        .await?
        .json()?;
    answer["entries"].as_array().cloned().context("no list")
}

/// Evicts the one entry during each of so many builds, and lets them go on.
async fn evict(site: &Site, gate: &Gate, builds: usize) -> Result<()> {
    for _ in 0..builds {
        gate.started.acquire().await?.forget();
        let id = list(site).await?.pop().context("no entry")?["id"].clone();
        let path = format!("/api/materialize/{}", id.as_str().context("no id")?);
        let answer = site.send("DELETE", &path, &[], "").await?;
        ensure!(answer.status == 200, "{}", answer.text());
        gate.go_on.add_permits(1);
    }
    Ok(())
}

async fn while_built() -> Result<()> {
    let (site, gate) = gated()?;
    let (answer, evicted) = tokio::join!(ask(&site), async {
        evict(&site, &gate, 1).await?;
        gate.go_on.add_permits(1);
        Ok::<_, anyhow::Error>(())
    });
    evicted?;
    let answer = answer?;
    ensure!(answer.status == 200, "{}", answer.text());
    ensure!(answer.header("headwater-entry") == "built");
    ensure!(answer.json()?["rows"] == json!([{ "one": 1 }]));
    ensure!(gate.runs.load(Ordering::SeqCst) == 2);
    // What it was computed anew as is the entry, and what the first build wrote is gone.
    ensure!(list(&site).await?.len() == 1);
    ensure!(site.lab.world.entries.list().await?.len() == 1);
    ensure!(ask(&site).await?.header("headwater-entry") == "hit");
    Ok(())
}

async fn always() -> Result<()> {
    let (site, gate) = gated()?;
    let (answer, evicted) = tokio::join!(ask(&site), evict(&site, &gate, 3));
    evicted?;
    let answer = answer?;
    ensure!(answer.status == 409, "{}", answer.text());
    ensure!(kind(&answer)? == "urn:headwater:problem:conflict");
    ensure!(list(&site).await?.is_empty());
    ensure!(site.lab.world.entries.list().await?.is_empty());
    Ok(())
}

async fn while_refreshed() -> Result<()> {
    let (site, gate) = gated()?;
    gate.go_on.add_permits(1);
    let built = ask(&site).await?;
    gate.started.acquire().await?.forget();
    let id = built.header("headwater-entry-id");
    let path = format!("/api/materialize/{id}/refresh");
    let refresh = site.send("POST", &path, &[], "");
    let (answer, evicted) = tokio::join!(refresh, evict(&site, &gate, 1));
    evicted?;
    let answer = answer?;
    ensure!(answer.status == 404, "{}", answer.text());
    ensure!(kind(&answer)? == "urn:headwater:problem:entry-missing");
    ensure!(site.lab.world.entries.list().await?.is_empty());
    Ok(())
}

async fn vanished() -> Result<()> {
    let site = Site::in_memory(&[], "materialize:\n  inline_max: 1\n")?;
    let body = json!({ "sql": "SELECT 1 AS one" }).to_string();
    let csv = [("accept", "text/csv")];
    for _ in 0..2 {
        let call = "/api/materialize/query";
        let answer = site.send("POST", call, &csv, body.clone()).await?;
        ensure!(answer.status == 200, "{}", answer.text());
        ensure!(answer.header("headwater-entry") == "built");
        ensure!(answer.text() == "one\n1\n", "{}", answer.text());
        let entries = &site.lab.world.entries;
        for set in entries.list().await? {
            entries.delete(&set).await?;
        }
    }
    Ok(())
}

/// A state store that holds the answer to the first commit of an entry back, and may then give none.
#[derive(Debug)]
struct Late {
    inner: MemoryState,
    answers: bool,
    armed: AtomicBool,
    committed: Semaphore,
    go_on: Semaphore,
}

#[async_trait]
impl State for Late {
    async fn get_many(&self, keys: &[Key]) -> ports::Result<Vec<Option<Item>>> {
        self.inner.get_many(keys).await
    }

    async fn query(&self, span: &Span) -> ports::Result<Vec<Item>> {
        self.inner.query(span).await
    }

    async fn transact(&self, writes: Vec<Write>) -> ports::Result<Outcome> {
        let ends = |write: &Write| matches!(write, Write::Delete { key, .. } if key.sort == domain::entry::LEASE);
        let ends = writes.iter().any(ends);
        let outcome = self.inner.transact(writes).await?;
        if ends && self.armed.swap(false, Ordering::SeqCst) {
            self.committed.add_permits(1);
            self.go_on.acquire().await.expect("is open").forget();
            if !self.answers {
                return Err(Error::new(Kind::Unavailable, "commit", "a test"));
            }
        }
        Ok(outcome)
    }
}

async fn stood_still(answers: bool) -> Result<()> {
    let state = Arc::new(Late {
        inner: MemoryState::new(),
        answers,
        armed: AtomicBool::new(true),
        committed: Semaphore::new(0),
        go_on: Semaphore::new(0),
    });
    let objects = Arc::new(object_store::memory::InMemory::new());
    let live = domain::LiveSettings::default();
    let lab = Lab::on(state.clone(), objects, "memory:///", None, &[], live)?;
    let site = Site::new(lab, "materialize:\n  inline_max: 1\n  grace: 60s\n")?;
    let data_sets = async || anyhow::Ok(site.lab.world.entries.list().await?.len());
    let (answer, rebuilt) = tokio::join!(ask(&site), async {
        state.committed.acquire().await?.forget();
        let id = list(&site).await?.pop().context("no entry")?["id"].clone();
        let id = id.as_str().context("no id")?.to_owned();
        let path = format!("/api/materialize/{id}/refresh");
        let answer = site.send("POST", &path, &[], "").await?;
        ensure!(answer.status == 200, "{}", answer.text());
        ensure!(data_sets().await? == 2);
        state.go_on.add_permits(1);
        anyhow::Ok(())
    });
    rebuilt?;
    let answer = answer?;
    match answers {
        true => ensure!(
            answer.header("headwater-entry") == "hit",
            "{}",
            answer.text()
        ),
        false => ensure!(answer.status == 503, "{}", answer.text()),
    }
    ensure!(data_sets().await? == 2, "a reader's data went early");
    site.lab.clock.advance(domain::Duration::from_secs(61));
    let swept = site.send("POST", "/api/materialize/sweep", &[], "").await?;
    ensure!(swept.status == 200, "{}", swept.text());
    ensure!(data_sets().await? == 1);
    ensure!(ask(&site).await?.header("headwater-entry") == "hit");
    Ok(())
}
