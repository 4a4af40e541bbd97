//! What happens around a program, and not in it: streams that break, files that vanish, clients that do nothing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use tests::{
    case::ModelText,
    folder::Folder,
    program::{self, Served},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{bugs::merged, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "edges::a_program_goes_on_when_nobody_reads_its_stderr",
            unheard,
        ),
        test_async(
            "edges::a_state_that_lost_its_log_is_not_begun_anew",
            lost_log,
        ),
        test_async("edges::half_a_header_hinders_nobody_else", half_headers),
        test_async("edges::answers_that_nobody_reads_hold_little", unread),
    ]
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

/// Kills a server whose state is in its log, and takes the log away.
async fn lost_log() -> Result<()> {
    let folder = Folder::with_models("", &[bronze()])?;
    let server = Served::start(folder.path(), &[]).await?;
    let client = server.client();
    let headers = [("content-type", "application/json")];
    let path = "/api/ingest/webhook/ev";
    let answer = client.send("POST", path, &headers, "{\"id\": 1}").await?;
    ensure!(answer.status == 202, "{}", answer.text());
    eventually("the event in its model", || async {
        Ok(client.query("SELECT id FROM bronze.ev").await.is_ok())
    })
    .await?;
    server.kill()?;
    let state = folder.path().join(".headwater");
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(state.join(format!("state.db{end}")))?;
    }
    let count = ["--json", "query", "SELECT count(*) AS n FROM landing.ev"];
    // Looking at it twice changes nothing.
    for _ in 0..2 {
        for arguments in [&count[..], &["run"], &["maintain"]] {
            let ended = program::run(folder.path(), arguments)?;
            let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
            ensure!(
                ended.status.code() == Some(1) && said.contains("-wal"),
                "{arguments:?}: {} {said}",
                ended.status
            );
        }
    }
    // Begun anew on purpose, it works.
    std::fs::rename(state, folder.path().join("old"))?;
    let ended = program::run(folder.path(), &["maintain"])?;
    ensure!(ended.status.success(), "{ended:?}");
    Ok(())
}

/// More of them than a server has connections: each newcomer takes the place of the oldest.
async fn half_headers() -> Result<()> {
    let folder = Folder::with_models("", &[bronze()])?;
    let server = Served::start(folder.path(), &[]).await?;
    let mut halves = Vec::new();
    for _ in 0..700 {
        let mut half = TcpStream::connect(&server.address).await?;
        half.write_all(b"GET /healthz HTTP/1.1\r\nhost: local")
            .await?;
        halves.push(half);
        if halves.len() % 100 == 0 {
            let answer = timeout(PATIENCE, server.client().get("/healthz")).await;
            let status = answer.context("no answer")??.status;
            ensure!(status == 200, "{status} beside {}", halves.len());
        }
    }
    // Those that were there first have gone.
    let mut rest = Vec::new();
    let closed = timeout(PATIENCE, halves[0].read_to_end(&mut rest)).await;
    ensure!(closed.is_ok(), "it is still there");
    Ok(())
}

/// Each answer is far larger than what may be held of it.
async fn unread() -> Result<()> {
    const READERS: usize = 8;
    let folder = Folder::with_models("query: { memory: 64MB }", &[bronze()])?;
    let server = Served::start(folder.path(), &[]).await?;
    let client = server.client();
    // As many rows at a time as a file has, each of which becomes a long one.
    for part in 0..11 {
        let rows = (0..8_000).map(|row| format!("{{\"id\":{}}}\n", part * 8_000 + row));
        let headers = [("content-type", "application/x-ndjson")];
        let path = "/api/ingest/webhook/ev";
        let answer = client
            .send("POST", path, &headers, rows.collect::<String>())
            .await?;
        ensure!(answer.status == 202, "{}", answer.text());
    }
    let before = server.memory_peak();
    let sql = "SELECT payload->>'id' AS id, repeat('x', 2000) AS text FROM landing.ev";
    let body = serde_json::json!({ "sql": sql }).to_string();
    let request = format!(
        "POST /api/query HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut reader = TcpStream::connect(&server.address).await?;
        reader.write_all(request.as_bytes()).await?;
        // The answer has begun, and so all of it that is held is there.
        let mut first = [0; 15];
        timeout(PATIENCE * 3, reader.read_exact(&mut first)).await??;
        ensure!(
            &first == b"HTTP/1.1 200 OK",
            "{}",
            String::from_utf8_lossy(&first)
        );
        readers.push(reader);
    }
    ensure!(client.get("/healthz").await?.status == 200);
    if let (Some(before), Some(peak)) = (before, server.memory_peak()) {
        let each = peak.saturating_sub(before) / READERS as u64;
        ensure!(each < 80 << 20, "{each} bytes for each answer");
    }
    // One that is read after all comes whole.
    let mut all = Vec::new();
    let mut piece = vec![0; 1 << 20];
    while !all.ends_with(b"\"row_count\":88000}\n\r\n0\r\n\r\n") {
        let count = timeout(PATIENCE, readers[0].read(&mut piece)).await??;
        ensure!(count > 0, "it was cut after {} bytes", all.len());
        all.extend_from_slice(&piece[..count]);
        if all.len() > 1 << 20 {
            all.drain(..all.len() - 100);
        }
    }
    Ok(())
}
