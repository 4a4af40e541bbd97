//! Real webhooks: every payload through the running program, compared with a computation of our own.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tests::{
    folder::Folder,
    http::Client,
    program::Served,
    rows::{self, compare},
    site::Site,
    world::{Adapter, Lab},
};

use crate::plain::{block_on, test_given};

/// Longest the program may take to bring gold up to date.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Line {
    event: String,
    payload: Box<RawValue>,
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_given(
            "github::every_payload_through_serve",
            "HEADWATER_DATA_REQUIRED",
            payloads,
            |file| block_on(through_serve(&file)),
        ),
        test_given(
            "github::every_payload_is_kept_exactly",
            "HEADWATER_DATA_REQUIRED",
            payloads,
            |file| block_on(kept_exactly(&file)),
        ),
    ]
}

fn payloads() -> Result<PathBuf, String> {
    let file = tests::data::folder().map(|folder| folder.join("github_webhooks.ndjson"));
    file.filter(|file| file.is_file())
        .ok_or_else(|| "no github_webhooks.ndjson beside the repository".to_owned())
}

fn read(file: &PathBuf) -> Result<Vec<Line>> {
    let text = fs::read_to_string(file)?;
    text.lines()
        .map(|line| serde_json::from_str(line).context("a line of the payloads"))
        .collect()
}

/// One pull request or issue as its last event shows it.
#[derive(Debug, Default, PartialEq)]
struct Thing {
    repository: Value,
    title: Value,
    state: Value,
    action: Value,
}

/// The things that events of these kinds hold under `key`, by id; later events replace earlier ones.
fn things(lines: &[Line], kinds: &[&str], key: &str) -> Result<BTreeMap<u64, Thing>> {
    let mut all = BTreeMap::new();
    for line in lines
        .iter()
        .filter(|line| kinds.contains(&line.event.as_str()))
    {
        let payload: Value = serde_json::from_str(line.payload.get())?;
        let thing = Thing {
            repository: payload["repository"]["full_name"].clone(),
            title: payload[key]["title"].clone(),
            state: payload[key]["state"].clone(),
            action: payload["action"].clone(),
        };
        all.insert(payload[key]["id"].as_u64().context("id")?, thing);
    }
    Ok(all)
}

async fn through_serve(file: &PathBuf) -> Result<()> {
    let lines = read(file)?;
    let folder = Folder::of_example("github")?;
    let served = Served::start(folder.path(), &[]).await?;
    let client = served.client();
    for (at, line) in lines.iter().enumerate() {
        let headers = [
            ("content-type", "application/json"),
            ("X-GitHub-Event", line.event.as_str()),
        ];
        let body = line.payload.get().to_owned();
        let answer = client
            .send("POST", "/api/ingest/webhook/github", &headers, body)
            .await?;
        ensure!(
            answer.status == 202,
            "payload {at} ({}): {} {}",
            line.event,
            answer.status,
            answer.text()
        );
        ensure!(
            answer.json()?["sequence_to"] == at as u64 + 1,
            "payload {at}: {}",
            answer.text()
        );
    }
    let pulls = things(&lines, &["pull_request"], "pull_request")?;
    let issues = things(&lines, &["issues", "issue_comment"], "issue")?;
    let mut want: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for (at, thing) in pulls
        .values()
        .map(|t| (0, t))
        .chain(issues.values().map(|t| (1, t)))
    {
        let counts = want
            .entry(thing.repository.as_str().unwrap_or_default().to_owned())
            .or_default();
        counts[at] += 1;
        counts[2] += u64::from(thing.state == "open");
    }
    let want = want.into_iter().map(|(name, [pulls, issues, open])| {
        vec![json!(name), json!(pulls), json!(issues), json!(open)]
    });
    caught_up(&client, lines.len() as u64).await?;
    let names = ["repository", "pull_requests", "issues", "open"];
    let got = client
        .query("SELECT repository, pull_requests, issues, open FROM gold.repositories")
        .await?;
    let got = got
        .iter()
        .map(|row| names.map(|name| row[name].clone()).to_vec())
        .collect();
    compare("gold.repositories", got, &want.collect(), &[0])?;
    same(&client, "silver.pull_requests", &pulls).await?;
    same(&client, "silver.issues", &issues).await
}

async fn same(client: &Client, table: &str, want: &BTreeMap<u64, Thing>) -> Result<()> {
    let sql = format!("SELECT id, repository, title, state, last_action FROM {table}");
    let got = client.query(&sql).await?.into_iter();
    let names = ["id", "repository", "title", "state", "last_action"];
    let got = got
        .map(|row| names.map(|name| row[name].clone()).to_vec())
        .collect();
    let want = want.iter().map(|(id, thing)| {
        vec![
            json!(id),
            thing.repository.clone(),
            thing.title.clone(),
            thing.state.clone(),
            thing.action.clone(),
        ]
    });
    compare(table, got, &want.collect(), &[0])
}

/// Waits until no model is behind and the source is at its last sequence.
async fn caught_up(client: &Client, through: u64) -> Result<()> {
    let started = std::time::Instant::now();
    loop {
        let status = client.get("/api/live/status").await?.json()?;
        let models = status["models"].as_array().context("models")?;
        let landed = status["sources"]
            .as_array()
            .is_some_and(|all| all.iter().any(|s| s["watermark"] == through));
        if landed && models.iter().all(|model| model["status"] == "live") {
            return Ok(());
        }
        ensure!(
            started.elapsed() < CATCH_UP_MAX,
            "never caught up: {status:#}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// In one NDJSON body, on files: landing holds the text of each payload byte for byte, in order.
async fn kept_exactly(file: &PathBuf) -> Result<()> {
    let lines = read(file)?;
    let site = Site::new(
        Lab::new(Adapter::Embedded, &[], domain::LiveSettings::default())?,
        "",
    )?;
    let body = lines
        .iter()
        .map(|line| line.payload.get())
        .collect::<Vec<_>>()
        .join("\n");
    let headers = [("content-type", "application/x-ndjson")];
    let answer = site
        .send("POST", "/api/ingest/webhook/github", &headers, body)
        .await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    let got = rows::query(
        &site.lab.world,
        "SELECT _seq, payload FROM landing.github ORDER BY _seq",
    )
    .await?;
    let want = lines
        .iter()
        .enumerate()
        .map(|(at, line)| vec![json!(at + 1), json!(line.payload.get())])
        .collect();
    compare("landing.github", got, &want, &[0])
}
