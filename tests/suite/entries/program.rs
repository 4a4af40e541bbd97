//! The program itself: `headwater entries`, and a server beside it on the same registry.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{folder::Folder, program};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "entries::the_command_line_runs_lists_asks_and_evicts",
            commands,
        ),
        test_async("entries::a_large_result_takes_bounded_memory", memory),
    ]
}

/// What a command answers as JSON, after its exit code was asked for.
fn run(folder: &Folder, code: i32, arguments: &[&str]) -> Result<Value> {
    let arguments = [&["entries"], arguments, &["--json"]].concat();
    let output = program::run(folder.path(), &arguments)?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    ensure!(
        output.status.code() == Some(code),
        "{arguments:?}: {out}{err}"
    );
    serde_json::from_str(&out).with_context(|| format!("{arguments:?}: {out}{err}"))
}

async fn commands() -> Result<()> {
    let folder = Folder::new(
        "name: shop\nmaintenance:\n  enabled: false\nmaterialize:\n  grace: 0s\n",
        &[],
    )?;
    let served = program::Served::start(folder.path(), &[]).await?;
    let client = served.client();
    for n in 1..=3 {
        let answer = client
            .post("/api/ingest/webhook/orders", &json!({ "n": n }))
            .await?;
        ensure!(answer.status == 202, "{}", answer.text());
    }
    let sql = "SELECT count(*) AS n FROM landing.orders";
    let first = run(
        &folder,
        0,
        &["run", sql, "--ttl", "1h", "--key", "orders", "--on-advance"],
    )?;
    ensure!(
        first["served"] == "built" && first["entry"]["key"] == "orders",
        "{first}"
    );
    let id = first["entry"]["id"].as_str().context("no id")?.to_owned();
    let second = run(&folder, 0, &["run", sql, "--ttl", "1h", "--on-advance"])?;
    ensure!(second["served"] == "hit", "{second}");
    // The server knows it too, and computes it anew once the table has moved.
    client
        .post("/api/ingest/webhook/orders", &json!({ "n": 4 }))
        .await?;
    let body = json!({ "sql": sql, "mode": "strict", "invalidate_on": "advance" });
    let third = client.post("/api/materialize/query", &body).await?;
    ensure!(
        third.json()?["rows"] == json!([{ "n": 4 }]),
        "{}",
        third.text()
    );
    let beginning = &id[..10];
    let rows = run(
        &folder,
        0,
        &["query", beginning, "SELECT n + 1 AS m FROM this"],
    )?;
    ensure!(rows["rows"] == json!([{ "m": 5 }]), "{rows}");
    let shown = run(&folder, 0, &["show", beginning])?;
    ensure!(shown["row_count"] == 1 && shown["sql"] == sql, "{shown}");
    searched(&folder, beginning)?;
    let again = run(&folder, 0, &["refresh", beginning])?;
    ensure!(again["status"] == "rebuilt", "{again}");
    // Two generations were superseded by now.
    let swept = run(&folder, 0, &["sweep"])?;
    ensure!(swept["superseded"] == 2 && swept["evicted"] == 0, "{swept}");
    ensure!(
        run(&folder, 0, &["list"])?
            .as_array()
            .is_some_and(|all| all.len() == 1)
    );
    ensure!(run(&folder, 0, &["evict", beginning])?["status"] == "evicted");
    run(&folder, 1, &["evict", &id])?;
    run(&folder, 1, &["query", beginning, "SELECT 1"])?;
    ensure!(run(&folder, 0, &["list"])? == json!([]));
    let done = run(&folder, 0, &["reconcile"])?;
    ensure!(
        done == json!({ "deleted": 0, "lost": 0, "indexes": 0 }),
        "{done}"
    );
    let call = r#"{"name": "report", "args": [1]}"#;
    let print = run(&folder, 0, &["fingerprint", call])?;
    ensure!(
        print["fingerprint"]
            .as_str()
            .is_some_and(|text| text.len() == 64),
        "{print}"
    );
    run(
        &folder,
        2,
        &[
            "fingerprint",
            r#"{"name": "report", "args": [{"$socket": 1}]}"#,
        ],
    )?;
    Ok(())
}

/// An index is built by the command that asks for it, and outlives the process.
fn searched(folder: &Folder, counted: &str) -> Result<()> {
    let sql = "SELECT n, 'word ' || CAST(n AS VARCHAR) AS title, make_array(CAST(n AS DOUBLE), 1.0) AS v FROM generate_series(1, 20) AS t(n)";
    let made = run(folder, 0, &["run", sql, "--text", "title"])?;
    let id = made["entry"]["id"].as_str().context("no id")?.to_owned();
    let found = run(folder, 0, &["search", &id, "\"word 7\"", "--select", "n"])?;
    ensure!(
        found["rows"][0]["n"] == 7 && found["rows"].as_array().is_some_and(|rows| rows.len() == 1),
        "{found}"
    );
    run(
        folder,
        1,
        &["search", &id, "--near", "[7, 1]", "--columns", "v"],
    )?;
    let indexes = run(
        folder,
        0,
        &["index", &id, "--vector", "v", "--metric", "l2"],
    )?;
    ensure!(
        indexes["indexes"]
            .as_array()
            .is_some_and(|all| all.len() == 2),
        "{indexes}"
    );
    // The only column with vectors need not be named.
    let near = [
        "search", &id, "--near", "[7, 1]", "--filter", "n <> 7", "--limit", "1",
    ];
    let found = run(folder, 0, &near)?;
    ensure!(found["rows"][0]["n"] == 6, "{found}");
    run(
        folder,
        2,
        &["search", &id, "--near", "[7, 1", "--columns", "v"],
    )?;
    run(folder, 1, &["index", counted, "--text", "n"])?;
    run(folder, 1, &["search", &id, "word:"])?;
    ensure!(run(folder, 0, &["evict", &id])?["status"] == "evicted");
    Ok(())
}

/// A result far larger than what is held: rows are written as they come.
async fn memory() -> Result<()> {
    let folder = Folder::new("name: shop\n", &[])?;
    let served = program::Served::start(folder.path(), &[]).await?;
    let client = served.client();
    client
        .post("/api/ingest/webhook/orders", &json!({ "n": 1 }))
        .await?;
    let sql = "SELECT n, md5(CAST(n AS VARCHAR)) AS a, md5(CAST(n + 1 AS VARCHAR)) AS b FROM generate_series(1, 5000000) AS t(n)";
    let before = served.memory_peak();
    let answer = client
        .post("/api/materialize/query", &json!({ "sql": sql }))
        .await?;
    ensure!(answer.status == 200, "{}", answer.text());
    let entry = &answer.json()?["entry"];
    ensure!(entry["row_count"] == 5_000_000, "{entry}");
    if let (Some(before), Some(after)) = (before, served.memory_peak()) {
        println!(
            "{} bytes stored; memory peaked at {after}, {before} before",
            entry["byte_size"]
        );
        ensure!(after < 300 << 20, "memory peaked at {after} bytes");
    }
    let id = entry["id"].as_str().context("no id")?;
    let body = json!({ "sql": "SELECT max(n) AS n, count(DISTINCT a) > 0 AS some FROM this WHERE n > 4999990" });
    let rows = client
        .post(&format!("/api/materialize/{id}/query"), &body)
        .await?;
    ensure!(
        rows.json()?["rows"] == json!([{ "n": 5_000_000, "some": true }]),
        "{}",
        rows.text()
    );
    Ok(())
}
