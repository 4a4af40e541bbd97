//! Settings of sources that do not fit what has landed: whoever can mend them is told where, and senders are told to wait.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Result, anyhow, ensure};
use libtest_mimic::Trial;
use serde_json::json;
use settings::Settings;
use tests::{
    folder::Folder,
    program::{self, Served},
    site::Site,
    world::Lab,
};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("sources::a_sender_waits_for_settings_that_fit", waits),
        test_async("sources::changes_wait_for_settings_that_fit", changes),
        test_async("sources::validate_and_serve_name_the_line", told),
    ]
}

const NUMBER: &str = "sources:\n  o:\n    columns:\n      a: BIGINT\n";
const TEXT: &str = "sources:\n  o:\n    columns:\n      a: VARCHAR\n";
const CASE: &str = "sources:\n  o:\n    columns:\n      A: BIGINT\n";
const HEADER: &str = "sources:\n  o:\n    headers:\n      X-A: a\n";

/// Sites over one state and one store of objects, each under its own settings.
struct Sites {
    state: Arc<dyn ports::State>,
    objects: ports::Objects,
}

impl Sites {
    fn new() -> Self {
        Self {
            state: Arc::new(testkit::MemoryState::new()),
            objects: Arc::new(object_store::memory::InMemory::new()),
        }
    }

    fn under(&self, settings: &str) -> Result<Site> {
        let (state, objects) = (self.state.clone(), self.objects.clone());
        let live = domain::LiveSettings::default();
        let lab = Lab::on(state, objects, "memory:///", None, &[], live)?;
        Site::new(lab, settings)
    }
}

async fn complaints(site: &Site, settings: &str) -> Result<Vec<String>> {
    let settings = Settings::parse("project".as_ref(), settings, &BTreeMap::new())
        .map_err(|all| anyhow!("settings: {all:?}"))?;
    let found = engine::sources::check(&site.lab.world, &settings).await?;
    Ok(found.iter().map(ToString::to_string).collect())
}

async fn waits() -> Result<()> {
    let sites = Sites::new();
    let first = sites.under(NUMBER)?;
    ensure!(complaints(&first, TEXT).await?.is_empty(), "nothing landed");
    first.event("o", r#"{"a":1}"#).await?;
    ensure!(complaints(&first, NUMBER).await?.is_empty(), "it fits");
    for (settings, place) in [
        (
            TEXT,
            "headwater.yml:4:7: column `a` is VARCHAR here and BIGINT in `landing.o`",
        ),
        (CASE, "headwater.yml:4:7: column `A` is `a` in `landing.o`"),
        (
            HEADER,
            "headwater.yml:4:12: column `a` is VARCHAR here and BIGINT in `landing.o`",
        ),
    ] {
        let site = sites.under(settings)?;
        let answer = site.webhook("o", r#"{"a":2,"A":3}"#).await?;
        ensure!(
            answer.status == 503,
            "{settings}: {} {}",
            answer.status,
            answer.text()
        );
        ensure!(
            answer.text().contains(place),
            "{settings}: {}",
            answer.text()
        );
        let found = complaints(&site, settings).await?;
        ensure!(found.len() == 1 && found[0].starts_with(place), "{found:?}");
    }
    // A column that goes from the settings is NULL from then on, and others have nothing to do with it.
    sites.under("")?.event("o", r#"{"a":4}"#).await?;
    sites.under(TEXT)?.event("p", r#"{"a":5}"#).await?;
    let rows = first.cells("SELECT a FROM landing.o ORDER BY _seq").await?;
    ensure!(json!(rows) == json!([[1], [null]]), "{rows:?}");
    Ok(())
}

async fn changes() -> Result<()> {
    let sites = Sites::new();
    let body = r#"{"op":"I","lsn":1,"payload":{"a":1}}"#;
    let send = async |site: &Site| {
        let headers = [("content-type", "application/json")];
        site.send("POST", "/api/ingest/cdc/o", &headers, body).await
    };
    let answer = send(&sites.under(NUMBER)?).await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    for settings in [
        TEXT,
        CASE,
        "sources:\n  o:\n    columns:\n      op: VARCHAR\n",
    ] {
        let answer = send(&sites.under(settings)?).await?;
        ensure!(
            answer.status == 503,
            "{settings}: {} {}",
            answer.status,
            answer.text()
        );
        let found = complaints(&sites.under(settings)?, settings).await?;
        ensure!(
            found.len() == 1 && found[0].starts_with("headwater.yml:4:7: "),
            "{settings}: {found:?}"
        );
    }
    // What a sender can mend stays theirs.
    let answer = sites.under(NUMBER)?.webhook("o", "{}").await?;
    ensure!(answer.status == 400, "{} {}", answer.status, answer.text());
    Ok(())
}

async fn told() -> Result<()> {
    let folder = Folder::new(NUMBER, &[])?;
    let served = Served::start(folder.path(), &[]).await?;
    let answer = served
        .client()
        .post("/api/ingest/webhook/o", &json!({ "a": 1 }))
        .await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    served.kill()?;
    folder.write("headwater.yml", TEXT)?;
    let output = program::run(folder.path(), &["validate"])?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(1) && said.contains("headwater.yml:4:7: error: column `a`"),
        "{said}"
    );
    let started = Served::start(folder.path(), &[]).await;
    ensure!(
        started.is_err(),
        "it serves what every sender is refused by"
    );
    folder.write("headwater.yml", NUMBER)?;
    let output = program::run(folder.path(), &["validate"])?;
    ensure!(output.status.success(), "{output:?}");
    Served::start(folder.path(), &[]).await?.kill()
}
