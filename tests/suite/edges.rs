//! What happens around a program, and not in it: streams that break, files that vanish, clients that do nothing.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use tests::{
    case::ModelText,
    folder::Folder,
    program::{self, Served},
};

use crate::{bugs::merged, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![test_async(
        "edges::a_program_goes_on_when_nobody_reads_its_stderr",
        unheard,
    )]
}

/// Longest wait for something that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The events of a source as they came.
fn bronze() -> ModelText {
    let sql = "SELECT (payload->>'id')::BIGINT AS id, _seq FROM landing.ev";
    merged("bronze.ev", "id", sql)
}

/// Asks until the answer is as it should be.
async fn eventually<F: Future<Output = Result<bool>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> Result<()> {
    let began = Instant::now();
    while !ask().await? {
        ensure!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn unheard() -> Result<()> {
    let folder = Folder::with_models("", &[bronze()])?;
    let server = Served::start_unheard(folder.path(), &[("HEADWATER_LOG", "debug")]).await?;
    let client = server.client();
    for number in 1..=3 {
        let event = format!("{{\"id\": {number}}}");
        let headers = [("content-type", "application/json")];
        let answer = client
            .send("POST", "/api/ingest/webhook/ev", &headers, event)
            .await?;
        ensure!(answer.status == 202, "{}", answer.text());
        eventually("the event in its model", || async {
            let sql = "SELECT count(*) AS n FROM bronze.ev";
            let rows = client.query(sql).await.unwrap_or_default();
            Ok(rows.first().is_some_and(|row| row["n"] == number))
        })
        .await?;
    }
    let health = client.get("/healthz").await?;
    ensure!(health.status == 200, "{}", health.text());
    let status = client.get("/api/live/status").await?.json()?;
    ensure!(status["runner"]["last_error"].is_null(), "{status}");
    // Commands that fail say so by their exit code, heard or not.
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    for flags in [&["query", "SELEKT"][..], &["--json", "query", "SELEKT"]] {
        let ended = program::command()?
            .arg("--project")
            .arg(folder.path())
            .args(flags)
            .stdout(writer.try_clone()?)
            .stderr(writer.try_clone()?)
            .status()?;
        ensure!(ended.code() == Some(1), "{flags:?}: {ended}");
    }
    Ok(())
}
