//! Jobs that build indexes: who waits, who takes over, and what an old one may not do.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use domain::{
    Duration, Timestamp,
    entry::{EntryId, INDEX, Index, IndexState},
};
use libtest_mimic::Trial;
use ports::{
    Error, Kind, Search,
    entries::DataSet,
    search::{Hit, IndexFile, Near, Plan, Progress, Words},
    state::Span,
    tables::Rows,
};
use serde_json::{Value, json};
use testkit::{CountedObjects, CountedState, MemoryState};
use tests::{
    site::Site,
    world::{Adapter, Lab},
};
use tokio::sync::Semaphore;

use super::{
    Desk, kind,
    search::{found, indexed, notes, settled},
};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "entries::a_search_before_its_index_is_ready_names_the_job",
            not_ready,
        ),
        test_async(
            "entries::a_dead_builder_of_an_index_is_taken_over",
            taken_over,
        ),
        test_async(
            "entries::an_index_never_answers_for_another_generation",
            generations,
        ),
        test_async(
            "entries::an_entry_that_is_evicted_while_it_is_indexed_leaves_nothing",
            evicted,
        ),
        test_async(
            "entries::an_index_that_could_not_be_built_says_why_and_can_be_asked_for_again",
            failed,
        ),
        test_async("entries::reconcile_knows_the_files_of_indexes", reconciled),
        test_async(
            "entries::a_warm_search_is_two_reads_of_state_and_a_cold_one_few_requests",
            cost,
        ),
    ]
}

/// What the next builds do.
pub(super) const BUILD: u64 = 0;
pub(super) const WAIT: u64 = 1;
const DIE: u64 = 2;
const FAIL: u64 = 3;

/// Indexes whose builders do as they are told.
#[derive(Debug)]
pub(super) struct Told {
    inner: Arc<dyn Search>,
    what: AtomicU64,
    pub(super) started: Semaphore,
    go_on: Semaphore,
    /// Of builds that wrote their file, or could not: from then on they write nothing.
    ended: Semaphore,
}

#[async_trait]
impl Search for Told {
    async fn build(
        &self,
        set: &DataSet,
        name: &str,
        plan: &Plan,
        rows: Rows,
        progress: &Progress,
    ) -> ports::Result<IndexFile> {
        let what = self.what.load(Ordering::SeqCst);
        self.started.add_permits(1);
        match what {
            WAIT => {
                progress.add(2);
                self.go_on.acquire().await.expect("is open").forget();
            }
            // As near to a killed process as one gets within one: nobody cleans up, nobody tells.
            DIE => panic!("the builder is killed, as the test told it"),
            FAIL => {
                return Err(
                    Error::new(Kind::Unavailable, "build index", name).because("the disk is full")
                );
            }
            _ => {}
        }
        let built = self.inner.build(set, name, plan, rows, progress).await;
        self.ended.add_permits(1);
        built
    }

    async fn words(&self, index: &IndexFile, words: &Words) -> ports::Result<Vec<Hit>> {
        self.inner.words(index, words).await
    }

    async fn near(&self, index: &IndexFile, near: &Near) -> ports::Result<Vec<Hit>> {
        self.inner.near(index, near).await
    }
}

impl Told {
    /// In place of other indexes; they build.
    pub(super) fn over(indexes: &mut Arc<dyn Search>) -> Arc<Self> {
        let told = Arc::new(Self {
            inner: indexes.clone(),
            what: AtomicU64::new(BUILD),
            started: Semaphore::new(0),
            go_on: Semaphore::new(0),
            ended: Semaphore::new(0),
        });
        *indexes = told.clone();
        told
    }

    /// What the next builds do.
    pub(super) fn now(&self, what: u64) {
        self.what.store(what, Ordering::SeqCst);
    }

    /// One that waits goes on.
    pub(super) fn go(&self) {
        self.go_on.add_permits(1);
    }
}

fn told() -> Result<(Desk, Arc<Told>)> {
    let mut lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    let told = Told::over(&mut lab.world.searching.indexes);
    let desk = Desk::on(Site::new(lab, "materialize:\n  grace: 0s\n  lease: 60s\n")?)?;
    Ok((desk, told))
}

/// Waits until something is so; what never is fails.
async fn until(what: &str, is: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let looks = async {
        while !is().await? {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        Ok(())
    };
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, looks)
        .await
        .with_context(|| what.to_owned())?
}

/// Until when the one index of the entry is its builder's.
async fn deadline(desk: &Desk) -> Result<Timestamp> {
    let id: EntryId = desk.id.parse()?;
    let span = Span::prefix(domain::entry::entry(&id), INDEX, 1);
    let items = desk.site.lab.world.state.query(&span).await?;
    let index: Index = items.first().context("no index")?.decode()?;
    match index.state {
        IndexState::Building { deadline, .. } => Ok(deadline),
        other => anyhow::bail!("it is {other:?}"),
    }
}

pub(super) fn text() -> Value {
    json!([{ "kind": "text", "columns": ["title"] }])
}

async fn begin(desk: &Desk, told: &Told, what: u64) -> Result<Value> {
    told.now(what);
    let answer = desk
        .send("POST", "/index", json!({ "index": text() }))
        .await?;
    // One that does not wait may have ended already.
    let as_told = answer.status == 202 || answer.status == 200 && what != WAIT;
    ensure!(as_told, "{} {}", answer.status, answer.text());
    told.started.acquire().await?.forget();
    Ok(answer.json()?["indexes"][0].clone())
}

async fn not_ready() -> Result<()> {
    let (desk, told) = told()?;
    desk.build(json!({}), &notes()).await?;
    let begun = begin(&desk, &told, WAIT).await?;
    let search = json!({ "query": "outage" });
    let answer = desk.send("POST", "/search", search.clone()).await?;
    ensure!(answer.status == 409, "{}", answer.text());
    ensure!(kind(&answer)? == "urn:headwater:problem:index-not-ready");
    ensure!(answer.header("retry-after") == "1");
    let job = answer.json()?["job"].clone();
    ensure!(
        job["job"] == begun["job"] && job["status"] == "building" && job["row_count"] == 4,
        "{job}"
    );
    // The deadline moves while the build goes on, and with it is told how far it is.
    let clock = &desk.site.lab.clock;
    for _ in 0..20 {
        let before = deadline(&desk).await?;
        until("the builder never sleeps", async || {
            Ok(clock.next_wake().is_some())
        })
        .await?;
        clock.set(clock.next_wake().context("it woke by itself")?);
        until("the deadline never moves", async || {
            Ok(deadline(&desk).await? > before)
        })
        .await?;
    }
    let job = desk.send("POST", "/search", search.clone()).await?.json()?["job"].clone();
    ensure!(job["job"] == begun["job"] && job["rows_done"] == 2, "{job}");
    told.go();
    settled(&desk).await?;
    ensure!(found(&desk, "/search", search).await? == [1, 4]);
    Ok(())
}

async fn taken_over() -> Result<()> {
    let (desk, told) = told()?;
    desk.build(json!({}), &notes()).await?;
    let dead = begin(&desk, &told, DIE).await?;
    told.now(BUILD);
    let search = json!({ "query": "outage" });
    let answer = desk.send("POST", "/search", search.clone()).await?;
    ensure!(
        answer.json()?["job"]["job"] == dead["job"],
        "{}",
        answer.text()
    );
    desk.site.lab.clock.advance(Duration::from_secs(60));
    let listed = desk.send("GET", "/index", json!({})).await?;
    ensure!(
        listed.json()?["indexes"][0]["status"] == "abandoned",
        "{}",
        listed.text()
    );
    // Whoever asks next takes over.
    let answer = desk.send("POST", "/search", search.clone()).await?;
    ensure!(
        answer.status == 409 && answer.json()?["job"]["job"] != dead["job"],
        "{}",
        answer.text()
    );
    settled(&desk).await?;
    ensure!(found(&desk, "/search", search).await? == [1, 4]);
    Ok(())
}

async fn generations() -> Result<()> {
    let (desk, told) = told()?;
    desk.build(json!({}), &notes()).await?;
    let old_set = desk.site.lab.world.entries.list().await?;
    let old_set = old_set.into_iter().next().context("no data")?;
    let old = begin(&desk, &told, WAIT).await?;
    // While the old generation is being indexed, a new one is committed.
    told.now(BUILD);
    let refreshed = desk.send("POST", "/refresh", json!({})).await?;
    ensure!(refreshed.status == 200, "{}", refreshed.text());
    let rows = [json!({ "n": 7, "title": "no outage" })];
    desk.build(json!({ "mode": "strict" }), &rows).await?;
    let indexes = settled(&desk).await?;
    ensure!(indexes[0]["job"] != old["job"], "{indexes}");
    ensure!(found(&desk, "/search", json!({ "query": "outage" })).await? == [7]);
    // The old builder goes on, and may publish nothing: when it has seen that, it removes what it wrote.
    told.go_on.add_permits(1);
    told.ended.acquire_many(2).await?.forget();
    until("the old builder never ends", async || {
        Ok(desk
            .site
            .lab
            .world
            .entries
            .beside(&old_set)
            .await?
            .is_empty())
    })
    .await?;
    let now = desk.send("GET", "/index", json!({})).await?.json()?["indexes"].clone();
    ensure!(now == indexes, "{now}");
    ensure!(found(&desk, "/search", json!({ "query": "outage" })).await? == [7]);
    Ok(())
}

async fn evicted() -> Result<()> {
    let (desk, told) = told()?;
    desk.build(json!({}), &notes()).await?;
    begin(&desk, &told, WAIT).await?;
    ensure!(desk.send("DELETE", "", json!({})).await?.status == 200);
    told.go();
    let answer = desk
        .send("POST", "/search", json!({ "query": "outage" }))
        .await?;
    ensure!(answer.status == 404, "{}", answer.text());
    // A builder that wrote after the folder went removes what it wrote, once it sees that nobody wants it.
    told.ended.acquire().await?.forget();
    until("what was written stays", async || {
        Ok(desk.data_sets().await? == 0)
    })
    .await?;
    // The entry come again is indexed only if somebody asks.
    desk.build(json!({}), &notes()).await?;
    let answer = desk
        .send("POST", "/search", json!({ "query": "outage" }))
        .await?;
    ensure!(kind(&answer)? == "urn:headwater:problem:not-indexed");
    Ok(())
}

async fn failed() -> Result<()> {
    let (desk, told) = told()?;
    desk.build(json!({}), &notes()).await?;
    begin(&desk, &told, FAIL).await?;
    settled(&desk).await?;
    for _ in 0..2 {
        let answer = desk
            .send("POST", "/search", json!({ "query": "outage" }))
            .await?;
        ensure!(answer.status == 409 && kind(&answer)? == "urn:headwater:problem:index-failed");
        ensure!(
            answer.text().contains("the disk is full"),
            "{}",
            answer.text()
        );
    }
    told.now(BUILD);
    indexed(&desk, text()).await?;
    ensure!(found(&desk, "/search", json!({ "query": "outage" })).await? == [1, 4]);
    Ok(())
}

async fn reconciled() -> Result<()> {
    let (desk, told) = told()?;
    desk.build(json!({}), &notes()).await?;
    indexed(&desk, text()).await?;
    told.started.acquire().await?.forget();
    let world = &desk.site.lab.world;
    let set = world.entries.list().await?.pop().context("no data")?;
    let reconcile = async || {
        let path = "/api/materialize/reconcile";
        let answer = desk.site.send("POST", path, &[], "").await?.json()?;
        Ok::<_, anyhow::Error>((answer["deleted"].clone(), answer["indexes"].clone()))
    };
    ensure!(reconcile().await? == (json!(0), json!(0)));
    // What a killed builder left goes, what is named stays.
    let stray = object_store::path::Path::from(format!(
        "entries/{}/{}/text-0.dead.index",
        set.id, set.generation
    ));
    let objects = &desk.site.lab.objects;
    object_store::ObjectStoreExt::put(&**objects, &stray, "bytes".into()).await?;
    ensure!(reconcile().await? == (json!(0), json!(1)));
    ensure!(found(&desk, "/search", json!({ "query": "outage" })).await? == [1, 4]);
    let files = world.entries.beside(&set).await?;
    ensure!(files.len() == 1, "{files:?}");
    // An index whose file is gone is built again, when reconcile finds out.
    world.entries.remove(&set, &files[0]).await?;
    ensure!(reconcile().await? == (json!(0), json!(1)));
    let search = json!({ "query": "outage" });
    ensure!(desk.send("POST", "/search", search.clone()).await?.status == 409);
    settled(&desk).await?;
    ensure!(found(&desk, "/search", search.clone()).await? == [1, 4]);
    // Or when a search does: this one is not open yet.
    indexed(&desk, json!([{ "kind": "text", "columns": ["notes"] }])).await?;
    let search = json!({ "query": "outage", "columns": ["notes"] });
    for file in world.entries.beside(&set).await? {
        world.entries.remove(&set, &file).await?;
    }
    ensure!(desk.send("POST", "/search", search.clone()).await?.status == 409);
    settled(&desk).await?;
    ensure!(found(&desk, "/search", search).await? == [2]);
    ensure!(desk.send("DELETE", "", json!({})).await?.status == 200);
    ensure!(desk.data_sets().await? == 0);
    Ok(())
}

async fn cost() -> Result<()> {
    let state = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
    let objects = Arc::new(CountedObjects::new(Arc::new(
        object_store::memory::InMemory::new(),
    )));
    let live = domain::LiveSettings::default();
    let lab = Lab::on(
        state.clone(),
        objects.clone(),
        "memory:///",
        None,
        &[],
        live,
    )?;
    let desk = Desk::on(Site::new(lab, "")?)?;
    let rows: Vec<Value> = (0..5_000)
        .map(|n| json!({ "n": n, "title": format!("number {n} of {}", n % 89) }))
        .collect();
    desk.build(json!({}), &rows).await?;
    indexed(&desk, text()).await?;
    let search = json!({ "query": "4711", "select": ["n"] });
    state.take();
    objects.take();
    ensure!(found(&desk, "/search", search.clone()).await? == [4711]);
    let (state_cold, objects_cold) = (state.take(), objects.take());
    println!("cold: {state_cold:?} {objects_cold:?}");
    // The index: its tail, and what the query needs; the rows: footer and page.
    ensure!(objects_cold.requests() == 4, "{objects_cold:?}");
    ensure!(found(&desk, "/search", search).await? == [4711]);
    let (state_warm, objects_warm) = (state.take(), objects.take());
    println!("warm: {state_warm:?} {objects_warm:?}");
    ensure!(state_warm.requests() == 2, "{state_warm:?}");
    // The page of the row that was found.
    ensure!(objects_warm.requests() == 1, "{objects_warm:?}");
    Ok(())
}
