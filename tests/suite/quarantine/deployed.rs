//! Replays in a deployment: asked for where tables can only be read, carried out where they can be written.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use domain::{
    Duration,
    items::{ReplayCounts, ReplayOutcome},
};
use engine::quarantine::carry_out;
use ports::{
    Error, Jobs, Kind,
    jobs::{IndexJob, RebuildJob, ReplayJob, UpkeepJob},
};

use super::*;
use crate::{gateway::hidden::Hiding, plain::test_emulated};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "quarantine::a_replay_of_a_deployment_is_carried_out_by_refresh",
            elsewhere,
        ),
        test_emulated(
            "quarantine::a_replay_on_aws_is_carried_out_by_refresh",
            on_aws,
        ),
        test_async(
            "quarantine::a_replay_that_comes_twice_or_late_does_nothing",
            twice,
        ),
        test_async(
            "quarantine::replays_that_are_asked_for_together_are_all_carried_out",
            together,
        ),
        test_async(
            "quarantine::a_replay_that_fails_says_why_in_the_listing",
            failed,
        ),
    ]
}

/// How long a function may run.
const RUNS: Duration = Duration::from_secs(900);
const REPLAY: &str = "/api/live/models/silver.orders/quarantine/replay";
const LIST: &str = "/api/live/models/silver.orders/quarantine";

#[derive(Debug, Default)]
struct Sent(Mutex<Vec<ReplayJob>>);

#[async_trait]
impl Jobs for Sent {
    async fn index(&self, job: &IndexJob) -> ports::Result<()> {
        Err(Error::new(Kind::Invalid, "index", &job.entry))
    }

    async fn rebuild(&self, job: &RebuildJob) -> ports::Result<()> {
        Err(Error::new(Kind::Invalid, "rebuild", &job.entry))
    }

    async fn replay(&self, job: &ReplayJob) -> ports::Result<()> {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.push(job.clone());
        Ok(())
    }

    async fn upkeep(&self, _: &UpkeepJob) -> ports::Result<()> {
        Err(Error::new(Kind::Invalid, "ask for", "upkeep"))
    }
}

/// The function that is asked, over a world whose rows 2 and 3 are in quarantine; the model has been put right, or not.
struct Both {
    site: Site,
    sent: Arc<Sent>,
}

impl Both {
    async fn new(sql: &str) -> Result<Self> {
        let live = domain::LiveSettings::default();
        Self::over(Lab::new(Adapter::Memory, &[orders(STRICT)], live)?, sql).await
    }

    async fn over(mut lab: Lab, sql: &str) -> Result<Self> {
        let sent = Arc::new(Sent::default());
        lab.world.jobs = Some(sent.clone());
        let site = Site::driven(lab, "")?;
        send(&site, &[(1, "10"), (2, "two"), (3, "three")]).await?;
        site.lab.cycle().await?;
        let mut lab = site.lab;
        lab.set_models(&[orders(sql)])?;
        let site = Site::driven(lab, "")?;
        Ok(Self { site, sent })
    }

    async fn ask(&self, body: &str) -> Result<Value> {
        let answer = self.site.send("POST", REPLAY, &[], body.to_owned()).await?;
        ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
        let told = answer.json()?;
        ensure!(
            told["model"] == "silver.orders" && told["replay"]["status"] == "waiting",
            "{told}"
        );
        Ok(told["replay"].clone())
    }

    fn jobs(&self) -> Vec<ReplayJob> {
        let mut sent = self.sent.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *sent)
    }

    async fn carry_out(&self, job: &ReplayJob) -> Result<Option<ReplayOutcome>> {
        let done = carry_out(&self.site.lab.world, job, RUNS).await;
        done.map_err(|error| rows::chain(&error))
    }

    /// The model's quarantine, as it is listed.
    async fn held(&self) -> Result<Value> {
        let answer = self.site.send("GET", LIST, &[], "").await?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(answer.json()?["models"][0].clone())
    }

    async fn ids(&self, want: Value) -> Result<()> {
        expect(
            &self.site.lab,
            "SELECT id FROM silver.orders ORDER BY id",
            want,
        )
        .await
    }
}

fn done(replayed: u64, left: u64) -> Option<ReplayOutcome> {
    Some(ReplayOutcome::Done(ReplayCounts {
        replayed,
        added: replayed,
        rebuilt: false,
        left,
    }))
}

async fn elsewhere() -> Result<()> {
    replayed(&Both::new(LENIENT).await?).await
}

async fn on_aws() -> Result<()> {
    let live = domain::LiveSettings::default();
    let lab = Lab::open(Adapter::Aws, &[orders(STRICT)], live).await?;
    replayed(&Both::over(lab, LENIENT).await?).await
}

async fn replayed(both: &Both) -> Result<()> {
    let asked = both.ask("{\"ids\": [2]}").await?;
    let jobs = both.jobs();
    ensure!(jobs.len() == 1 && asked["job"] == json!(jobs[0].job) && asked["ids"] == json!([2]));
    // Nothing of it happens where it was asked for.
    both.ids(json!([[1]])).await?;
    let held = both.held().await?;
    ensure!(
        held["replay"] == asked && held["rows"].as_array().map(Vec::len) == Some(2),
        "{held}"
    );
    ensure!(both.carry_out(&jobs[0]).await? == done(1, 1));
    both.ids(json!([[1], [2]])).await?;
    let held = both.held().await?;
    let replay = &held["replay"];
    ensure!(
        replay["status"] == "done" && replay["replayed"] == 1 && replay["left"] == 1,
        "{held}"
    );
    ensure!(held["rows"][0]["id"] == 3, "{held}");
    // A row that is not there is told at once, and nothing is sent.
    let answer = both
        .site
        .send("POST", REPLAY, &[], "{\"ids\": [2]}")
        .await?;
    ensure!(answer.status == 404, "{} {}", answer.status, answer.text());
    ensure!(both.jobs().is_empty());
    // As the function is handed it.
    both.ask("").await?;
    let body = json!({ "replay": both.jobs()[0] }).to_string();
    let hiding = Hiding::over(&both.site.lab).await?;
    ensure!(!hiding.deliver(body).await?, "it is to come again");
    let held = both.held().await?;
    ensure!(
        held["replay"]["status"] == "done" && held["rows"] == json!([]),
        "{held}"
    );
    both.ids(json!([[1], [2], [3]])).await
}

async fn twice() -> Result<()> {
    let both = Both::new(LENIENT).await?;
    both.ask("{\"ids\": [2]}").await?;
    let job = both.jobs().pop().context("no job")?;
    ensure!(both.carry_out(&job).await? == done(1, 1));
    let ended = both.held().await?;
    ensure!(both.carry_out(&job).await?.is_none());
    ensure!(both.held().await? == ended);
    // One whose first delivery died once its rows were in ends well all the same.
    both.ask("{\"ids\": [3]}").await?;
    let silver = table("silver.orders")?;
    let world = &both.site.lab.world;
    let died = engine::quarantine::replay(world, &silver, Some(&[3])).await;
    died.map_err(|error| rows::chain(&error))?;
    let next = both.jobs().pop().context("no job")?;
    ensure!(both.carry_out(&next).await? == done(0, 0));
    ensure!(both.carry_out(&job).await?.is_none(), "an old one");
    both.ids(json!([[1], [2], [3]])).await
}

async fn together() -> Result<()> {
    let both = Both::new(LENIENT).await?;
    both.ask("{\"ids\": [2]}").await?;
    let asked = both.ask("{\"ids\": [3]}").await?;
    ensure!(asked["ids"] == json!([2, 3]), "{asked}");
    let jobs = both.jobs();
    ensure!(
        both.carry_out(&jobs[0]).await?.is_none(),
        "another took its place"
    );
    ensure!(both.carry_out(&jobs[1]).await? == done(2, 0));
    both.ids(json!([[1], [2], [3]])).await
}

async fn failed() -> Result<()> {
    // Nothing has been put right: the rows stay, and that is no failure. What was dropped since stays out.
    let both = Both::new(STRICT).await?;
    both.ask("").await?;
    ensure!(both.carry_out(&both.jobs()[0]).await? == done(0, 2));
    both.ask("{\"ids\": [2, 3]}").await?;
    let silver = table("silver.orders")?;
    let world = &both.site.lab.world;
    let dropped = engine::quarantine::drop_rows(world, &silver, Some(&[3])).await;
    dropped.map_err(|error| rows::chain(&error))?;
    ensure!(both.carry_out(&both.jobs()[0]).await? == done(0, 1));
    // A model that fails for another reason says so.
    let both = Both::new("SELECT 1 AS id, amount, _seq FROM landing.orders").await?;
    both.ask("").await?;
    let outcome = both.carry_out(&both.jobs()[0]).await?;
    ensure!(
        matches!(outcome, Some(ReplayOutcome::Failed { .. })),
        "{outcome:?}"
    );
    let held = both.held().await?;
    let reason = held["replay"]["reason"].as_str().unwrap_or_default();
    ensure!(
        held["replay"]["status"] == "failed" && reason.contains("amount"),
        "{held}"
    );
    Ok(())
}
