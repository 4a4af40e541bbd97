//! Search in a deployment: entries on S3 and DynamoDB, asked through the routes of `control`, their indexes built by
//! `refresh` from its queue. Each is a process of its own over the emulator's services; nothing is shared but these.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration as Span, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use aws::queue::{SqsQueue, refreshes::SqsRefreshes};
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use domain::LiveSettings;
use embedded::{SystemChance, SystemClock};
use futures::TryStreamExt;
use lambda::{Context, Deployed, Event, Message};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use settings::Settings;
use testkit::{CountedObjects, CountedState, MemoryQueue, RecordedAlerts};
use tests::{
    aws::Place,
    parquet,
    site::Site,
    world::{Ground, Lab},
};

use super::{
    Desk,
    jobs::{Told, WAIT},
    kind,
    search::{found, notes},
};
use crate::plain::test_emulated;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_emulated(
            "emulated::indexes_asked_of_control_are_built_by_refresh",
            built,
        ),
        test_emulated(
            "emulated::a_search_waits_for_the_function_that_builds",
            waited,
        ),
        test_emulated(
            "emulated::a_builder_whose_environment_is_taken_down_is_followed_by_the_next_delivery",
            taken_down,
        ),
        test_emulated(
            "emulated::a_cold_search_is_few_requests_and_a_warm_one_is_fewer",
            cost,
        ),
        test_emulated("emulated::eviction_removes_the_objects_of_indexes", evicted),
        test_emulated(
            "emulated::a_stale_query_is_served_by_control_and_computed_by_refresh",
            rebuilt,
        ),
        test_emulated(
            "emulated::a_tick_of_sweep_has_refresh_remove_what_is_expired",
            kept_up,
        ),
    ]
}

/// A lease that no test waits for.
const LONG: &str = "60s";
/// Requests of a search whose index is not open: its tail and what the words need of it, footer and page of the rows.
const COLD: u64 = 4;
/// The same of vectors that are compared one by one: both halves of their numbers are read.
const COLD_NEAR: u64 = 6;

fn indexes() -> Value {
    json!([
        { "kind": "text", "columns": ["title", "notes"] },
        { "kind": "vector", "column": "v", "metric": "cosine" },
    ])
}

/// An invocation that may take a minute.
fn invocation() -> Result<Context> {
    let mut context = Context::default();
    let deadline = SystemTime::now().duration_since(UNIX_EPOCH)? + Span::from_secs(60);
    context.deadline = u64::try_from(deadline.as_millis())?;
    Ok(context)
}

/// The services of a deployment.
struct Services {
    place: Place,
    queue: String,
    id: String,
    /// What both functions are told.
    settings: String,
}

/// Function `control`, just started, and what it asks.
struct Control {
    desk: Desk,
    state: Arc<CountedState>,
    objects: Arc<CountedObjects>,
}

impl Services {
    async fn open(lease: &str) -> Result<Self> {
        let place = Place::open().await?;
        let attributes = [
            (QueueAttributeName::FifoQueue, "true"),
            (QueueAttributeName::VisibilityTimeout, "2"),
        ];
        let queue = place.queue("refreshes.fifo", &attributes).await?;
        let id = domain::fingerprint::Call::new("report", 1).fingerprint()?;
        Ok(Self {
            place,
            queue,
            id: id.to_string(),
            settings: format!("materialize:\n  grace: 0s\n  lease: {lease}\n  inline_max: 1B\n"),
        })
    }

    fn refreshes(&self) -> Arc<SqsRefreshes> {
        let client = self.place.clients.sqs.clone();
        let (clock, chance) = (Arc::new(SystemClock), Arc::new(SystemChance));
        Arc::new(SqsRefreshes::new(client, self.queue.clone(), clock, chance))
    }

    fn control(&self) -> Result<Control> {
        let state = Arc::new(CountedState::new(Arc::new(self.place.state())));
        let objects = Arc::new(CountedObjects::new(self.place.objects()));
        let live = LiveSettings::default();
        let uri = self.place.uri();
        let mut lab = Lab::on(state.clone(), objects.clone(), &uri, None, &[], live)?;
        lab.world.clock = Arc::new(SystemClock);
        lab.world.chance = Arc::new(SystemChance);
        lab.world.jobs = Some(self.refreshes());
        let desk = Desk {
            site: Site::driven(lab, &self.settings)?,
            id: self.id.clone(),
        };
        Ok(Control {
            desk,
            state,
            objects,
        })
    }

    /// Function `refresh`, just started.
    fn refresh(&self) -> Result<Deployed> {
        let clock = Arc::new(SystemClock);
        let ground = Ground {
            state: Arc::new(self.place.state()),
            objects: self.place.objects(),
            uri: self.place.uri(),
            clock: clock.clone(),
            chance: Arc::new(SystemChance),
        };
        let (queue, alerts) = (MemoryQueue::new(), RecordedAlerts::new());
        let live = LiveSettings::default();
        let world = ground.world(Arc::new(queue), Arc::new(alerts), &[], live)?;
        let client = self.place.clients.sqs.clone();
        let chance = Arc::new(SystemChance);
        let settings = Settings::parse("project".as_ref(), &self.settings, &BTreeMap::new())
            .map_err(|all| anyhow!("settings: {all:?}"))?;
        Ok(Deployed {
            world,
            refreshes: self.refreshes(),
            // Nothing is announced here.
            advances: Arc::new(SqsQueue::new(client, self.queue.clone(), clock, chance)),
            objects: self.place.objects(),
            settings: Arc::new(settings),
        })
    }

    /// The next message, as the service hands it to the function.
    async fn message(&self) -> Result<Option<Message>> {
        let receive = self.place.clients.sqs.receive_message();
        let received = receive
            .queue_url(&self.queue)
            .max_number_of_messages(1)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .wait_time_seconds(2)
            .send()
            .await
            .context("receive a message")?;
        let Some(message) = received.messages.unwrap_or_default().pop() else {
            return Ok(None);
        };
        let group = message
            .attributes
            .as_ref()
            .and_then(|all| all.get(&MessageSystemAttributeName::MessageGroupId));
        let record = json!({
            "messageId": message.message_id, "receiptHandle": message.receipt_handle, "body": message.body,
            "eventSource": "aws:sqs", "eventSourceARN": self.place.arn("refreshes.fifo"),
            "attributes": { "MessageGroupId": group },
        });
        match Event::read(json!({ "Records": [record] })) {
            Ok(Event::Queue(mut messages)) => Ok(messages.pop()),
            other => Err(anyhow!("{other:?}")),
        }
    }

    /// Hands a message to the function and does with it as the answer says; whether it was carried out.
    async fn invoke(&self, function: &Deployed, message: &Message) -> Result<bool> {
        let answer = lambda::carry_out(function, std::slice::from_ref(message), &invocation()?)
            .await
            .map_err(|error| anyhow!("{error}"))?;
        if answer["batchItemFailures"] != json!([]) {
            return Ok(false);
        }
        let delete = self.place.clients.sqs.delete_message();
        let deleted = delete
            .queue_url(&self.queue)
            .receipt_handle(&message.receipt)
            .send()
            .await;
        deleted.context("delete a message")?;
        Ok(true)
    }

    /// Has a function carry out so many jobs.
    async fn carry_out(&self, function: &Deployed, jobs: usize) -> Result<()> {
        for number in 0..jobs {
            let message = self.message().await?;
            let message = message.with_context(|| format!("there are only {number} jobs"))?;
            ensure!(self.invoke(function, &message).await?, "{}", message.body);
        }
        Ok(())
    }

    /// Names of all objects of entries.
    async fn stored(&self) -> Result<Vec<String>> {
        let objects = self.place.objects();
        let folder = object_store::path::Path::from("entries");
        let listed = objects.list(Some(&folder));
        let mut names: Vec<String> = listed
            .map_ok(|meta| meta.location.filename().unwrap_or_default().to_owned())
            .try_collect()
            .await?;
        names.sort();
        Ok(names)
    }
}

impl Control {
    async fn ask(&self) -> Result<Vec<Value>> {
        let body = json!({ "index": indexes() });
        let answer = self.desk.send("POST", "/index", body).await?;
        ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
        self.shown("building").await
    }

    /// Jobs of the indexes, all of which are as told.
    async fn shown(&self, status: &str) -> Result<Vec<Value>> {
        let answer = self.desk.send("GET", "/index", json!({})).await?;
        let shown = answer.json()?["indexes"].clone();
        let all = shown.as_array().context("no indexes")?;
        ensure!(
            all.len() == 2 && all.iter().all(|index| index["status"] == status),
            "not {status}: {shown}"
        );
        Ok(all.iter().map(|index| index["job"].clone()).collect())
    }

    async fn finds(&self) -> Result<()> {
        let words = async |body| found(&self.desk, "/search", body).await;
        ensure!(words(json!({ "query": "outage" })).await? == [2, 1, 4]);
        ensure!(words(json!({ "query": "outage", "filter": "n > 1" })).await? == [2, 4]);
        ensure!(
            words(json!({ "query": "outage", "filter": "n > 4" }))
                .await?
                .is_empty()
        );
        let near = async |body| found(&self.desk, "/vector-search", body).await;
        let body = json!({ "column": "v", "vector": [2.0, 0.1], "limit": 2 });
        ensure!(near(body).await? == [1, 2]);
        let body = json!({ "column": "v", "vector": [2.0, 0.1], "limit": 1, "filter": "n > 2" });
        ensure!(near(body).await? == [3]);
        Ok(())
    }
}

async fn built() -> Result<()> {
    let services = Services::open(LONG).await?;
    let control = services.control()?;
    control.desk.build(json!({}), &notes()).await?;
    let jobs = control.ask().await?;
    // Asked again they are the same jobs, and nothing is sent twice.
    ensure!(control.ask().await? == jobs);
    // Whatever time it is given, the function that was asked builds nothing.
    tokio::time::sleep(Span::from_millis(500)).await;
    ensure!(services.stored().await? == ["data.parquet"]);
    for (call, body) in [
        ("/search", json!({ "query": "outage" })),
        (
            "/vector-search",
            json!({ "column": "v", "vector": [1.0, 0.0] }),
        ),
    ] {
        let answer = control.desk.send("POST", call, body).await?;
        ensure!(answer.status == 409, "{}", answer.text());
        ensure!(kind(&answer)? == "urn:headwater:problem:index-not-ready");
        ensure!(
            jobs.contains(&answer.json()?["job"]["job"]),
            "{}",
            answer.text()
        );
    }
    services.carry_out(&services.refresh()?, 2).await?;
    ensure!(
        services.message().await?.is_none(),
        "two jobs are two messages"
    );
    ensure!(control.shown("ready").await? == jobs);
    ensure!(services.stored().await?.len() == 3);
    control.finds().await?;
    // Whoever is started next finds them too.
    services.control()?.finds().await?;
    // An entry that comes with its index: the commit answers before it is built.
    let desk = Desk {
        site: services.control()?.desk.site,
        id: domain::fingerprint::Call::new("other", 1)
            .fingerprint()?
            .to_string(),
    };
    let text = json!([{ "kind": "text", "columns": ["title"] }]);
    desk.build(json!({ "index": text }), &notes()).await?;
    let search = json!({ "query": "cake party" });
    ensure!(desk.send("POST", "/search", search.clone()).await?.status == 409);
    services.carry_out(&services.refresh()?, 1).await?;
    ensure!(found(&desk, "/search", search).await? == [3]);
    Ok(())
}

async fn waited() -> Result<()> {
    let services = Services::open(LONG).await?;
    let control = services.control()?;
    control.desk.build(json!({}), &notes()).await?;
    control.ask().await?;
    let body = json!({ "query": "outage", "wait": "15s" });
    let build = async {
        tokio::time::sleep(Span::from_millis(300)).await;
        services.carry_out(&services.refresh()?, 2).await
    };
    let (rows, built) = tokio::join!(found(&control.desk, "/search", body), build);
    built?;
    let rows = rows?;
    ensure!(rows == [2, 1, 4], "{rows:?}");
    Ok(())
}

async fn taken_down() -> Result<()> {
    let services = Services::open("3s").await?;
    let control = services.control()?;
    control.desk.build(json!({}), &notes()).await?;
    let text = json!([{ "kind": "text", "columns": ["title"] }]);
    let asked = control
        .desk
        .send("POST", "/index", json!({ "index": text }))
        .await?;
    ensure!(asked.status == 202, "{}", asked.text());
    let mut dying = services.refresh()?;
    let told = Told::over(&mut dying.world.searching.indexes);
    told.now(WAIT);
    let message = services.message().await?.context("no job")?;
    let died = {
        let (message, context) = (message.clone(), invocation()?);
        tokio::spawn(async move { lambda::carry_out(&dying, &[message], &context).await })
    };
    told.started.acquire().await?.forget();
    died.abort();
    ensure!(died.await.is_err());
    // Delivered again while the dead one may still live, it has to come once more; after that it is carried out.
    let next = services.refresh()?;
    ensure!(!services.invoke(&next, &message).await?);
    tokio::time::sleep(Span::from_secs(4)).await;
    ensure!(services.invoke(&next, &message).await?);
    let rows = found(&control.desk, "/search", json!({ "query": "outage" })).await?;
    ensure!(rows == [1, 4], "{rows:?}");
    let stored = services.stored().await?;
    ensure!(stored.len() == 2, "{stored:?}");
    Ok(())
}

async fn cost() -> Result<()> {
    let services = Services::open(LONG).await?;
    let control = services.control()?;
    let rows: Vec<Value> = (0..5_000)
        .map(|n| json!({ "n": n, "title": format!("number {n} of {}", n % 89), "v": [f64::from(n), 1.0] }))
        .collect();
    let token = control.desk.lease(json!({})).await?;
    let file = parquet::of_objects(&rows)?;
    ensure!(control.desk.upload(&token, file).await?.status == 200);
    ensure!(control.desk.commit(&token).await?.status == 200);
    let index = json!([
        { "kind": "text", "columns": ["title"] }, { "kind": "vector", "column": "v", "metric": "l2" },
    ]);
    let body = json!({ "index": index });
    ensure!(control.desk.send("POST", "/index", body).await?.status == 202);
    services.carry_out(&services.refresh()?, 2).await?;

    let words = json!({ "query": "4711", "select": ["n"] });
    let near = json!({ "column": "v", "vector": [4711.0, 1.0], "limit": 1, "select": ["n"] });
    let scores = json!({ "query": "4711", "select": [] });
    for (call, body, cold_max, warm_max) in [
        ("/search", words, COLD, 1),
        ("/vector-search", near, COLD_NEAR, 1),
        ("/search", scores, COLD, 0),
    ] {
        let control = services.control()?;
        for (name, most) in [("cold", cold_max), ("warm", warm_max)] {
            control.state.take();
            control.objects.take();
            let answer = control.desk.send("POST", call, body.clone()).await?;
            ensure!(answer.status == 200, "{}", answer.text());
            ensure!(
                answer.json()?["rows"]
                    .as_array()
                    .is_some_and(|rows| rows.len() == 1)
            );
            let (state, objects) = (control.state.take(), control.objects.take());
            println!("{name} {call} {body}: {state:?} {objects:?}");
            // The row, and the index with the row it is of.
            ensure!(state.requests() == 2, "{name} {call}: {state:?}");
            ensure!(objects.requests() <= most, "{name} {call}: {objects:?}");
        }
    }
    Ok(())
}

async fn evicted() -> Result<()> {
    let services = Services::open(LONG).await?;
    let control = services.control()?;
    control.desk.build(json!({}), &notes()).await?;
    control.ask().await?;
    let refresh = services.refresh()?;
    services.carry_out(&refresh, 2).await?;
    ensure!(services.stored().await?.len() == 3);
    control.finds().await?;
    ensure!(control.desk.send("DELETE", "", json!({})).await?.status == 200);
    let stored = services.stored().await?;
    ensure!(stored.is_empty(), "{stored:?}");
    let gone = control
        .desk
        .send("POST", "/search", json!({ "query": "outage" }))
        .await?;
    ensure!(gone.status == 404, "{}", gone.text());
    // Evicted while its job is on the way: the job finds nothing to do.
    control.desk.build(json!({}), &notes()).await?;
    control.ask().await?;
    ensure!(control.desk.send("DELETE", "", json!({})).await?.status == 200);
    services.carry_out(&refresh, 2).await?;
    let stored = services.stored().await?;
    ensure!(stored.is_empty(), "{stored:?}");
    Ok(())
}

async fn rebuilt() -> Result<()> {
    let services = Services::open(LONG).await?;
    let control = services.control()?;
    let ask = async || {
        let body = json!({ "sql": "SELECT 7 AS n", "ttl": 3 }).to_string();
        let site = &control.desk.site;
        let answer = site
            .send("POST", "/api/materialize/query", &[], body)
            .await?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(answer.header("headwater-entry").to_owned())
    };
    ensure!(ask().await? == "built");
    tokio::time::sleep(Span::from_millis(3_200)).await;
    for _ in 0..3 {
        ensure!(ask().await? == "stale");
    }
    services.carry_out(&services.refresh()?, 1).await?;
    ensure!(ask().await? == "hit");
    ensure!(services.message().await?.is_none(), "one job for all");
    Ok(())
}

async fn kept_up() -> Result<()> {
    let services = Services::open(LONG).await?;
    let control = services.control()?;
    let brief = json!({ "ttl": 1, "mode": "strict" });
    control.desk.build(brief, &notes()).await?;
    tokio::time::sleep(Span::from_millis(1_200)).await;
    let mut sweep = services.refresh()?;
    sweep.world.jobs = Some(services.refreshes());
    let tick = async || lambda::tick(&sweep).await.map_err(|e| anyhow!("{e}"));
    tick().await?;
    ensure!(services.stored().await?.len() == 1, "it asks, and no more");
    services.carry_out(&services.refresh()?, 1).await?;
    ensure!(services.stored().await?.is_empty());
    tick().await?;
    ensure!(services.message().await?.is_none(), "nothing is due");
    Ok(())
}
