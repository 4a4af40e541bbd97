//! Upkeep of a deployment: asked for by the function that a schedule wakes, carried out by one that is linked with tables. Jobs
//! are lost, doubled and late, and rounds fail.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow, ensure};
use async_trait::async_trait;
use domain::{Duration, EntrySettings, LiveSettings, TableName, Timestamp, items};
use engine::{
    entries::Registry,
    upkeep::{self, Upkept},
};
use lambda::Message;
use libtest_mimic::Trial;
use ports::{
    Clock as _, Error, Jobs, Kind, Landing, State as _,
    jobs::{IndexJob, RebuildJob, ReplayJob, UpkeepJob},
    landing::{Advanced, Append, Appended},
    state::{Expect, Key, Write},
    upkeep::{Fold, Folded},
};
use serde_json::json;
use testkit::{CountedState, Faults, FaultyState, MemoryRefreshes, MemoryState};
use tests::{
    rows::chain,
    site::Site,
    world::{Lab, table},
};

use crate::{gateway, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("upkeep::a_tick_asks_for_what_is_due_and_no_more", due),
        test_async(
            "upkeep::a_round_that_did_something_is_followed_by_one_at_the_next_tick",
            busy,
        ),
        test_async("upkeep::entries_are_swept_by_the_same_job", swept),
        test_async("upkeep::a_job_that_comes_twice_or_late_does_nothing", twice),
        test_async("upkeep::a_job_that_is_lost_is_asked_for_again", lost),
        test_async(
            "upkeep::a_round_that_fails_is_tried_at_the_next_tick",
            failing,
        ),
        test_async("upkeep::a_round_that_is_cut_short_is_gone_on_with", cut),
        test_async(
            "upkeep::a_step_that_fails_does_not_keep_tables_from_upkeep",
            broken_step,
        ),
        test_async(
            "upkeep::a_deployment_that_wants_none_is_asked_for_none",
            off,
        ),
        test_async(
            "upkeep::a_clock_that_is_far_ahead_ends_no_grace_and_keeps_nothing_away",
            ahead,
        ),
        test_async("upkeep::no_message_of_it_comes_again", answered),
    ]
}

const PATIENCE: Duration = Duration::from_secs(900);
/// How long a function may run.
const RUNS: Duration = Duration::from_secs(900);
const MINUTE: Duration = Duration::from_secs(60);
/// Between two jobs where nothing happens.
const QUARTER: Duration = Duration::from_secs(900);

/// Jobs of upkeep, in the order they were sent.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    waiting: Mutex<VecDeque<UpkeepJob>>,
    sends: AtomicU64,
    cut: AtomicBool,
}

impl Asked {
    /// The first job; none when none waits.
    pub(crate) fn take(&self) -> Option<UpkeepJob> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    }

    /// Sends since the last call.
    pub(crate) fn sends(&self) -> u64 {
        self.sends.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Jobs for Asked {
    async fn index(&self, job: &IndexJob) -> ports::Result<()> {
        Err(Error::new(Kind::Invalid, "index", &job.entry))
    }

    async fn rebuild(&self, job: &RebuildJob) -> ports::Result<()> {
        Err(Error::new(Kind::Invalid, "rebuild", &job.entry))
    }

    async fn replay(&self, job: &ReplayJob) -> ports::Result<()> {
        Err(Error::new(Kind::Invalid, "replay rows of", &job.model))
    }

    async fn upkeep(&self, job: &UpkeepJob) -> ports::Result<()> {
        self.sends.fetch_add(1, Ordering::SeqCst);
        if self.cut.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Unavailable, "send job", "queue"));
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(job.clone());
        Ok(())
    }
}

/// Both functions, over one world in memory.
struct Both {
    site: Site,
    state: Arc<CountedState>,
    asked: Arc<Asked>,
}

impl Both {
    fn new() -> Result<Self> {
        Self::under(LiveSettings::default())
    }

    fn under(live: LiveSettings) -> Result<Self> {
        let state = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
        let objects: ports::Objects = Arc::new(object_store::memory::InMemory::new());
        let mut lab = Lab::on(state.clone(), objects, "memory:///", None, &[], live)?;
        let asked = Arc::new(Asked::default());
        lab.world.jobs = Some(asked.clone());
        Ok(Self {
            site: Site::driven(lab, "materialize:\n  inline_max: 1B\n")?,
            state,
            asked,
        })
    }

    /// A tick, after a while; whether it asked for upkeep.
    async fn tick(&self, pause: Duration) -> Result<bool> {
        self.site.lab.clock.advance(pause);
        let refreshes = MemoryRefreshes::new();
        let (step, asked) = upkeep::tick(&self.site.lab.world, &refreshes, PATIENCE).await;
        step.map_err(|error| chain(&error))?;
        asked.map_err(|error| chain(&error))
    }

    fn job(&self) -> Result<UpkeepJob> {
        self.asked.take().context("nothing was asked for")
    }

    fn registry(&self) -> Registry {
        let settings = EntrySettings {
            stale_max: Duration::ZERO,
            grace: Duration::ZERO,
            ..EntrySettings::default()
        };
        Registry::new(self.site.lab.world.clone(), settings)
    }

    async fn carry_out(&self, job: &UpkeepJob) -> Result<Option<Upkept>> {
        let carried = upkeep::carry_out(&self.registry(), job, RUNS).await;
        carried.map_err(|error| chain(&error))
    }

    /// Carries out the job that was asked for, of which nothing is left and nothing went wrong.
    async fn keep_up(&self) -> Result<Upkept> {
        let job = self.job()?;
        let done = self.carry_out(&job).await?.context("it was over")?;
        let round = done.round.iter().flat_map(|round| &round.errors);
        let wrong: Vec<_> = round.chain(&done.left).collect();
        ensure!(wrong.is_empty(), "{wrong:?}");
        ensure!(self.asked.take().is_none(), "one job at a time");
        Ok(done)
    }

    async fn write(&self, key: Key, value: &'static [u8]) -> Result<()> {
        let expect = Expect::Any;
        let value = value.into();
        let put = Write::Put { key, value, expect };
        self.transact(put).await
    }

    async fn transact(&self, write: Write) -> Result<()> {
        let outcome = self.state.transact(vec![write]).await?;
        ensure!(outcome.is_committed(), "{outcome:?}");
        Ok(())
    }

    async fn event(&self, id: u64) -> Result<()> {
        self.site
            .event("x", json!({ "id": id }).to_string())
            .await
            .map(drop)
    }
}

async fn due() -> Result<()> {
    let both = Both::new()?;
    ensure!(both.tick(MINUTE).await?, "there never was any");
    let done = both.keep_up().await?;
    ensure!(done.round.is_some() && done.swept.is_some(), "{done:?}");
    both.state.take();
    for minute in 1..15 {
        ensure!(!both.tick(MINUTE).await?, "asked after {minute} minutes");
        // The step's own read brings the mark.
        let counts = both.state.take();
        ensure!(counts.requests() == 1 && counts.keys == 2, "{counts:?}");
    }
    ensure!(both.tick(MINUTE).await?, "a quarter of an hour is over");
    let counts = both.state.take();
    ensure!(counts.requests() == 1, "{counts:?}");
    let done = both.keep_up().await?;
    ensure!(
        done.round.is_some() && done.swept.is_some(),
        "one job is both"
    );
    Ok(())
}

async fn busy() -> Result<()> {
    let both = Both::new()?;
    for id in 0..20 {
        both.event(id).await?;
    }
    ensure!(both.tick(MINUTE).await?);
    let done = both.keep_up().await?;
    let round = done.round.context("no round")?;
    ensure!(round.folded_commits > 1, "{round:?}");
    ensure!(both.tick(MINUTE).await?, "there is likely to be more");
    let done = both.keep_up().await?;
    ensure!(
        done.round.is_some() && done.swept.is_none(),
        "entries were swept a minute ago: {done:?}"
    );
    // Until one finds nothing.
    for _ in 0..3 {
        if !both.tick(MINUTE).await? {
            return Ok(());
        }
        both.keep_up().await?;
    }
    anyhow::bail!("it does not come to rest")
}

async fn swept() -> Result<()> {
    let both = Both::new()?;
    let body = json!({ "sql": "SELECT 7 AS n", "ttl": 60 }).to_string();
    let path = "/api/materialize/query";
    let answer = both.site.send("POST", path, &[], body).await?;
    ensure!(answer.status == 200, "{}", answer.text());
    let entries = &both.site.lab.world.entries;
    ensure!(entries.list().await?.len() == 1);
    ensure!(both.tick(MINUTE * 2).await?);
    let swept = both.keep_up().await?.swept.context("no sweep")?;
    ensure!(swept.evicted == 1 && swept.errors.is_empty(), "{swept:?}");
    ensure!(entries.list().await?.is_empty());
    Ok(())
}

async fn twice() -> Result<()> {
    let both = Both::new()?;
    // Nobody is there to carry it out: each tick asks for the same, which the queue takes once.
    ensure!(both.tick(MINUTE).await? && both.tick(MINUTE).await?);
    let (first, second) = (both.job()?, both.job()?);
    ensure!(first.mark == second.mark && first.at < second.at);
    ensure!(both.carry_out(&first).await?.is_some());
    both.state.take();
    for again in [&first, &second] {
        ensure!(both.carry_out(again).await?.is_none());
    }
    let counts = both.state.take();
    ensure!(counts.requests() == 2 && counts.writes == 0, "{counts:?}");
    // One that is late by a round does not come before its time either.
    ensure!(both.tick(QUARTER).await?);
    let late = both.job()?;
    ensure!(both.tick(MINUTE).await?);
    both.keep_up().await?;
    ensure!(both.carry_out(&late).await?.is_none());
    ensure!(!both.tick(MINUTE).await?);
    Ok(())
}

async fn lost() -> Result<()> {
    let both = Both::new()?;
    both.asked.cut.store(true, Ordering::SeqCst);
    ensure!(both.tick(MINUTE).await.is_err(), "the queue is cut off");
    both.asked.cut.store(false, Ordering::SeqCst);
    ensure!(both.tick(MINUTE).await?);
    let lost = both.job()?;
    ensure!(both.tick(MINUTE).await?);
    both.keep_up().await?;
    // A clock that is behind that of whoever asked.
    ensure!(both.tick(QUARTER).await?);
    let mut ahead = both.job()?;
    ahead.at = ahead.at + MINUTE;
    let done = both.carry_out(&ahead).await?.context("it was over")?;
    ensure!(done.round.is_some() && done.swept.is_some(), "{done:?}");
    ensure!(both.carry_out(&lost).await?.is_none());
    Ok(())
}

async fn failing() -> Result<()> {
    let both = Both::new()?;
    both.event(1).await?;
    let key = Key::new(items::maintenance(&table("landing.x")?), "fold");
    both.write(key.clone(), b"no mark").await?;
    let mut marks = Vec::new();
    for _ in 0..3 {
        ensure!(both.tick(MINUTE).await?, "it has not come to its end");
        let job = both.job()?;
        marks.push(job.mark);
        let done = both.carry_out(&job).await?.context("it was over")?;
        let round = done.round.context("no round")?;
        ensure!(round.errors.len() == 1, "{:?}", round.errors);
    }
    ensure!(
        marks[0] != marks[1] && marks[1] != marks[2],
        "a queue takes each of them: {marks:?}"
    );
    let expect = Expect::Any;
    both.transact(Write::Delete { key, expect }).await?;
    ensure!(both.tick(MINUTE).await?);
    both.keep_up().await?;
    Ok(())
}

/// Landing tables that take rows, and whose folding never ends.
#[derive(Debug)]
struct Stuck(Arc<dyn Landing>);

#[async_trait]
impl Landing for Stuck {
    async fn append(&self, append: Append) -> ports::Result<Appended> {
        self.0.append(append).await
    }

    async fn declare(&self, table: &TableName, columns: &[items::Column]) -> ports::Result<()> {
        self.0.declare(table, columns).await
    }

    async fn advance(&self, table: &TableName, now: Timestamp) -> ports::Result<Option<Advanced>> {
        self.0.advance(table, now).await
    }

    async fn fold(&self, _: &TableName, _: &Fold) -> ports::Result<Folded> {
        std::future::pending().await
    }
}

async fn cut() -> Result<()> {
    let both = Both::new()?;
    both.event(1).await?;
    ensure!(both.tick(MINUTE).await?);
    let job = both.job()?;
    let lab = &both.site.lab;
    let mut world = lab.world.clone();
    world.landing = Arc::new(Stuck(world.landing.clone()));
    let stuck = Registry::new(world, EntrySettings::default());
    let slow = tokio::spawn(async move { upkeep::carry_out(&stuck, &job, RUNS).await });
    while !slow.is_finished() {
        lab.clock.advance(MINUTE);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let done = slow.await?.map_err(|error| chain(&error))?;
    let done = done.context("it was over")?;
    ensure!(done.round.is_none(), "{done:?}");
    ensure!(
        done.left.iter().any(|why| why.contains("cut short")),
        "{done:?}"
    );
    ensure!(both.tick(MINUTE).await?, "there is more to do");
    let done = both.keep_up().await?;
    ensure!(done.round.is_some(), "{done:?}");
    Ok(())
}

async fn broken_step() -> Result<()> {
    let both = Both::new()?;
    let key = Key::new(items::CYCLE, items::CURRENT);
    both.write(key, b"no cycle").await?;
    let world = &both.site.lab.world;
    let (step, asked) = upkeep::tick(world, &MemoryRefreshes::new(), PATIENCE).await;
    ensure!(step.is_err_and(|error| error.kind == Kind::Corrupt));
    ensure!(asked.map_err(|error| chain(&error))?);
    both.keep_up().await.map(drop)
}

async fn off() -> Result<()> {
    let mut live = LiveSettings::default();
    live.maintenance.enabled = false;
    let both = Both::under(live)?;
    for _ in 0..3 {
        ensure!(!both.tick(QUARTER).await?);
    }
    let counts = both.state.take();
    ensure!(counts.requests() == 3 && counts.keys == 3, "{counts:?}");
    ensure!(both.asked.sends() == 0);
    Ok(())
}

/// An invocation that may take a minute.
fn a_minute() -> Result<lambda::Context> {
    let mut context = lambda::Context::default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    context.deadline = u64::try_from(now.as_millis())? + 60_000;
    Ok(context)
}

async fn ahead() -> Result<()> {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    let both = Both::new()?;
    let now = both.site.lab.clock.now();
    let job = UpkeepJob {
        mark: None,
        at: now + CENTURY,
    };
    both.carry_out(&job).await?.context("it was over")?;
    let key = Key::new(items::MAINTENANCE, "round");
    let read = async || -> Result<serde_json::Value> {
        let item = both.state.get(&key).await?.context("no mark")?;
        Ok(serde_json::from_slice(&item.value)?)
    };
    let mark = read().await?;
    let latest = json!((now + MINUTE).0);
    ensure!(mark["at"] == latest && mark["swept"] == latest, "{mark}");
    ensure!(both.tick(QUARTER + MINUTE).await?, "nothing is due");
    both.keep_up().await?.swept.context("no sweep")?;
    // A mark that such a clock has left is as good as none.
    let far = br#"{"at":4102444800000000,"busy":false,"swept":4102444800000000}"#;
    both.write(key.clone(), far).await?;
    ensure!(both.tick(MINUTE).await?, "it is followed");
    both.keep_up().await?.swept.context("no sweep")?;
    let healed = json!(both.site.lab.clock.now().0);
    let mark = read().await?;
    ensure!(mark["at"] == healed && mark["swept"] == healed, "{mark}");
    Ok(())
}

async fn answered() -> Result<()> {
    let faults = Arc::new(Faults::none());
    let state = FaultyState::new(Arc::new(MemoryState::new()), faults.clone());
    let objects: ports::Objects = Arc::new(object_store::memory::InMemory::new());
    let live = LiveSettings::default();
    let lab = Lab::on(Arc::new(state), objects, "memory:///", None, &[], live)?;
    let deployed = gateway::deployed(&lab).await?;
    let job = UpkeepJob {
        mark: None,
        at: lab.clock.now(),
    };
    let message = Message {
        id: "m1".to_owned(),
        group: Some("upkeep".to_owned()),
        body: json!({ "upkeep": job }).to_string(),
        ..Message::default()
    };
    let carry_out = async || {
        let batch = std::slice::from_ref(&message);
        let answer = lambda::carry_out(&deployed, batch, &a_minute()?).await;
        let answer = answer.map_err(|error| anyhow!("{error}"))?;
        ensure!(answer == json!({ "batchItemFailures": [] }), "{answer}");
        anyhow::Ok(())
    };
    let key = Key::new(items::MAINTENANCE, "round");
    for operation in [testkit::Operation::Get, testkit::Operation::Transact] {
        faults.inject(operation, 0, testkit::Fault::Before);
        carry_out().await?;
        ensure!(lab.world.state.get(&key).await?.is_none(), "{operation:?}");
    }
    carry_out().await?;
    let mark = lab.world.state.get(&key).await?.context("no mark")?;
    carry_out().await?;
    let after = lab.world.state.get(&key).await?.context("no mark")?;
    ensure!(after.version == mark.version, "the message came again");
    Ok(())
}
