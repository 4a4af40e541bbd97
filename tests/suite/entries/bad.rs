//! Requests that are refused, each with a type of its own, and that leave no row behind.

use anyhow::{Result, ensure};
use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use libtest_mimic::Trial;
use serde_json::json;
use tests::parquet;

use super::{Desk, kind, rows};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("entries::names_that_are_none_are_refused", names),
        test_async(
            "entries::commits_without_a_token_or_data_are_refused",
            commits,
        ),
        test_async("entries::uploads_that_are_no_data_end_the_build", uploads),
        test_async("entries::sql_over_an_entry_reads_it_and_nothing_else", sql),
        test_async(
            "entries::query_entries_that_cannot_be_leave_no_row",
            queries,
        ),
        test_async(
            "entries::bodies_that_say_something_else_are_refused",
            bodies,
        ),
    ]
}

async fn names() -> Result<()> {
    let mut desk = Desk::new()?;
    let good = desk.id.clone();
    for bad in [
        "x".to_owned(),
        good[1..].to_owned(),
        good.to_uppercase(),
        format!("{good}@"),
        format!("{good}@Shop"),
    ] {
        desk.id = bad;
        for (method, path) in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/lease"),
            ("POST", "/commit"),
            ("POST", "/query"),
            ("POST", "/tokens"),
            ("POST", "/refresh"),
        ] {
            let body = json!({ "sql": "SELECT 1" });
            let answer = desk.send(method, path, body).await?;
            ensure!(
                answer.status == 400 && kind(&answer)?.ends_with("fingerprint"),
                "{method} {path}: {}",
                answer.text()
            );
        }
    }
    desk.id = good;
    for (method, path) in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/refresh"),
        ("POST", "/tokens"),
    ] {
        let answer = desk.send(method, path, json!({})).await?;
        ensure!(
            answer.status == 404 && kind(&answer)?.ends_with("entry-missing"),
            "{method} {path}: {}",
            answer.text()
        );
    }
    ensure!(desk.listed().await? == 0);
    Ok(())
}

async fn commits() -> Result<()> {
    let desk = Desk::new()?;
    for path in ["/commit", "/abort"] {
        let answer = desk.send("POST", path, json!({})).await?;
        ensure!(
            answer.status == 400 && kind(&answer)?.ends_with("no-lease"),
            "{}",
            answer.text()
        );
        let answer = desk
            .send("POST", path, json!({ "token": "made up" }))
            .await?;
        ensure!(
            answer.status == 409 && kind(&answer)?.ends_with("lease-lost"),
            "{}",
            answer.text()
        );
    }
    let token = desk.lease(json!({})).await?;
    let answer = desk.commit(&token).await?;
    ensure!(
        answer.status == 409 && kind(&answer)?.ends_with("nothing-uploaded"),
        "{}",
        answer.text()
    );
    // The lease is there still, for the upload that was forgotten.
    ensure!(
        desk.upload(&token, parquet::of_objects(&rows())?)
            .await?
            .status
            == 200
    );
    ensure!(desk.commit(&token).await?.status == 200);
    Ok(())
}

async fn uploads() -> Result<()> {
    let desk = Desk::new()?;
    let file = parquet::of_objects(&rows())?;
    let twins = {
        let batch = parquet::batch(&[json!({ "a": 1, "b": 2 })])?;
        let fields = ["a", "a"].map(|name| batch.schema().field(0).clone().with_name(name));
        let schema = arrow::datatypes::Schema::new(fields.to_vec());
        let batch = arrow::array::RecordBatch::try_new(schema.into(), batch.columns().to_vec())?;
        parquet::of_batch(&batch)?
    };
    let broken = {
        let mut bytes = file.to_vec();
        bytes[4..40].fill(0xFF);
        Bytes::from(bytes)
    };
    let cut = || {
        let pieces = [
            Ok(file.slice(..50)),
            Err(std::io::Error::other("connection reset")),
        ];
        Body::from_stream(stream::iter(pieces))
    };
    let declared = json!({ "columns": [{ "name": "n", "kind": "BIGINT" }] });
    for (what, spec, body) in [
        ("no parquet", json!({}), Body::from("id,n\n1,2\n")),
        ("nothing", json!({}), Body::empty()),
        (
            "without its end",
            json!({}),
            Body::from(file.slice(..file.len() - 8)),
        ),
        ("cut short", json!({}), cut()),
        (
            "whole by its footer, and not inside",
            json!({}),
            Body::from(broken),
        ),
        ("two columns of one name", json!({}), Body::from(twins)),
        (
            "other columns than declared",
            declared,
            Body::from(file.clone()),
        ),
    ] {
        let token = desk.lease(spec).await?;
        let answer = desk.upload(&token, body).await?;
        ensure!(
            answer.status == 422 && kind(&answer)?.ends_with("upload-refused"),
            "{what}: {}",
            answer.text()
        );
        ensure!(desk.get().await?.status == 404, "{what} leaves a row");
        ensure!(
            desk.listed().await? == 0 && desk.data_sets().await? == 0,
            "{what} leaves something"
        );
        ensure!(
            desk.commit(&token).await?.status == 409,
            "{what} can be committed"
        );
    }
    Ok(())
}

async fn sql() -> Result<()> {
    let desk = Desk::new()?;
    desk.site.event("orders", r#"{"a": 1}"#).await?;
    desk.build(json!({}), &rows()).await?;
    for (sql, says) in [
        ("DELETE FROM this", "only SELECT"),
        ("CREATE TABLE x AS SELECT * FROM this", "only SELECT"),
        ("SELECT * FROM landing.orders", "`this` alone"),
        (
            "SELECT * FROM this JOIN landing.orders ON true",
            "`this` alone",
        ),
        ("SELECT * FROM main.this", "`this` alone"),
        ("SELECT * FROM that", "`this` alone"),
        ("SELECT * FROM 'file.parquet'", "is a file"),
        ("SELECT nope FROM this", "nope"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELEC 1", "SELEC"),
    ] {
        let answer = desk.send("POST", "/query", json!({ "sql": sql })).await?;
        ensure!(
            answer.status == 400 && answer.text().contains(says),
            "`{sql}`: {} {}",
            answer.status,
            answer.text()
        );
    }
    ensure!(desk.query("SELECT sum(n) AS n FROM this").await? == json!([{ "n": 17 }]));
    Ok(())
}

async fn queries() -> Result<()> {
    let desk = Desk::new()?;
    desk.site.event("t", r#"{"a": 1}"#).await?;
    for (body, status) in [
        (json!({ "sql": "DELETE FROM landing.t" }), 400),
        (json!({ "sql": "SELECT * FROM landing.nowhere" }), 404),
        (json!({ "sql": "SELECT nope FROM landing.t" }), 400),
        (json!({ "sql": "SELECT 1 AS a, 2 AS a" }), 400),
        (json!({ "sql": "SELECT $1 AS a" }), 400),
        (
            json!({ "sql": "SELECT payload->'a' AS a FROM landing.t" }),
            400,
        ),
        (
            json!({ "sql": "SELECT 1 AS a", "tenant": "no such tenant" }),
            400,
        ),
        (json!({ "sql": "SELECT 1 AS a", "ttl": "soon" }), 400),
        (
            json!({ "sql": "SELECT 1 AS a", "invalidate_on": "tuesdays" }),
            400,
        ),
        (json!({ "sql": "SELECT 1 / 0 AS a FROM landing.t" }), 400),
    ] {
        let answer = desk
            .site
            .send("POST", "/api/materialize/query", &[], body.to_string())
            .await?;
        ensure!(
            answer.status == status,
            "{body}: {} {}",
            answer.status,
            answer.text()
        );
        kind(&answer)?;
        ensure!(
            desk.listed().await? == 0 && desk.data_sets().await? == 0,
            "{body} leaves something"
        );
    }
    Ok(())
}

async fn bodies() -> Result<()> {
    let desk = Desk::new()?;
    for (path, body) in [
        ("/lease", json!({ "tll": 1 })),
        ("/lease", json!({ "ttl": -1 })),
        ("/lease", json!({ "mode": "sometimes" })),
        ("/lease", json!([1])),
        ("/query", json!({ "parameters": [] })),
        ("/query", json!(["SELECT 1", []])),
        ("/index", json!([[{ "kind": "text", "columns": ["a"] }], 1])),
        ("/commit", json!({ "token": 1 })),
        ("/lease", json!({ "holder": "h".repeat(1_000_000) })),
        ("/lease", json!({ "holder": "h".repeat(201) })),
        ("/lease", json!({ "key": "k".repeat(1_001) })),
        (
            "/lease",
            json!({ "columns": [{ "name": "c".repeat(201), "kind": "BIGINT" }] }),
        ),
        ("/tokens", json!([])),
    ] {
        let answer = desk.send("POST", path, body.clone()).await?;
        ensure!(
            answer.status == 400,
            "{path} {:.80}: {} {}",
            body.to_string(),
            answer.status,
            answer.text()
        );
        kind(&answer)?;
    }
    ensure!(desk.listed().await? == 0);
    Ok(())
}
