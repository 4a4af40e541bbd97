//! Alerts: one when a model fails, one when it is well again, and nobody waits for whoever gets them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use axum::{Router, extract::State, http::StatusCode, routing::post};
use embedded::{ChannelAlerts, SystemClock};
use libtest_mimic::Trial;
use ports::Alerts;
use serde_json::{Value, json};
use tests::{
    case::ModelText,
    folder::Folder,
    program,
    site::Site,
    world::{Adapter, Lab},
};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("alerts::one_post_each_way", both_ways),
        test_async("alerts::a_slow_receiver_holds_no_refresh", slow),
        test_async("alerts::a_failing_receiver_is_asked_again", again),
        test_async("alerts::what_is_refused_is_counted", refused),
        test_async("alerts::a_command_tells_before_it_ends", command),
    ]
}

/// What a receiver was sent, and how it answers.
#[derive(Clone, Debug)]
struct Receiver {
    bodies: Arc<Mutex<Vec<Value>>>,
    answers: Arc<Mutex<Vec<u16>>>,
    pause: Duration,
}

async fn take(State(receiver): State<Receiver>, body: String) -> StatusCode {
    tokio::time::sleep(receiver.pause).await;
    let body = serde_json::from_str(&body).unwrap_or(Value::Null);
    let mut bodies = receiver
        .bodies
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    bodies.push(body);
    let mut answers = receiver
        .answers
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let status = answers.pop().unwrap_or(200);
    StatusCode::from_u16(status).unwrap_or(StatusCode::OK)
}

impl Receiver {
    /// Listens on a free port; its address.
    async fn start(answers: &[u16], pause: Duration) -> Result<(Self, String)> {
        let mut answers = answers.to_vec();
        answers.reverse();
        let receiver = Self {
            bodies: Arc::default(),
            answers: Arc::new(Mutex::new(answers)),
            pause,
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/{*path}", post(take))
            .with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((receiver, format!("http://{address}/hooks/secret")))
    }

    fn bodies(&self) -> Vec<Value> {
        let bodies = self.bodies.lock();
        bodies.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn model() -> ModelText {
    let config = json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "append",
        "incremental_filter": "WHERE _seq > {watermark}" });
    ModelText {
        name: String::from("silver.orders"),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: String::from("SELECT (payload->>'n')::BIGINT AS n, _seq FROM landing.orders"),
        asserts: Vec::new(),
    }
}

fn site(alerts: Arc<ChannelAlerts>) -> Result<Site> {
    let mut lab = Lab::new(Adapter::Memory, &[model()], domain::LiveSettings::default())?;
    lab.world.alerts = alerts;
    Site::new(lab, "")
}

/// Fails twice, then is put right.
async fn fail_and_recover(site: &mut Site) -> Result<()> {
    site.event("orders", r#"{"n": "x<y"}"#).await?;
    for _ in 0..2 {
        let report = serde_json::to_value(site.lab.cycle().await?.models)?;
        ensure!(report["silver.orders"]["outcome"] == "error", "{report}");
        site.lab.clock.advance(domain::Duration::from_secs(600));
    }
    let mut right = model();
    right.sql = right.sql.replace(
        "(payload->>'n')::BIGINT",
        "TRY_CAST(payload->>'n' AS BIGINT)",
    );
    site.lab.set_models(&[right])?;
    site.cycle().await?;
    site.event("orders", r#"{"n": 2}"#).await?;
    site.cycle().await
}

const SOON: domain::Duration = domain::Duration::from_secs(10);

async fn both_ways() -> Result<()> {
    let (webhook, webhook_url) = Receiver::start(&[], Duration::ZERO).await?;
    let (slack, slack_url) = Receiver::start(&[], Duration::ZERO).await?;
    let clock = Arc::new(SystemClock);
    let alerts = embedded::channels(true, "shop", Some(webhook_url), Some(slack_url), clock);
    ensure!(!format!("{alerts:?}").contains("secret"), "{alerts:?}");
    let alerts = Arc::new(alerts);
    fail_and_recover(&mut site(alerts.clone())?).await?;
    alerts.flush(SOON).await;
    let told = webhook.bodies();
    let kinds: Vec<_> = told.iter().map(|body| body["kind"].clone()).collect();
    ensure!(
        kinds == ["live_model_failed", "live_model_recovered"],
        "{told:?}"
    );
    ensure!(
        told[0]["model"] == "silver.orders" && told[0]["project"] == "shop",
        "{told:?}"
    );
    let detail = told[0]["detail"].as_str().context("an error")?;
    ensure!(detail.contains("x<y"), "{detail}");
    let told = slack.bodies();
    let texts: Vec<_> = told
        .iter()
        .filter_map(|body| body["text"].as_str())
        .collect();
    ensure!(texts.len() == 2, "{told:?}");
    ensure!(
        texts[0].starts_with("shop: live model silver.orders failed at 2026-"),
        "{texts:?}"
    );
    ensure!(
        texts[0].contains("x&lt;y") && texts[1].contains("recovered"),
        "{texts:?}"
    );
    ensure!(alerts.dropped() == 0, "{alerts:?}");
    Ok(())
}

async fn slow() -> Result<()> {
    let (webhook, url) = Receiver::start(&[], Duration::from_millis(1_500)).await?;
    let alerts = embedded::channels(false, "shop", Some(url), None, Arc::new(SystemClock));
    let alerts = Arc::new(alerts);
    fail_and_recover(&mut site(alerts.clone())?).await?;
    // The refreshes are over, and the first alert has not been answered yet.
    ensure!(webhook.bodies().is_empty(), "somebody waited");
    alerts.flush(SOON).await;
    ensure!(webhook.bodies().len() == 2, "{:?}", webhook.bodies());
    Ok(())
}

async fn again() -> Result<()> {
    let (webhook, url) = Receiver::start(&[503, 200], Duration::ZERO).await?;
    let alerts = embedded::channels(false, "shop", Some(url), None, Arc::new(SystemClock));
    let alerts = Arc::new(alerts);
    fail_and_recover(&mut site(alerts.clone())?).await?;
    alerts.flush(SOON).await;
    let kinds: Vec<_> = webhook
        .bodies()
        .iter()
        .map(|body| body["kind"].clone())
        .collect();
    // In order: what follows waits for what is asked again.
    let expected = [
        "live_model_failed",
        "live_model_failed",
        "live_model_recovered",
    ];
    ensure!(kinds == expected && alerts.dropped() == 0, "{kinds:?}");
    Ok(())
}

async fn refused() -> Result<()> {
    let (webhook, url) = Receiver::start(&[404], Duration::ZERO).await?;
    let alerts = embedded::channels(false, "shop", Some(url), None, Arc::new(SystemClock));
    let alerts = Arc::new(alerts);
    fail_and_recover(&mut site(alerts.clone())?).await?;
    alerts.flush(SOON).await;
    ensure!(webhook.bodies().len() == 2, "{:?}", webhook.bodies());
    ensure!(alerts.dropped() == 1, "{}", alerts.dropped());
    Ok(())
}

async fn command() -> Result<()> {
    let (webhook, url) = Receiver::start(&[], Duration::from_millis(200)).await?;
    let folder = Folder::with_models("", &[model()])?;
    let file = folder.path().join("orders.ndjson");
    std::fs::write(&file, r#"{"payload": "{\"n\": \"x\"}"}"#)?;
    let path = file.to_string_lossy().into_owned();
    let run = |arguments: Vec<String>| -> Result<std::process::Output> {
        let mut command = program::command()?;
        command.env("HEADWATER_ALERTS_WEBHOOK", &url);
        command.arg("--project").arg(folder.path()).args(arguments);
        Ok(command.output()?)
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (ingest, live) = (
        words(&format!("ingest {path} --table landing.orders")),
        words("live --once"),
    );
    let outputs =
        tokio::task::block_in_place(|| Ok::<_, anyhow::Error>((run(ingest)?, run(live)?)))?;
    ensure!(outputs.0.status.success(), "{:?}", outputs.0);
    ensure!(outputs.1.status.code() == Some(1), "{:?}", outputs.1);
    let told = webhook.bodies();
    ensure!(
        told.len() == 1 && told[0]["kind"] == "live_model_failed",
        "{told:?}"
    );
    Ok(())
}
