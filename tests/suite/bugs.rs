//! Bugs that others had, fed in from outside: request bodies in, SQL out. Numbers are those of the list of public
//! reports that this program was built against.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{
    case::ModelText,
    rows::{self, compare},
    site::Site,
};

use crate::plain::test_async;

/// Limits must answer long before anything runs; far above what they need, far below what a query would take.
const ANSWER_MAX: std::time::Duration = std::time::Duration::from_secs(2);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("bugs::n01_null_in_a_merge_key_is_one_row", null_keys),
        test_async("bugs::n41_integers_beyond_2_to_53_stay_exact", big_integers),
        test_async("bugs::n43_a_fraction_is_not_an_integer", fractions),
        test_async(
            "bugs::n45_deep_or_long_sql_is_refused_and_the_process_lives",
            deep_sql,
        ),
        test_async(
            "bugs::n45_deep_json_is_refused_and_the_process_lives",
            deep_json,
        ),
        test_async("bugs::n49_case_of_column_names", column_case),
        test_async("bugs::n53_nan_rows_do_not_vanish", nan_rows),
        test_async("bugs::n53_nan_and_negative_zero_are_one_key_each", nan_keys),
        test_async("bugs::n55_a_leap_second_keeps_its_order", leap_seconds),
        test_async(
            "bugs::n57_a_5_mb_event_lands_and_a_larger_one_is_told_the_limit",
            large_events,
        ),
    ]
}

/// A live model that merges on `key`.
pub(crate) fn merged(name: &str, key: &str, sql: &str) -> ModelText {
    let config = json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "merge",
        "unique_key": key, "incremental_filter": "WHERE _seq > {watermark}" });
    let config = serde_json::from_value(config).unwrap_or_default();
    ModelText {
        name: name.to_owned(),
        config,
        sql: sql.to_owned(),
        asserts: Vec::new(),
    }
}

async fn null_keys() -> Result<()> {
    let sql = "SELECT payload->>'a' AS a, payload->>'b' AS b, (payload->>'v')::BIGINT AS v, _seq FROM landing.x";
    let site = Site::in_memory(&[merged("silver.x", "a, b", sql)], "")?;
    for body in [r#"{"a":1,"b":null,"v":1}"#, r#"{"a":1,"b":null,"v":2}"#] {
        site.event("x", body).await?;
        site.cycle().await?;
    }
    compare(
        "silver.x",
        site.cells("SELECT a, b, v FROM silver.x").await?,
        &vec![vec![json!("1"), Value::Null, json!(2)]],
        &[],
    )
}

async fn big_integers() -> Result<()> {
    let body = r#"{"id":9007199254740993,"u":18446744073709551615,"n":-9223372036854775808,"big":123456789012345678901234567890,"d":0.1000000000000000055}"#;
    let sql = "SELECT (payload->>'id')::BIGINT AS id, (payload->>'n')::BIGINT AS n, payload->>'u' AS u, \
               payload->>'big' AS big, payload->>'d' AS d, payload, _seq FROM landing.x";
    let settings = "sources:\n  x:\n    columns:\n      n: BIGINT\n";
    let site = Site::in_memory(&[merged("silver.x", "id", sql)], settings)?;
    site.event("x", body).await?;
    site.cycle().await?;
    let read = "SELECT s.id, s.n, s.u, s.big, s.payload, l.n AS typed FROM silver.x s JOIN landing.x l ON s._seq = l._seq";
    let got = site.cells(read).await?;
    let want = vec![vec![
        json!(9_007_199_254_740_993_i64),
        json!(i64::MIN),
        json!("18446744073709551615"),
        json!("123456789012345678901234567890"),
        json!(body),
        json!(i64::MIN),
    ]];
    compare("silver.x", got, &want, &[])?;
    let typed = site
        .cells("SELECT CAST(id AS VARCHAR) FROM silver.x")
        .await?;
    compare(
        "as text",
        typed,
        &vec![vec![json!("9007199254740993")]],
        &[],
    )?;
    let answer = site.query("SELECT id, n FROM silver.x").await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    for digits in ["9007199254740993", "-9223372036854775808"] {
        ensure!(
            answer.text().contains(digits),
            "{digits} is rounded in {}",
            answer.text()
        );
    }
    Ok(())
}

async fn fractions() -> Result<()> {
    let settings = "sources:\n  x:\n    columns:\n      n: BIGINT\n";
    let site = Site::in_memory(&[], settings)?;
    let values = [r#""42""#, "5.7", "1e3", "true", r#""""#, r#"" 7""#, "null"];
    let mut stored = 0;
    for value in values {
        let answer = site.webhook("x", format!(r#"{{"n":{value}}}"#)).await?;
        ensure!(
            answer.status < 500,
            "{value}: {} {}",
            answer.status,
            answer.text()
        );
        if answer.status == 202 {
            stored += answer.json()?["rows"].as_u64().unwrap_or(0);
        }
    }
    let missing = site.event("x", "{}").await?;
    stored += missing["rows"].as_u64().unwrap_or(0);
    let landed = site.cells("SELECT payload, n FROM landing.x").await?;
    ensure!(
        landed.len() as u64 == stored,
        "{stored} acknowledged, {} there: {landed:?}",
        landed.len()
    );
    for row in &landed {
        let payload: Value = serde_json::from_str(row[0].as_str().context("payload")?)?;
        // Whatever reached the typed column says the same as the payload: no fraction was cut, no word became a number.
        match (&payload["n"], &row[1]) {
            (Value::Null, Value::Null) => {}
            (Value::Number(sent), got) => {
                ensure!(sent.as_f64() == got.as_f64(), "{sent} became {got}")
            }
            (Value::String(sent), got) => {
                ensure!(
                    sent.trim().parse::<i64>().ok() == got.as_i64(),
                    "`{sent}` became {got}"
                );
            }
            (sent, got) => anyhow::bail!("{sent} became {got}"),
        }
    }
    // Missing and null are told apart by the payload, which is kept exactly as sent.
    ensure!(landed.iter().any(|row| row[0] == "{}"), "{landed:?}");
    ensure!(
        landed.iter().any(|row| row[0] == r#"{"n":null}"#),
        "{landed:?}"
    );
    for refused in ["5.7", "true"] {
        let sent = format!(r#"{{"n":{refused}}}"#);
        ensure!(
            landed.iter().all(|row| row[0] != *sent),
            "{refused} is in a BIGINT column's table"
        );
    }
    let kept = site
        .cells("SELECT payload FROM quarantine.x ORDER BY payload")
        .await?;
    let want = [r#"{"n":""}"#, r#"{"n":5.7}"#, r#"{"n":true}"#].map(|sent| vec![json!(sent)]);
    compare("quarantine.x", kept, &want.to_vec(), &[])
}

/// Statements beyond the limits.
pub(crate) fn hostile_statements() -> Vec<(&'static str, String)> {
    vec![
        (
            "2,000 additions",
            format!("SELECT 1{} AS n", "+1".repeat(2_000)),
        ),
        (
            "20,000 OR terms",
            format!(
                "SELECT 1 AS n FROM landing.x WHERE _seq = 0{}",
                " OR _seq = 1".repeat(20_000)
            ),
        ),
        (
            "500 parentheses",
            format!("SELECT {}1{} AS n", "(".repeat(500), ")".repeat(500)),
        ),
        (
            "3,000 unions",
            format!("SELECT 1 AS n{}", " UNION ALL SELECT 1".repeat(3_000)),
        ),
    ]
}

async fn deep_sql() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    site.event("x", "{}").await?;
    for (what, sql) in hostile_statements() {
        let started = std::time::Instant::now();
        let answer = site.query(&sql).await?;
        ensure!(
            started.elapsed() < ANSWER_MAX,
            "{what} took {:?}",
            started.elapsed()
        );
        let text = answer.text();
        ensure!(
            answer.status == 400,
            "{what}: {} {:.200}",
            answer.status,
            text
        );
        ensure!(
            text.chars().any(|c| c.is_ascii_digit()),
            "{what} names no limit: {text:.300}"
        );
    }
    let after = site.query("SELECT 1 AS n").await?;
    ensure!(after.status == 200, "{} {}", after.status, after.text());
    Ok(())
}

async fn deep_json() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    for body in [
        "[".repeat(10_000),
        format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
        r#"{"a":"#.repeat(10_000),
    ] {
        let answer = site.webhook("x", body).await?;
        ensure!(answer.status == 400, "{} {}", answer.status, answer.text());
    }
    let accepted = site.event("x", r#"{"fine":true}"#).await?;
    ensure!(accepted["sequence_to"] == 1, "{accepted}");
    Ok(())
}

async fn column_case() -> Result<()> {
    let sql = "SELECT userId, A, _seq FROM landing.x";
    let site = Site::in_memory(&[merged("silver.x", "userId", sql)], "")?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x.ndjson");
    std::fs::write(&path, r#"{"userId":1,"A":"x","B":"y","b":"z"}"#)?;
    let landing = tests::world::table("landing.x")?;
    engine::ingest::file(&site.lab.world, &landing, &path, None, &|_| ())
        .await
        .map_err(|e| rows::chain(&e))?;
    site.cycle().await?;
    let unquoted = site
        .cells("SELECT userId, USERID AS u, A, a AS x FROM silver.x")
        .await?;
    compare(
        "unquoted",
        unquoted,
        &vec![vec![json!(1), json!(1), json!("x"), json!("x")]],
        &[],
    )?;
    let quoted = site
        .cells(r#"SELECT "userId", "A", "B", "b" FROM landing.x"#)
        .await?;
    let want = vec![vec![json!(1), json!("x"), json!("y"), json!("z")]];
    compare("all four", quoted, &want, &[])?;
    let ambiguous = site.query("SELECT B FROM landing.x").await?;
    let (status, text) = (ambiguous.status, ambiguous.text());
    ensure!(status == 400, "{status} {text}");
    ensure!(
        text.contains("\\\"B\\\"") || text.contains('`'),
        "no hint in {text}"
    );
    Ok(())
}

/// A site with doubles in `landing.x`, which JSON could not carry.
async fn doubles(models: &[ModelText], batches: &[&[(i64, f64)]]) -> Result<Site> {
    let site = Site::in_memory(models, "")?;
    for batch in batches {
        let columns = vec![
            ("k".to_owned(), "BIGINT".to_owned()),
            ("x".to_owned(), "DOUBLE".to_owned()),
        ];
        let cells = batch
            .iter()
            .map(|(k, x)| vec![json!(k), json!(format!("{x:?}"))])
            .collect();
        let append = ports::landing::Append {
            table: tests::world::table("landing.x")?,
            rows: rows::batch(&columns, &cells)?,
            origin_at: site.lab.world.clock.now(),
            key: None,
        };
        site.lab
            .world
            .landing
            .append(append)
            .await
            .map_err(|e| rows::chain(&e))?;
        site.cycle().await?;
    }
    Ok(site)
}

async fn nan_rows() -> Result<()> {
    let model = merged("silver.x", "k", "SELECT k, x, _seq FROM landing.x");
    let first: &[(i64, f64)] = &[(1, 3.0), (2, f64::NAN), (3, 3.0)];
    let site = doubles(std::slice::from_ref(&model), &[first]).await?;
    for table in ["landing.x", "silver.x"] {
        let got = site
            .cells(&format!("SELECT COUNT(*) FROM {table} WHERE x <> 3.0"))
            .await?;
        compare(table, got, &vec![vec![json!(1)]], &[])?;
    }
    let site = doubles(&[model], &[&[(1, 1.0), (2, f64::NAN)]]).await?;
    for table in ["landing.x", "silver.x"] {
        let got = site
            .cells(&format!("SELECT COUNT(*) FROM {table} WHERE x > 2.0"))
            .await?;
        compare(table, got, &vec![vec![json!(1)]], &[])?;
    }
    Ok(())
}

async fn nan_keys() -> Result<()> {
    let model = merged("silver.x", "x", "SELECT k, x, _seq FROM landing.x");
    let batches: [&[(i64, f64)]; 2] = [&[(1, f64::NAN), (2, 0.0)], &[(3, f64::NAN), (4, -0.0)]];
    let site = doubles(&[model], &batches).await?;
    compare(
        "silver.x",
        site.cells("SELECT k FROM silver.x").await?,
        &vec![vec![json!(3)], vec![json!(4)]],
        &[],
    )
}

async fn leap_seconds() -> Result<()> {
    let settings = "sources:\n  x:\n    columns:\n      at: TIMESTAMP\n";
    let site = Site::in_memory(&[], settings)?;
    let sent = [
        "2016-12-31T23:59:59.9Z",
        "2016-12-31T23:59:60Z",
        "2016-12-31T15:59:60-08:00",
        "2017-01-01t00:00:00z",
        "2017-01-01T00:00:01+00:00",
        "2023-12-11T11:31:60Z",
    ];
    let lines: Vec<String> = sent
        .iter()
        .map(|at| json!({ "at": at }).to_string())
        .collect();
    let headers = [("content-type", "application/x-ndjson")];
    let answer = site
        .send("POST", "/api/ingest/webhook/x", &headers, lines.join("\n"))
        .await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    let sql = "SELECT CAST(at AS BIGINT) FROM landing.x WHERE at IS NOT NULL ORDER BY _seq";
    let micros: Vec<i64> = site
        .cells(sql)
        .await?
        .iter()
        .filter_map(|row| row[0].as_i64())
        .collect();
    ensure!(micros.len() >= 5, "{micros:?}");
    ensure!(micros[..5].is_sorted(), "order is lost: {micros:?}");
    ensure!(
        micros[1] == 1_483_228_799_999_999,
        "a leap second is {}",
        micros[1]
    );
    ensure!(
        micros[1] == micros[2],
        "the same moment in another zone is {}",
        micros[2]
    );
    ensure!(
        micros[3] == 1_483_228_800_000_000,
        "lower-case letters give {}",
        micros[3]
    );
    Ok(())
}

async fn large_events() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let large = json!({ "text": "x".repeat(5 << 20) }).to_string();
    site.event("x", large.clone()).await?;
    let length = site.cells("SELECT LENGTH(payload) FROM landing.x").await?;
    compare("length", length, &vec![vec![json!(large.len())]], &[])?;
    let answer = site
        .webhook("x", json!({ "text": "x".repeat(20 << 20) }).to_string())
        .await?;
    ensure!(answer.status == 413, "{} {}", answer.status, answer.text());
    ensure!(
        answer.text().chars().any(|c| c.is_ascii_digit()),
        "no limit in {}",
        answer.text()
    );
    Ok(())
}
