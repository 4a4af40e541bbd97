//! Bugs that others had, on the emulator's services. Numbers are those of the list of public reports.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Result, anyhow, ensure};
use embedded::{SystemChance, SystemClock};
use engine::{World, ingest, runner::Runner};
use lambda::{Event, Http};
use libtest_mimic::Trial;
use serde_json::json;
use settings::Settings;
use testkit::{MemoryQueue, RecordedAlerts};
use tests::{
    aws::Place,
    rows::{self, compare},
    world::Ground,
};
use tokio::task::JoinSet;

use crate::plain::test_emulated;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_emulated(
            "emulated::bug_21_fifty_ingests_at_once_lose_nothing",
            fifty_ingests,
        ),
        test_emulated(
            "emulated::bug_57_events_larger_than_an_item_land",
            large_events,
        ),
    ]
}

/// One more process over a place.
fn process(place: &Place) -> Result<World> {
    let ground = Ground {
        state: Arc::new(place.state()),
        objects: place.objects(),
        uri: place.uri(),
        clock: Arc::new(SystemClock),
        chance: Arc::new(SystemChance),
    };
    let queue = Arc::new(MemoryQueue::new());
    let alerts = Arc::new(RecordedAlerts::new());
    ground.world(queue, alerts, &[], domain::LiveSettings::default())
}

fn settings() -> Result<Settings> {
    Settings::parse("project".as_ref(), "", &BTreeMap::new())
        .map_err(|all| anyhow!("settings: {all:?}"))
}

/// Each ingest is a process of its own, so that no lock or shared commit keeps them apart.
async fn fifty_ingests() -> Result<()> {
    let place = Place::open().await?;
    let mut posting = JoinSet::new();
    for number in 0..50_i64 {
        let (world, source) = (process(&place)?, settings()?.source("orders"));
        posting.spawn(async move {
            let request = ingest::Request {
                source: "orders".to_owned(),
                // A few of them too large for a row in the state.
                body: json!({ "id": number, "text": "x".repeat(if number % 10 == 0 { 200_000 } else { 10 }) })
                    .to_string()
                    .into(),
                format: ingest::Format::Json,
                key: Some(format!("k{number}")),
                headers: Vec::new(),
            };
            // A refusal may have stored it or not: the sender sends it again, with its key.
            let mut refused = 0;
            loop {
                match ingest::webhook(&world, &source, request.clone()).await {
                    Ok(accepted) => return Ok((accepted.sequence_from, refused)),
                    Err(error) => {
                        refused += 1;
                        ensure!(error.kind == ports::Kind::Unavailable && refused < 20, "{}", error.chain());
                    }
                }
            }
        });
    }
    let (mut sequences, mut refusals) = (Vec::new(), 0);
    while let Some(posted) = posting.join_next().await {
        let (sequence, refused) = posted??;
        sequences.push(sequence);
        refusals += refused;
    }
    println!("{refusals} refusals");
    sequences.sort_unstable();
    ensure!(sequences.iter().copied().eq(1..=50), "{sequences:?}");
    let world = process(&place)?;
    let read = "SELECT (payload->>'id')::BIGINT AS id FROM landing.orders";
    let want = (0..50).map(|id| vec![json!(id)]).collect();
    compare(
        "landing.orders",
        rows::query(&world, read).await?,
        &want,
        &[0],
    )
}

async fn large_events() -> Result<()> {
    let place = Place::open().await?;
    let world = process(&place)?;
    let http = Http::new(web::ingest_router(web::App {
        driven: true,
        runner: Runner::new(world.clone()),
        world: world.clone(),
        settings: Arc::new(settings()?),
    }));
    let sizes = [300_000, 450_000, 5 << 20];
    for size in sizes {
        let path = "/api/ingest/webhook/orders";
        let body = json!({ "text": "x".repeat(size) }).to_string();
        let payload = json!({ "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
            "headers": { "content-type": "application/json" }, "body": body, "isBase64Encoded": false,
            "requestContext": { "accountId": "1", "apiId": "a", "stage": "$default", "timeEpoch": 0,
                "http": { "method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1" } } });
        let Event::Http(request) = Event::read(payload).map_err(|e| anyhow!(e))? else {
            anyhow::bail!("it is read as something else than a request");
        };
        let answer = http.answer(*request, lambda::Context::default()).await;
        let answer = answer.map_err(|e| anyhow!("{e}"))?;
        ensure!(answer["statusCode"] == 202, "{size} bytes: {answer}");
    }
    let read = "SELECT length(payload->>'text') FROM landing.orders";
    let want = sizes.iter().map(|size| vec![json!(size)]).collect();
    compare(
        "landing.orders",
        rows::query(&process(&place)?, read).await?,
        &want,
        &[0],
    )
}
