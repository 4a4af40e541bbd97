//! What arrives through a gateway or a queue, in the shapes that the service gives it: bugs of others, fed to the bodies
//! of the functions that are deployed. Numbers are those of the list of public reports.

pub(crate) mod hidden;
mod integration;
mod paths;

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow, ensure};
use engine::{
    cycle::{self, Step},
    refresh::Refreshed,
    runner::Runner,
};
use lambda::{Buffered, Event, Http, Message};
use libtest_mimic::Trial;
use object_store::ObjectStoreExt;
use serde_json::{Value, json};
use settings::Settings;
use testkit::{Faults, FaultyState, MemoryRefreshes, MemoryState};
use tests::{
    case::ModelText,
    rows::{self, compare},
    site::Site,
    world::{Adapter, Lab},
};

use crate::{bugs::merged, plain::test_async};
pub(crate) use hidden::deployed;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = paths::trials();
    trials.extend([
        hidden::trial(),
        test_async(
            "gateway::bug_27_an_order_claimed_with_no_time_left_is_claimable_again",
            no_time,
        ),
        test_async(
            "gateway::bug_47_bodies_of_every_gateway_land_however_they_are_encoded",
            encoded,
        ),
        test_async(
            "gateway::bug_47_lines_that_nobody_calls_lines_land_in_serve_and_through_the_buffer",
            untold,
        ),
        test_async(
            "gateway::bug_47_what_cannot_be_read_is_refused_and_nothing_lands",
            unreadable,
        ),
        test_async(
            "gateway::messages_as_the_api_s_own_integration_makes_them_land",
            integration::parameters,
        ),
        test_async(
            "gateway::bug_57_a_5_mb_event_lands_and_a_larger_one_is_told_the_limit",
            large_event,
        ),
        test_async(
            "gateway::bug_57_a_300_kb_body_comes_through_the_buffer_by_its_claim",
            claim,
        ),
    ]);
    trials
}

/// The functions `ingest`, over a world in memory.
struct Gate {
    lab: Lab,
    http: Http,
    buffered: Buffered,
}

impl Gate {
    fn new() -> Result<Self> {
        let lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
        let router = web::ingest_router(web::App {
            driven: true,
            runner: Runner::new(lab.world.clone()),
            world: lab.world.clone(),
            settings: settings()?,
        });
        Ok(Self {
            http: Http::new(router.clone()),
            buffered: Buffered::new(router, lab.objects.clone()),
            lab,
        })
    }

    /// The answer to the payload of an invocation.
    async fn answer(&self, payload: Value) -> Result<(u64, String)> {
        let Event::Http(request) = Event::read(payload).map_err(|e| anyhow!(e))? else {
            anyhow::bail!("it is read as something else than a request");
        };
        let answer = self.http.answer(*request, lambda::Context::default());
        let answer = answer.await.map_err(|e| anyhow!("{e}"))?;
        let status = answer["statusCode"].as_u64().context("a status")?;
        Ok((
            status,
            answer["body"].as_str().unwrap_or_default().to_owned(),
        ))
    }

    async fn count(&self) -> Result<Value> {
        rows::value(&self.lab.world, "SELECT count(*) FROM landing.orders").await
    }
}

fn settings() -> Result<Arc<Settings>> {
    let settings = Settings::parse("project".as_ref(), "", &BTreeMap::new());
    Ok(Arc::new(
        settings.map_err(|all| anyhow!("settings: {all:?}"))?,
    ))
}

/// A gateway that puts requests into payloads.
#[derive(Clone, Copy, Debug)]
enum Gateway {
    /// An HTTP API, payload format 2.0.
    Second,
    /// A function URL, which says less.
    Url,
    /// A load balancer.
    Balancer,
}

impl Gateway {
    const ALL: [Self; 3] = [Self::Second, Self::Url, Self::Balancer];

    /// The payload of a webhook.
    fn payload(self, headers: &[(&str, &str)], body: Option<String>, encoded: bool) -> Value {
        const PATH: &str = "/api/ingest/webhook/orders";
        let headers: BTreeMap<_, _> = headers.iter().copied().chain([("Host", "x")]).collect();
        let http = json!({ "method": "POST", "path": PATH, "protocol": "HTTP/1.1",
            "sourceIp": "127.0.0.1", "userAgent": "test" });
        let mut payload = match self {
            Self::Second => {
                json!({ "version": "2.0", "routeKey": "POST /api/ingest/webhook/{source}",
                "rawPath": PATH, "rawQueryString": "", "headers": headers,
                "pathParameters": { "source": "orders" },
                "requestContext": { "accountId": "1", "apiId": "a", "domainName": "a.example",
                    "domainPrefix": "a", "requestId": "r", "stage": "$default",
                    "routeKey": "POST /api/ingest/webhook/{source}", "timeEpoch": 0, "http": http } })
            }
            Self::Url => json!({ "version": "2.0", "routeKey": "$default", "rawPath": PATH,
                "rawQueryString": "", "headers": headers,
                "requestContext": { "accountId": "anonymous", "apiId": "a", "domainName": "a.example",
                    "domainPrefix": "a", "requestId": "r", "stage": "$default", "routeKey": "$default",
                    "time": "01/Jan/2026:00:00:00 +0000", "timeEpoch": 0, "http": http } }),
            Self::Balancer => json!({ "requestContext": { "elb": { "targetGroupArn": "arn" } },
                "httpMethod": "POST", "path": PATH, "queryStringParameters": {}, "headers": headers }),
        };
        payload["isBase64Encoded"] = json!(encoded);
        if let Some(body) = body {
            payload["body"] = json!(body);
        }
        payload
    }
}

/// As gateways encode bodies that they do not take for text.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte))
            << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = usize::try_from((bits >> (18 - 6 * at)) & 63).expect("six bits");
            let digit = (at <= three.len()).then(|| char::from(DIGITS[digit]));
            text.push(digit.unwrap_or('='));
        }
    }
    text
}

fn gzip(text: &str) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes())?;
    Ok(encoder.finish()?)
}

const LINES: &str = "{\"id\":1}\n{\"id\":2}\n";
const LINES_TYPE: (&str, &str) = ("cOnTeNt-TyPe", "application/x-ndjson");

async fn encoded() -> Result<()> {
    for gateway in Gateway::ALL {
        let one = r#"{"id":1,"name":"ä"}"#;
        let zipped = base64(&gzip(LINES)?);
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let requests = [
            (vec![], base64(one.as_bytes()), true, 1),
            (vec![form], base64(one.as_bytes()), true, 1),
            (vec![LINES_TYPE], base64(LINES.as_bytes()), true, 2),
            (
                vec![LINES_TYPE, ("CONTENT-Encoding", "gzip")],
                zipped,
                true,
                2,
            ),
            (vec![LINES_TYPE], LINES.to_owned(), false, 2),
            // Lines that nobody calls lines, as they are and compressed: what a gateway encodes for want of a type.
            (vec![], base64(LINES.as_bytes()), true, 2),
            (
                vec![("content-ENCODING", "gzip")],
                base64(&gzip(LINES)?),
                true,
                2,
            ),
            (vec![], LINES.to_owned(), false, 2),
            (vec![form], base64(LINES.as_bytes()), true, 2),
        ];
        let (gate, mut landed) = (Gate::new()?, 0);
        for (headers, body, encoded, count) in requests {
            let said = || format!("{gateway:?} {headers:?}");
            let payload = gateway.payload(&headers, Some(body), encoded);
            let (status, answer) = gate.answer(payload).await.with_context(said)?;
            ensure!(status == 202, "{}: {status} {answer}", said());
            landed += count;
            ensure!(gate.count().await? == json!(landed), "{}", said());
        }
        let read = "SELECT DISTINCT payload FROM landing.orders WHERE payload->>'name' IS NOT NULL";
        let got = rows::query(&gate.lab.world, read).await?;
        compare("what landed", got, &vec![vec![json!(one)]], &[])?;
        // One key in whatever case is one key: the second request stores nothing.
        for header in ["Idempotency-Key", "IDEMPOTENCY-KEY"] {
            let headers = [LINES_TYPE, (header, "k")];
            let payload = gateway.payload(&headers, Some(LINES.to_owned()), false);
            ensure!(gate.answer(payload).await?.0 == 202, "{gateway:?} {header}");
        }
        ensure!(
            gate.count().await? == json!(landed + 2),
            "{gateway:?}: twice"
        );
    }
    Ok(())
}

async fn untold() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let path = "/api/ingest/webhook/orders";
    let answer = site.send("POST", path, &[], LINES).await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    let zipped = site.send("POST", path, &[("content-encoding", "gzip")], gzip(LINES)?);
    ensure!(zipped.await?.status == 202, "compressed lines");
    // A bad line says which it is; a value that goes over lines is one event.
    let bad = site.send("POST", path, &[], "{}\n{\"id\":}\n").await?;
    ensure!(
        bad.status == 400 && bad.text().contains("line 2"),
        "{}",
        bad.text()
    );
    let one = site.send("POST", path, &[], "{\n\"id\": 3\n}").await?;
    ensure!(one.status == 202, "{} {}", one.status, one.text());
    let count = "SELECT count(*) FROM landing.orders";
    let landed = rows::value(&site.lab.world, count).await?;
    ensure!(landed == json!(5), "{landed}");
    let gate = Gate::new()?;
    let messages = [buffered(
        "m1",
        &[("source", "orders"), ("content-type", "")],
        LINES,
    )];
    let answer = gate.buffered.take(&messages).await;
    let answer = answer.map_err(|e| anyhow!("{e}"))?;
    ensure!(answer == json!({ "batchItemFailures": [] }), "{answer}");
    ensure!(gate.count().await? == json!(2), "through the buffer");
    Ok(())
}

async fn unreadable() -> Result<()> {
    for gateway in Gateway::ALL {
        let gate = Gate::new()?;
        let zipped = gzip(LINES)?;
        let requests = [
            // Lines that are called one value.
            (
                vec![("Content-Type", "application/json")],
                Some(base64(LINES.as_bytes())),
                400,
            ),
            // What the gateway did not encode, though it says so: nothing of the process may fall over it.
            (vec![LINES_TYPE], Some(LINES.to_owned()), 400),
            (vec![], Some("QUJ".to_owned()), 400),
            (vec![], Some("QR==".to_owned()), 400),
            (vec![LINES_TYPE], Some(base64(&[0xff, 0xfe, 0x00])), 400),
            // Compressed, and not said so; said so, and not compressed, or cut short.
            (vec![LINES_TYPE], Some(base64(&zipped)), 400),
            (
                vec![LINES_TYPE, ("Content-Encoding", "gzip")],
                Some(base64(LINES.as_bytes())),
                400,
            ),
            (
                vec![LINES_TYPE, ("Content-Encoding", "gzip")],
                Some(base64(&zipped[..20])),
                400,
            ),
            (vec![("Content-Encoding", "br")], Some(base64(&zipped)), 415),
            (vec![("Content-Type", "application/json")], None, 400),
        ];
        for (headers, body, want) in requests {
            let payload = gateway.payload(&headers, body, true);
            let (status, answer) = gate.answer(payload).await?;
            ensure!(status == want, "{gateway:?} {headers:?}: {status} {answer}");
            ensure!(
                answer.contains("\"detail\""),
                "it does not say why: {answer}"
            );
        }
        ensure!(gate.count().await.is_err(), "{gateway:?}: something landed");
    }
    Ok(())
}

async fn large_event() -> Result<()> {
    let gate = Gate::new()?;
    let event = json!({ "id": 1, "text": "x".repeat(5 << 20) }).to_string();
    let json = [("content-type", "application/json")];
    let (status, answer) = gate
        .answer(Gateway::Second.payload(&json, Some(event), false))
        .await?;
    ensure!(status == 202, "{status} {answer}");
    let length = "SELECT length(payload->>'text') FROM landing.orders";
    let length = rows::value(&gate.lab.world, length).await?;
    ensure!(length == json!(5 << 20), "{length}");
    // What the gateway itself would not pass on, a compressed body can still hold.
    let limit = settings()?.source("orders").body_max;
    let zipped = gzip(&format!("\"{}\"", "x".repeat(limit)))?;
    let headers = [
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
    ];
    let payload = Gateway::Second.payload(&headers, Some(base64(&zipped)), true);
    let (status, answer) = gate.answer(payload).await?;
    ensure!(status == 413, "{status} {answer}");
    let megabytes = (limit >> 20).to_string();
    ensure!(
        answer.contains(&limit.to_string()) || answer.contains(&megabytes),
        "no limit: {answer}"
    );
    ensure!(gate.count().await? == json!(1), "it landed all the same");
    Ok(())
}

fn buffered(id: &str, attributes: &[(&str, &str)], body: &str) -> Message {
    let attributes = attributes.iter();
    Message {
        id: id.to_owned(),
        body: body.to_owned(),
        attributes: attributes
            .map(|(name, text)| ((*name).to_owned(), format!("{text} ")))
            .collect(),
        ..Message::default()
    }
}

async fn claim() -> Result<()> {
    let gate = Gate::new()?;
    let event = json!({ "id": 1, "text": "x".repeat(300_000) }).to_string();
    // An object of anybody else's is no body, whoever names it.
    for (place, body) in [("claims/one", event.as_str()), ("state/one", "{}")] {
        let place = object_store::path::Path::from(place);
        gate.lab.objects.put(&place, body.to_owned().into()).await?;
    }
    let claimed = |id, place| {
        let json = ("content-type", "application/json");
        buffered(id, &[("source", "orders"), json, ("claim", place)], "-")
    };
    let messages = [
        claimed("m1", "claims/one"),
        claimed("m2", "claims/two"),
        buffered("m3", &[("source", "orders")], r#"{"id":3}"#),
        claimed("m4", "state/one"),
    ];
    // What is not there yet comes again; what was taken and comes again lands once.
    for _ in 0..2 {
        let answer = gate
            .buffered
            .take(&messages)
            .await
            .map_err(|e| anyhow!("{e}"))?;
        let failed = ["m2", "m4"].map(|id| json!({ "itemIdentifier": id }));
        let want = json!({ "batchItemFailures": failed });
        ensure!(answer == want, "{answer}");
    }
    let read = "SELECT (payload->>'id')::BIGINT, length(payload) FROM landing.orders";
    let got = rows::query(&gate.lab.world, read).await?;
    compare(
        "landed",
        got,
        &vec![vec![json!(1), json!(300_018)], vec![json!(3), json!(8)]],
        &[0],
    )
}

/// A world that can be killed, its one model ordered.
async fn ordered() -> Result<(Lab, Arc<Faults>, ports::refreshes::Order)> {
    let faults = Arc::new(Faults::none());
    let state = FaultyState::new(Arc::new(MemoryState::new()), faults.clone());
    let objects: ports::Objects = Arc::new(object_store::memory::InMemory::new());
    let sql = "SELECT (payload->>'id')::BIGINT AS id, _seq FROM landing.orders";
    let models: [ModelText; 1] = [merged("silver.orders", "id", sql)];
    let live = domain::LiveSettings::default();
    let lab = Lab::on(Arc::new(state), objects, "memory:///", None, &models, live)?;
    let request = engine::ingest::Request {
        source: "orders".to_owned(),
        body: LINES.into(),
        format: engine::ingest::Format::Ndjson,
        key: None,
        headers: Vec::new(),
    };
    let source = settings()?.source("orders");
    let landed = engine::ingest::webhook(&lab.world, &source, request).await;
    landed.map_err(|e| rows::chain(&e))?;
    let refreshes = MemoryRefreshes::new();
    step(&lab, &refreshes, Duration::from_secs(1)).await?;
    let order = refreshes.take().context("an order")?;
    Ok((lab, faults, order))
}

async fn step(lab: &Lab, refreshes: &MemoryRefreshes, patience: Duration) -> Result<Step> {
    let step = cycle::step(&lab.world, refreshes, patience).await;
    step.map_err(|e| rows::chain(&e))
}

async fn no_time() -> Result<()> {
    // An invocation whose time is over gives its order back, and whoever has time carries it out at once.
    let (lab, faults, order) = ordered().await?;
    let deployed = deployed(&lab).await?;
    let message = Message {
        id: "m1".to_owned(),
        group: Some(order.model.to_string()),
        body: serde_json::to_string(&order)?,
        ..Message::default()
    };
    let batch = [message];
    faults.crash_after(2);
    let answer = lambda::carry_out(&deployed, &batch, &lambda::Context::default()).await;
    let answer = answer.map_err(|e| anyhow!("{e}"))?;
    ensure!(
        answer["batchItemFailures"][0]["itemIdentifier"] == "m1",
        "{answer}"
    );
    faults.restart();
    let mut context = lambda::Context::default();
    let minute = SystemTime::now().duration_since(UNIX_EPOCH)? + Duration::from_secs(60);
    context.deadline = u64::try_from(minute.as_millis())?;
    let answer = lambda::carry_out(&deployed, &batch, &context).await;
    let answer = answer.map_err(|e| anyhow!("{e}"))?;
    ensure!(answer == json!({ "batchItemFailures": [] }), "{answer}");
    let rows = rows::value(&lab.world, "SELECT count(*) FROM silver.orders").await?;
    ensure!(rows == json!(2), "{rows}");
    // An order whose message is gone is sent again when patience is over, and not before. No patience is over at once.
    let (lab, faults, order) = ordered().await?;
    let (refreshes, patience) = (MemoryRefreshes::new(), Duration::from_secs(1));
    faults.crash_after(2);
    let work = cycle::carry_out(&lab.world, &refreshes, &order, patience);
    ensure!(faults.until_crash(work).await.is_none(), "it is killed");
    faults.restart();
    let waiting = step(&lab, &refreshes, patience).await?;
    ensure!(matches!(waiting, Step::Waiting(_)), "{waiting:?}");
    let sent = step(&lab, &refreshes, Duration::ZERO).await?;
    ensure!(sent == Step::Sent(vec![order.model.clone()]), "{sent:?}");
    lab.clock.advance(patience);
    let sent = step(&lab, &refreshes, patience).await?;
    ensure!(sent == Step::Sent(vec![order.model.clone()]), "{sent:?}");
    let attempts: Vec<_> = std::iter::from_fn(|| refreshes.take()).collect();
    ensure!(
        attempts.iter().map(|order| order.attempt).eq([2, 3]),
        "{attempts:?}"
    );
    let (how, _) = cycle::carry_out(&lab.world, &refreshes, &attempts[1], patience)
        .await
        .map_err(|e| rows::chain(&e))?;
    ensure!(matches!(how, Refreshed::Built { .. }), "{how:?}");
    Ok(())
}
