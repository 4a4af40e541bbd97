//! Changes over HTTP: every form of an envelope becomes the right rows, or a refusal that stores nothing.

use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::GzEncoder};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{http::Answer, site::Site};

use crate::{bugs::merged, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("cdc_http::every_form_becomes_rows_in_order", every_form),
        test_async("cdc_http::lines_with_a_null_after_a_delete", lines),
        test_async("cdc_http::a_model_reads_the_payload", bronze),
        test_async("cdc_http::a_bad_envelope_refuses_the_body", bad_envelopes),
        test_async("cdc_http::lsn_keeps_its_type", one_type),
        test_async("cdc_http::lsn_that_is_no_bigint", text_type),
        test_async("cdc_http::a_repeat_under_a_key_stores_nothing", repeats),
        test_async("cdc_http::limits_are_those_of_webhooks", limits),
        test_async("cdc_http::settings_of_the_source_apply", settings),
    ]
}

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

async fn post(site: &Site, source: &str, kind: &str, body: impl Into<String>) -> Result<Answer> {
    let path = format!("/api/ingest/cdc/{source}");
    site.send("POST", &path, &[("content-type", kind)], body.into())
        .await
}

/// Posts and asks for 202.
async fn taken(site: &Site, source: &str, kind: &str, body: impl Into<String>) -> Result<Value> {
    let answer = post(site, source, kind, body).await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    answer.json()
}

/// Posts and asks for a problem document that says all of `words`.
async fn refused(
    site: &Site,
    (source, kind, body): (&str, &str, &str),
    status: u16,
    words: &[&str],
) -> Result<()> {
    let answer = post(site, source, kind, body).await?;
    let text = answer.text();
    ensure!(answer.status == status, "{body}: {} {text}", answer.status);
    ensure!(answer.json()?["status"] == status, "{body}: {text}");
    for word in words {
        ensure!(text.contains(word), "{body}: no `{word}` in {text}");
    }
    Ok(())
}

/// The cells of a query are these.
async fn expect(site: &Site, sql: &str, expected: Value) -> Result<()> {
    let found = json!(site.cells(sql).await.context(sql.to_owned())?);
    ensure!(found == expected, "{sql}:\n{found}\nexpected\n{expected}");
    Ok(())
}

async fn every_form() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let body = r#"[
      {"op":"I","lsn":1,"received_at":"2026-01-02T03:04:05Z","payload":{"id": 9007199254740993, "n":1.50}},
      {"before":null,"after":{"id":2,"v":"a"},"source":{"lsn":2},"op":"c","ts_ms":1},
      {"schema":{"type":"struct"},"payload":{"before":null,"after":{"id":2,"v":"__debezium_unavailable_value"},"source":{"lsn":"0/3"},"op":"u"}},
      {"before":{"id":2,"v":"a"},"after":{"id":7,"v":"a"},"source":{"lsn":4},"op":"u"},
      {"ts_ms":5},
      {"before":null,"after":{"id":3},"source":{"lsn":5},"op":"r"},
      {"before":{"id":3},"after":null,"source":{"lsn":6},"op":"d"},
      null,
      {"op":"m","source":{"lsn":7},"message":{"prefix":"x","content":""}},
      {"op":"t","before":null,"after":null,"source":{"lsn":8}}
    ]"#;
    let answer = taken(&site, "orders", JSON, body).await?;
    let expected = json!({"status": "committed", "source": "orders", "sequence_from": 1, "sequence_to": 8,
        "rows": 8, "quarantined": 0, "duplicate": false, "ignored": 3});
    ensure!(answer == expected, "{answer}");
    expect(
        &site,
        "SELECT op, lsn, payload, unavailable, _seq FROM landing.orders ORDER BY _seq",
        json!([
            ["I", 1, r#"{"id": 9007199254740993, "n":1.50}"#, null, 1],
            ["I", 2, r#"{"id":2,"v":"a"}"#, null, 2],
            [
                "U",
                3,
                r#"{"id":2,"v":"__debezium_unavailable_value"}"#,
                "[\"v\"]",
                3
            ],
            ["D", 4, r#"{"id":2,"v":"a"}"#, null, 4],
            ["U", 4, r#"{"id":7,"v":"a"}"#, null, 5],
            ["R", 5, r#"{"id":3}"#, null, 6],
            ["D", 6, r#"{"id":3}"#, null, 7],
            ["T", 8, null, null, 8],
        ]),
    )
    .await?;
    expect(
        &site,
        "SELECT COUNT(*) FROM landing.orders WHERE received_at = TIMESTAMP '2026-01-02T03:04:05'",
        json!([[1]]),
    )
    .await?;
    expect(
        &site,
        "SELECT COUNT(*) FROM landing.orders WHERE received_at IS NULL",
        json!([[0]]),
    )
    .await
}

async fn lines() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let body = "{\"op\":\"d\",\"before\":{\"id\":1},\"source\":{\"lsn\":5}}\r\nnull\n\n[{\"op\":\"I\",\"lsn\":6,\"payload\":{}}]\n";
    let answer = taken(&site, "x", NDJSON, body).await?;
    ensure!(
        answer["rows"] == 2 && answer["ignored"] == 1 && answer["quarantined"] == 0,
        "{answer}"
    );
    // Nothing to store is no table and no sequence.
    for body in ["null", "[]", r#"{"ts_ms":1}"#] {
        let answer = taken(&site, "y", JSON, body).await?;
        ensure!(
            answer["rows"] == 0 && answer["sequence_from"] == 0 && answer["sequence_to"] == 0,
            "{answer}"
        );
    }
    ensure!(
        site.query("SELECT 1 AS n FROM landing.y").await?.status != 200
            || site.cells("SELECT 1 AS n FROM landing.y").await?.is_empty(),
        "rows out of nothing"
    );
    Ok(())
}

async fn bronze() -> Result<()> {
    let sql = "SELECT payload->>'id' AS id, payload->>'n' AS n, op, lsn, _seq FROM landing.orders";
    let site = Site::in_memory(&[merged("bronze.orders", "id", sql)], "")?;
    let insert = r#"{"op":"I","lsn":1,"payload":{"id":9007199254740993,"n":1.50}}"#;
    taken(&site, "orders", JSON, insert).await?;
    site.cycle().await?;
    let update = r#"{"op":"u","before":{"id":9007199254740993,"n":1.50},"after":{"id":9007199254740995,"n":0.1000000000000000055},"source":{"lsn":2}}"#;
    taken(&site, "orders", JSON, update).await?;
    site.cycle().await?;
    expect(
        &site,
        "SELECT id, n, op, lsn FROM bronze.orders ORDER BY id",
        json!([
            ["9007199254740993", "1.50", "D", 2],
            ["9007199254740995", "0.1000000000000000055", "U", 2],
        ]),
    )
    .await
}

async fn bad_envelopes() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let good = r#"{"op":"I","lsn":1,"payload":{"id":1}}"#;
    for (bad, words) in [
        (r#"{"op":"U","payload":{"id":2}}"#, ["`lsn`", "missing"]),
        (
            r#"{"op":"U","lsn":null,"payload":{"id":2}}"#,
            ["`lsn`", "missing"],
        ),
        (
            r#"{"op":"U","lsn":"abc","payload":{"id":2}}"#,
            ["`lsn`", "abc"],
        ),
        (
            r#"{"op":"?","lsn":2,"payload":{"id":2}}"#,
            ["`op`", "known are"],
        ),
        (
            r#"{"op":"U","lsn":2,"payload":[1]}"#,
            ["`payload`", "object"],
        ),
        (
            r#"{"op":"d","before":null,"source":{"lsn":2}}"#,
            ["`before`", "key"],
        ),
        (
            r#"{"schema":{},"payload":{"op":"c","source":{"lsn":2}}}"#,
            ["`payload.after`", "missing"],
        ),
        (r#"{"id":2,"status":"flat"}"#, ["`op`", "missing"]),
        (
            r#"{"op":"U","lsn":"2026-01-01T00:00:00Z","payload":{"id":2}}"#,
            ["2026-01-01", "order"],
        ),
        ("17", ["envelope", "no object"]),
    ] {
        let array = format!("[{good},{bad},{good}]");
        let mut all = words.to_vec();
        all.push("envelope 2 of 3");
        refused(&site, ("x", JSON, &array), 422, &all).await?;
        let lines = format!("{good}\n\n{bad}\n");
        all.truncate(words.len());
        all.push("envelope 2 of 2 (line 3)");
        refused(&site, ("x", NDJSON, &lines), 422, &all).await?;
    }
    refused(&site, ("x", JSON, "[{\"op\":\n  I}]"), 400, &["line 2"]).await?;
    refused(&site, ("x", NDJSON, "\n"), 400, &["empty"]).await?;
    let answer = taken(&site, "x", JSON, good).await?;
    ensure!(
        answer["sequence_from"] == 1,
        "something was stored: {answer}"
    );
    Ok(())
}

async fn one_type() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let change = |lsn: &str| format!(r#"{{"op":"I","lsn":{lsn},"payload":{{}}}}"#);
    taken(&site, "x", JSON, change("10")).await?;
    for lsn in ["\"9\"", "\"0/B\"", "9223372036854775807"] {
        taken(&site, "x", JSON, change(lsn)).await?;
    }
    for lsn in ["9223372036854775808", "\"2026-01-01\""] {
        refused(
            &site,
            ("x", JSON, &change(lsn)),
            422,
            &["lsn", "landing.x", "numbers"],
        )
        .await?;
    }
    expect(
        &site,
        "SELECT lsn FROM landing.x ORDER BY lsn",
        json!([[9], [10], [11], [9_223_372_036_854_775_807_i64]]),
    )
    .await?;
    // A table of something else.
    let ours = "sources:\n  y:\n    columns:\n      lsn: DOUBLE\n";
    let site = Site::in_memory(&[], ours)?;
    site.event("y", r#"{"lsn":1.5}"#).await?;
    refused(&site, ("y", JSON, &change("1")), 503, &["lsn"]).await
}

async fn text_type() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let change = |lsn: &str| format!(r#"{{"op":"I","lsn":{lsn},"payload":{{}}}}"#);
    taken(&site, "x", JSON, change("18446744073709551616")).await?;
    taken(&site, "x", JSON, change("5")).await?;
    let sql_server = r#"{"op":"c","after":{},"source":{"change_lsn":"000F0027:00000758:0005","commit_lsn":"000F0027:00000758:0006"}}"#;
    taken(&site, "x", JSON, sql_server).await?;
    expect(
        &site,
        "SELECT lsn::VARCHAR FROM landing.x ORDER BY _seq",
        json!([
            ["18446744073709551616"],
            ["5"],
            [0x000F_0027_0000_0758_0005_i128.to_string()]
        ]),
    )
    .await?;
    let moment = "2026-01-01T00:00:00.123456789+02:00";
    taken(&site, "y", JSON, change(&format!("\"{moment}\""))).await?;
    expect(&site, "SELECT lsn FROM landing.y", json!([[moment]])).await
}

async fn repeats() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let body =
        r#"[{"op":"I","lsn":1,"payload":{"id":1}},null,{"op":"I","lsn":2,"payload":{"id":2}}]"#;
    let headers = [("content-type", JSON), ("idempotency-key", "k1")];
    for duplicate in [false, true] {
        let answer = site
            .send("POST", "/api/ingest/cdc/x", &headers, body)
            .await?;
        ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
        let answer = answer.json()?;
        ensure!(
            answer["duplicate"] == duplicate
                && answer["sequence_from"] == 1
                && answer["sequence_to"] == 2,
            "{answer}"
        );
    }
    expect(&site, "SELECT COUNT(*) FROM landing.x", json!([[2]])).await
}

async fn limits() -> Result<()> {
    let site = Site::in_memory(&[], "sources:\n  small:\n    body_max: 1000\n")?;
    let body = json!({ "op": "I", "lsn": 1, "payload": { "text": "x".repeat(5_000) } }).to_string();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body.as_bytes())?;
    let gzip = gzip.finish()?;
    let headers = [("content-type", JSON), ("content-encoding", "gzip")];
    let answer = site
        .send("POST", "/api/ingest/cdc/small", &headers, gzip.clone())
        .await?;
    ensure!(
        answer.status == 413 && answer.text().contains("1000"),
        "{} {}",
        answer.status,
        answer.text()
    );
    let answer = site
        .send("POST", "/api/ingest/cdc/x", &headers, gzip)
        .await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    refused(&site, ("or-ders", JSON, &body), 400, &["identifier"]).await?;
    let deep = format!(
        r#"{{"op":"I","lsn":1,"payload":{{"a":{}{}}}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    refused(&site, ("x", JSON, &deep), 400, &["128 levels"]).await
}

async fn settings() -> Result<()> {
    let ours = "sources:\n  x:\n    lsn: source.ts_ms\n    key: shop, sku\n    headers:\n      X-Shard: shard\n    columns:\n      n: BIGINT\n  clash:\n    headers:\n      X-Op: op\n";
    let site = Site::in_memory(&[], ours)?;
    let body = r#"[{"op":"u","before":{"shop":1,"sku":"a","n":1},"after":{"shop":1,"sku":"b","n":2},"source":{"ts_ms":7,"lsn":1}},
        {"op":"t","source":{"ts_ms":8}}]"#;
    let headers = [("content-type", JSON), ("x-shard", "s1")];
    let answer = site
        .send("POST", "/api/ingest/cdc/x", &headers, body)
        .await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    expect(
        &site,
        "SELECT op, lsn, shard, n FROM landing.x ORDER BY _seq",
        json!([["D", 7, "s1", 1], ["U", 7, "s1", 2], ["T", 8, "s1", null]]),
    )
    .await?;
    let misfit =
        r#"[null,{"op":"c","after":{"shop":1,"sku":"c","n":"many"},"source":{"ts_ms":9}}]"#;
    refused(
        &site,
        ("x", JSON, misfit),
        422,
        &["envelope 2 of 2", "`n`", "many"],
    )
    .await?;
    let change = r#"{"op":"I","lsn":1,"payload":{}}"#;
    refused(
        &site,
        ("x", JSON, change),
        422,
        &["`source.ts_ms`", "missing"],
    )
    .await?;
    refused(
        &site,
        ("clash", JSON, change),
        503,
        &["`op`", "another name"],
    )
    .await
}
