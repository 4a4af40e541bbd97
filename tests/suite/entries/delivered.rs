//! Jobs that build indexes elsewhere, as a deployment sends them: delivered twice, late, to one that dies, or never.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use domain::{Duration, EntrySettings};
use engine::entries::{Carried, Registry};
use libtest_mimic::Trial;
use ports::{
    Clock as _, Error, Jobs, Kind,
    jobs::{IndexJob, RebuildJob, ReplayJob, UpkeepJob},
};
use serde_json::{Value, json};
use tests::{
    site::Site,
    world::{Adapter, Lab},
};
use tokio::task::JoinHandle;

use super::{
    Desk,
    jobs::{BUILD, Told, WAIT, text},
    kind,
    search::{found, notes},
};
use crate::{gateway::hidden::Hiding, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "entries::an_index_is_built_where_its_job_is_delivered",
            elsewhere,
        ),
        test_async("entries::a_job_that_comes_twice_builds_once", twice),
        test_async(
            "entries::a_job_whose_first_delivery_dies_is_carried_out_by_the_next",
            dead,
        ),
        test_async(
            "entries::a_message_whose_builder_may_live_is_hidden_until_it_does_not",
            hidden,
        ),
        test_async(
            "entries::a_job_that_could_not_be_sent_does_not_keep_the_next_waiting",
            unsent,
        ),
        test_async(
            "entries::an_index_that_takes_longer_than_a_function_may_run_has_failed",
            overdue,
        ),
        test_async("entries::a_job_for_what_is_gone_leaves_nothing", moved_on),
        test_async(
            "entries::a_stale_query_is_served_at_once_and_computed_where_its_job_is_delivered",
            rebuilt,
        ),
        test_async(
            "entries::a_rebuild_that_is_lost_is_begun_anew",
            lost_rebuild,
        ),
    ]
}

const LEASE: Duration = Duration::from_secs(60);
/// How long a function may run.
const RUNS: Duration = Duration::from_secs(900);

/// Jobs in the order they were sent.
#[derive(Debug, Default)]
struct Sent {
    waiting: Mutex<VecDeque<IndexJob>>,
    rebuilds: Mutex<VecDeque<RebuildJob>>,
    cut: AtomicBool,
}

#[async_trait]
impl Jobs for Sent {
    async fn index(&self, job: &IndexJob) -> ports::Result<()> {
        self.way()?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(job.clone());
        Ok(())
    }

    async fn rebuild(&self, job: &RebuildJob) -> ports::Result<()> {
        self.way()?;
        let mut rebuilds = self.rebuilds.lock().unwrap_or_else(PoisonError::into_inner);
        rebuilds.push_back(job.clone());
        Ok(())
    }

    async fn replay(&self, job: &ReplayJob) -> ports::Result<()> {
        Err(Error::new(Kind::Invalid, "replay rows of", &job.model))
    }

    async fn upkeep(&self, _: &UpkeepJob) -> ports::Result<()> {
        // No schedule ticks here.
        Err(Error::new(Kind::Invalid, "ask for", "upkeep"))
    }
}

impl Sent {
    fn way(&self) -> ports::Result<()> {
        match self.cut.load(Ordering::SeqCst) {
            true => Err(Error::new(Kind::Unavailable, "send job", "queue")),
            false => Ok(()),
        }
    }

    fn take_rebuild(&self) -> Option<RebuildJob> {
        let mut rebuilds = self.rebuilds.lock().unwrap_or_else(PoisonError::into_inner);
        rebuilds.pop_front()
    }

    fn take(&self) -> Result<IndexJob> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front().context("no job was sent")
    }

    fn is_empty(&self) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_empty()
    }
}

/// A function that is asked, one that builds, and what is between them.
struct Both {
    desk: Desk,
    sent: Arc<Sent>,
    told: Arc<Told>,
    builder: Registry,
}

impl Both {
    /// Delivers a job in a task of its own, which has begun with it and waits.
    async fn begin(&self, job: &IndexJob) -> Result<JoinHandle<ports::Result<Carried>>> {
        self.told.now(WAIT);
        let (builder, job) = (self.builder.clone(), job.clone());
        let task = tokio::spawn(async move { builder.carry_out_job(&job, RUNS).await });
        self.told.started.acquire().await?.forget();
        Ok(task)
    }

    async fn new() -> Result<Self> {
        let mut lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
        let told = Told::over(&mut lab.world.searching.indexes);
        let settings = EntrySettings {
            lease: LEASE,
            grace: Duration::ZERO,
            ..EntrySettings::default()
        };
        let builder = Registry::new(lab.world.clone(), settings);
        let sent = Arc::new(Sent::default());
        lab.world.jobs = Some(sent.clone());
        let desk = Desk::on(Site::driven(
            lab,
            "materialize:\n  grace: 0s\n  lease: 60s\n",
        )?)?;
        desk.build(json!({}), &notes()).await?;
        Ok(Self {
            desk,
            sent,
            told,
            builder,
        })
    }

    /// Has the entry indexed, and gives the job as it was answered.
    async fn ask(&self) -> Result<Value> {
        let body = json!({ "index": text() });
        let answer = self.desk.send("POST", "/index", body).await?;
        ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
        Ok(answer.json()?["indexes"][0].clone())
    }

    async fn status(&self) -> Result<Value> {
        let answer = self.desk.send("GET", "/index", json!({})).await?;
        Ok(answer.json()?["indexes"][0].clone())
    }

    async fn carry_out(&self, job: &IndexJob) -> ports::Result<Carried> {
        self.builder.carry_out_job(job, RUNS).await
    }

    /// What another delivery of a job is told that was taken just now.
    fn busy(&self) -> Carried {
        Carried::Busy(self.desk.site.lab.clock.now() + LEASE)
    }

    async fn finds(&self) -> Result<()> {
        let rows = found(&self.desk, "/search", json!({ "query": "outage" })).await?;
        ensure!(rows == [1, 4], "{rows:?}");
        Ok(())
    }

    async fn files(&self) -> Result<usize> {
        let entries = &self.desk.site.lab.world.entries;
        let mut files = 0;
        for set in entries.list().await? {
            files += entries.beside(&set).await?.len();
        }
        Ok(files)
    }
}

/// Gives tasks of this process the turns they would need.
async fn turns() {
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn elsewhere() -> Result<()> {
    let both = Both::new().await?;
    let asked = both.ask().await?;
    // Nothing of it happens where it was asked for.
    turns().await;
    ensure!(both.told.started.available_permits() == 0 && both.files().await? == 0);
    let search = json!({ "query": "outage" });
    let answer = both.desk.send("POST", "/search", search).await?;
    ensure!(answer.status == 409 && kind(&answer)? == "urn:headwater:problem:index-not-ready");
    ensure!(
        answer.json()?["job"]["job"] == asked["job"],
        "{}",
        answer.text()
    );
    let job = both.sent.take()?;
    ensure!(asked["job"] == json!(job.job) && both.sent.is_empty());
    ensure!(both.carry_out(&job).await? == Carried::Done);
    let ready = both.status().await?;
    ensure!(
        ready["status"] == "ready" && ready["job"] == asked["job"],
        "{ready}"
    );
    both.finds().await?;
    // The next generation is indexed by a job of its own.
    let refreshed = both.desk.send("POST", "/refresh", json!({})).await?;
    ensure!(refreshed.status == 200, "{}", refreshed.text());
    both.desk
        .build(json!({ "mode": "strict" }), &notes())
        .await?;
    ensure!(both.carry_out(&both.sent.take()?).await? == Carried::Done);
    both.finds().await
}

async fn twice() -> Result<()> {
    let both = Both::new().await?;
    both.ask().await?;
    let job = both.sent.take()?;
    let first = both.begin(&job).await?;
    // While one delivery is at it, another has to come again.
    let busy = both.carry_out(&job).await?;
    ensure!(busy == both.busy(), "{busy:?}");
    both.told.go();
    ensure!(first.await?? == Carried::Done);
    ensure!(both.carry_out(&job).await? == Carried::Over);
    ensure!(
        both.told.started.available_permits() == 0,
        "it is built once"
    );
    ensure!(both.files().await? == 1);
    both.finds().await
}

async fn dead() -> Result<()> {
    let both = Both::new().await?;
    both.ask().await?;
    let job = both.sent.take()?;
    let first = both.begin(&job).await?;
    // As the function's environment does when it is taken down: nobody cleans up, nobody tells.
    first.abort();
    ensure!(first.await.is_err());
    both.told.now(BUILD);
    // It may still live: its message is hidden until it does not, and is delivered once more then.
    ensure!(both.carry_out(&job).await? == both.busy());
    both.desk.site.lab.clock.advance(LEASE);
    ensure!(both.carry_out(&job).await? == Carried::Done);
    ensure!(both.status().await?["status"] == "ready");
    ensure!(both.carry_out(&job).await? == Carried::Over);
    ensure!(both.files().await? == 1);
    both.finds().await
}

async fn hidden() -> Result<()> {
    let both = Both::new().await?;
    both.ask().await?;
    let job = both.sent.take()?;
    let first = both.begin(&job).await?;
    first.abort();
    ensure!(first.await.is_err());
    both.told.now(BUILD);
    let lab = &both.desk.site.lab;
    lab.clock.advance(Duration::from_secs(20));
    let hiding = Hiding::over(lab).await?;
    let body = json!({ "build_index": job }).to_string();
    ensure!(
        hiding.deliver(body.clone()).await?,
        "it is taken from one that may live"
    );
    // As long as the lease lasts: of five deliveries this one is the only one for nothing.
    ensure!(hiding.last() == Some(40), "{:?}", hiding.last());
    lab.clock.advance(Duration::from_secs(40));
    ensure!(!hiding.deliver(body).await?, "nobody took it over");
    both.finds().await
}

async fn unsent() -> Result<()> {
    let both = Both::new().await?;
    both.sent.cut.store(true, Ordering::SeqCst);
    let body = json!({ "index": text() });
    let answer = both.desk.send("POST", "/index", body).await?;
    ensure!(answer.status == 503, "{} {}", answer.status, answer.text());
    ensure!(both.status().await?["status"] == "abandoned");
    both.sent.cut.store(false, Ordering::SeqCst);
    // The clock stands still: nobody waits for the deadline of a job that was never sent.
    both.ask().await?;
    ensure!(both.carry_out(&both.sent.take()?).await? == Carried::Done);
    both.finds().await
}

async fn overdue() -> Result<()> {
    let both = Both::new().await?;
    both.ask().await?;
    let job = both.sent.take()?;
    let slow = both.begin(&job).await?;
    while !slow.is_finished() {
        both.desk.site.lab.clock.advance(Duration::from_secs(15));
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    ensure!(slow.await?? == Carried::Done);
    let failed = both.status().await?;
    let reason = failed["reason"].as_str().unwrap_or_default();
    ensure!(
        failed["status"] == "failed" && reason.contains("longer than a function may run"),
        "{failed}"
    );
    // Delivered again it is not begun anew for ever.
    ensure!(both.carry_out(&job).await? == Carried::Over);
    let search = json!({ "query": "outage" });
    let answer = both.desk.send("POST", "/search", search).await?;
    ensure!(kind(&answer)? == "urn:headwater:problem:index-failed");
    Ok(())
}

async fn moved_on() -> Result<()> {
    let both = Both::new().await?;
    both.ask().await?;
    let of_old = both.sent.take()?;
    let refreshed = both.desk.send("POST", "/refresh", json!({})).await?;
    ensure!(refreshed.status == 200, "{}", refreshed.text());
    both.desk
        .build(json!({ "mode": "strict" }), &notes())
        .await?;
    ensure!(both.carry_out(&of_old).await? == Carried::Over);
    let of_new = both.sent.take()?;
    ensure!(both.desk.send("DELETE", "", json!({})).await?.status == 200);
    ensure!(both.carry_out(&of_new).await? == Carried::Over);
    ensure!(both.told.started.available_permits() == 0);
    // The generation before was superseded, and goes with the next sweep.
    let sweep = "/api/materialize/sweep";
    let swept = both.desk.site.send("POST", sweep, &[], "").await?;
    ensure!(swept.status == 200, "{}", swept.text());
    ensure!(both.desk.data_sets().await? == 0);
    Ok(())
}

/// A query that is good for a minute, as it is served.
async fn query(both: &Both) -> Result<(String, String)> {
    let body = json!({ "sql": "SELECT 7 AS n", "ttl": 60 });
    let site = &both.desk.site;
    let answer = site
        .send("POST", "/api/materialize/query", &[], body.to_string())
        .await?;
    ensure!(answer.status == 200, "{}", answer.text());
    let found = answer.json()?;
    ensure!(found["rows"] == json!([{ "n": 7 }]), "{found}");
    let generation = found["entry"]["generation"].as_str().unwrap_or_default();
    Ok((
        answer.header("headwater-entry").to_owned(),
        generation.to_owned(),
    ))
}

async fn rebuilt() -> Result<()> {
    let both = Both::new().await?;
    let (how, old) = query(&both).await?;
    ensure!(how == "built", "{how}");
    let clock = &both.desk.site.lab.clock;
    clock.advance(Duration::from_secs(61));
    let callers = (0..1_000).map(|_| query(&both));
    for served in futures::future::try_join_all(callers).await? {
        ensure!(served == ("stale".to_owned(), old.clone()), "{served:?}");
    }
    let job = both.sent.take_rebuild().context("no rebuild was sent")?;
    ensure!(both.sent.take_rebuild().is_none(), "one rebuild for all");
    ensure!(both.builder.carry_out_rebuild(&job, RUNS).await? == Carried::Done);
    let (how, new) = query(&both).await?;
    ensure!(how == "hit" && new != old, "{how} {new}");
    // Delivered again, it computes nothing.
    ensure!(both.builder.carry_out_rebuild(&job, RUNS).await? == Carried::Over);
    ensure!(query(&both).await? == (how, new));
    Ok(())
}

async fn lost_rebuild() -> Result<()> {
    let both = Both::new().await?;
    let (_, old) = query(&both).await?;
    let clock = &both.desk.site.lab.clock;
    clock.advance(Duration::from_secs(61));
    // Not sent: the lease is given back, and after a pause the next caller begins another.
    both.sent.cut.store(true, Ordering::SeqCst);
    ensure!(query(&both).await?.0 == "stale");
    both.sent.cut.store(false, Ordering::SeqCst);
    ensure!(query(&both).await?.0 == "stale" && both.sent.take_rebuild().is_none());
    clock.advance(Duration::from_secs(6));
    ensure!(query(&both).await?.0 == "stale");
    let late = both.sent.take_rebuild().context("no rebuild was sent")?;
    // Sent and never delivered: after its deadline there is another, and the late one comes to nothing.
    clock.advance(Duration::from_secs(600));
    ensure!(query(&both).await?.0 == "stale");
    let next = both.sent.take_rebuild().context("no rebuild was sent")?;
    ensure!(both.builder.carry_out_rebuild(&late, RUNS).await? == Carried::Over);
    ensure!(query(&both).await? == ("stale".to_owned(), old.clone()));
    ensure!(both.builder.carry_out_rebuild(&next, RUNS).await? == Carried::Done);
    let (how, new) = query(&both).await?;
    ensure!(how == "hit" && new != old, "{how} {new}");
    Ok(())
}
