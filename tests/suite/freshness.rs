//! Freshness as people see it: lag history, targets and profiles over HTTP.

use anyhow::{Context, Result, ensure};
use domain::{Duration, TableName};
use engine::profile;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{case::ModelText, site::Site};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("freshness::lag_history_is_told_over_http", lag),
        test_async("freshness::a_profile_says_what_columns_hold", profiled),
        test_async("freshness::the_runner_profiles_what_changed", by_itself),
        test_async("freshness::a_join_waits_for_the_first_rows", unfed),
    ]
}

fn live(name: &str, target: Option<&str>, sql: &str) -> ModelText {
    let mut config = json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "append",
        "incremental_filter": "WHERE _seq > {watermark}" });
    if let Some(target) = target {
        config["target_lag"] = json!(target);
    }
    ModelText {
        name: name.to_owned(),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: sql.to_owned(),
        asserts: Vec::new(),
    }
}

async fn get(site: &Site, path: &str) -> Result<Value> {
    let answer = site.send("GET", path, &[], "").await?;
    ensure!(
        answer.status == 200,
        "{path}: {} {}",
        answer.status,
        answer.text()
    );
    answer.json()
}

async fn lag() -> Result<()> {
    let model = live("silver.t", Some("2s"), "SELECT id, _seq FROM landing.t");
    let site = Site::in_memory(&[model], "")?;
    for milliseconds in [100, 300, 500] {
        site.event("t", json!({ "id": 1 }).to_string()).await?;
        site.lab.clock.advance(Duration::from_millis(milliseconds));
        // A person who asks does not wait for the target.
        engine::control::refresh_now(&site.lab.world, &"silver.t".parse()?).await?;
        site.cycle().await?;
    }
    let found = get(&site, "/api/models/silver.t/lag").await?;
    let hour = json!({ "count": 3, "p50_ms": 303, "p95_ms": 500, "max_ms": 500 });
    ensure!(found["hour"] == hour && found["day"] == hour, "{found}");
    ensure!(found["target_seconds"] == 2.0, "{found}");
    ensure!(found["minutes"][0]["seconds"] == 60, "{found}");
    let status = get(&site, "/api/live/status").await?;
    let model = &status["models"][0];
    ensure!(
        model["lag_hour"] == hour && model["target_met"] == true,
        "{model}"
    );
    let metrics = site.send("GET", "/metrics", &[], "").await?.text();
    for line in [
        "headwater_model_applied_lag_seconds{model=\"silver.t\",quantile=\"0.95\"} 0.5",
        "headwater_model_applied_lag_seconds_sum{model=\"silver.t\"} 0.9",
        "headwater_model_applied_lag_seconds_count{model=\"silver.t\"} 3",
        "headwater_model_target_lag_seconds{model=\"silver.t\"} 2",
        "headwater_model_target_met{model=\"silver.t\"} 1",
    ] {
        ensure!(
            metrics.lines().any(|said| said == line),
            "no `{line}` in\n{metrics}"
        );
    }
    for (path, status) in [("silver.none", 404), ("nonsense", 400)] {
        let answer = site
            .send("GET", &format!("/api/models/{path}/lag"), &[], "")
            .await?;
        ensure!(
            answer.status == status,
            "{path}: {} {}",
            answer.status,
            answer.text()
        );
    }
    Ok(())
}

/// A column of every kind.
const KINDS: &str = "SELECT CAST(id AS BIGINT) AS id, CASE WHEN id % 2 = 0 THEN 'even' END AS word, \
    CAST(id AS DOUBLE) / 4 AS half, CAST(id AS DECIMAL(10, 2)) AS price, id > 3 AS big, \
    to_timestamp(CAST(id AS BIGINT)) AS moment, CAST('2026-01-02' AS DATE) AS day, \
    repeat('x', 100) AS \"Long\", make_array(id) AS list, _seq FROM (SELECT n AS id, _seq FROM landing.t) AS t";

async fn profiled() -> Result<()> {
    let site = Site::in_memory(
        &[live("silver.t", None, KINDS)],
        "sources: { t: { columns: { n: BIGINT } } }",
    )?;
    let name: TableName = "silver.t".parse()?;
    ensure!(get(&site, "/api/models/silver.t").await?["profile"].is_null());
    let early = profile::now(&site.lab.world, &name).await;
    ensure!(early.is_err_and(|error| error.chain().contains("never built")));
    let nobody = profile::stored(&site.lab.world, &"silver.nobody".parse()?).await;
    ensure!(nobody.is_err_and(|error| error.kind == ports::Kind::NotFound));
    let lines: Vec<String> = (1..=8).map(|n| json!({ "n": n }).to_string()).collect();
    let headers = [("content-type", "application/x-ndjson")];
    site.send("POST", "/api/ingest/webhook/t", &headers, lines.join("\n"))
        .await?;
    site.cycle().await?;
    profile::now(&site.lab.world, &name).await?;
    let found = get(&site, "/api/models/silver.t").await?["profile"].clone();
    ensure!(
        found["rows"] == 8 && found["from_statistics"] == false,
        "{found}"
    );
    let long = format!("{}…", "x".repeat(64));
    let expected = json!([
        ["id", 0.0, "1", "8", 8],
        ["word", 0.5, "even", "even", 1],
        ["half", 0.0, "0.25", "2.0", 8],
        ["price", 0.0, "1.00", "8.00", 8],
        ["big", 0.0, "false", "true", 2],
        [
            "moment",
            0.0,
            "1970-01-01T00:00:01Z",
            "1970-01-01T00:00:08Z",
            8
        ],
        ["day", 0.0, "2026-01-02", "2026-01-02", 1],
        ["Long", 0.0, long, long, 1],
        ["list", 0.0, null, null, null],
        ["_seq", 0.0, "1", "8", 8],
    ]);
    let columns = found["columns"].as_array().context("columns")?;
    let shown: Vec<Value> = columns
        .iter()
        .map(|c| {
            json!([
                c["name"],
                c["null_fraction"],
                c["min"],
                c["max"],
                c["distinct"]
            ])
        })
        .collect();
    ensure!(
        json!(shown) == expected,
        "{}\nnot\n{expected}",
        json!(shown)
    );
    Ok(())
}

async fn by_itself() -> Result<()> {
    let model = live("silver.t", None, "SELECT n AS id, _seq FROM landing.t");
    let site = Site::in_memory(&[model], "sources: { t: { columns: { n: BIGINT } } }")?;
    let name: TableName = "silver.t".parse()?;
    site.event("t", json!({ "n": 1 }).to_string()).await?;
    site.runner.start();
    let world = &site.lab.world;
    let mut found = None;
    for _ in 0..2_000 {
        site.lab.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(2)).await;
        found = profile::stored(world, &name).await?;
        if found.is_some() {
            break;
        }
    }
    let first = found.context("no profile after more than five minutes")?;
    ensure!(first.rows == 1, "{first:?}");
    // Nothing changed: nobody looks again.
    for _ in 0..400 {
        site.lab.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let again = profile::stored(world, &name).await?;
    ensure!(again.as_ref() == Some(&first), "{again:?}");
    site.runner.stop().await;
    Ok(())
}

/// A model over one that nothing has come to yet has nothing wrong with it.
async fn unfed() -> Result<()> {
    let side = |name: &str| {
        let sql = format!("SELECT (payload->>'id')::BIGINT AS id, _seq FROM landing.{name}");
        live(&format!("silver.{name}"), None, &sql)
    };
    let config =
        json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "auto" });
    let join = ModelText {
        name: String::from("gold.j"),
        config: serde_json::from_value(config)?,
        sql: String::from("SELECT a.id FROM silver.a AS a JOIN silver.b AS b ON a.id = b.id"),
        asserts: Vec::new(),
    };
    let site = Site::in_memory(&[side("a"), side("b"), join], "")?;
    site.event("a", json!({ "id": 1 }).to_string()).await?;
    let gold: TableName = "gold.j".parse()?;
    for _ in 0..3 {
        let report = site.lab.cycle().await?;
        let how = serde_json::to_value(report.models.get(&gold).context("no gold.j")?)?;
        let reason = how["reason"].as_str().unwrap_or_default();
        ensure!(
            how["outcome"] == "held" && reason.contains("first rows of silver.b"),
            "{how}"
        );
        site.lab.clock.advance(Duration::from_secs(60));
    }
    let status = get(&site, "/api/live/status").await?;
    let models = status["models"].as_array().context("no models")?;
    let shown = models.iter().find(|model| model["model"] == "gold.j");
    let shown = shown.context("no gold.j")?;
    ensure!(
        shown["status"] == "waiting" && shown["waiting_on"] == "silver.b",
        "{shown}"
    );
    ensure!(shown["consecutive_failures"] == 0, "{shown}");
    site.event("b", json!({ "id": 1 }).to_string()).await?;
    site.cycle().await?;
    let rows = json!(site.cells("SELECT id FROM gold.j").await?);
    ensure!(rows == json!([[1]]), "{rows}");
    Ok(())
}
