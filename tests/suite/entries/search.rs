//! Searches over HTTP: what they find, and in which form.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{
    http::Answer,
    parquet,
    site::Site,
    world::{Adapter, Lab},
};

use super::{Desk, kind};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("entries::search_finds_rows_by_their_words", words),
        test_async("entries::search_finds_the_nearest_vectors", vectors),
        test_async(
            "entries::text_is_searched_by_the_vectors_an_embedder_makes",
            embedded,
        ),
        test_async(
            "entries::a_filter_is_applied_before_the_best_are_taken",
            filtered,
        ),
        test_async(
            "entries::an_index_may_be_asked_for_with_lease_commit_or_query",
            asked_for,
        ),
        test_async("entries::searches_that_cannot_be_are_refused", bad),
        test_async(
            "entries::text_has_no_vectors_where_nothing_makes_them",
            without_embedder,
        ),
    ]
}

/// Notes with vectors.
pub(super) fn notes() -> Vec<Value> {
    vec![
        json!({ "n": 1, "title": "Outage", "notes": "the database was down", "v": [1.0, 0.0], "_seq": 10 }),
        json!({ "n": 2, "title": "Churn", "notes": "customers left after the outage", "v": [0.9, 0.1], "_seq": 20 }),
        json!({ "n": 3, "title": "Party", "notes": "there was cake", "v": [0.0, 1.0], "_seq": 30 }),
        json!({ "n": 4, "title": "Outage again", "notes": null, "v": [-1.0, 0.0], "_seq": 40 }),
    ]
}

/// Waits until nothing is being built any more.
pub(super) async fn settled(desk: &Desk) -> Result<Value> {
    for _ in 0..2_000 {
        let answer = desk.send("GET", "/index", json!({})).await?;
        ensure!(answer.status == 200, "{}", answer.text());
        let indexes = answer.json()?["indexes"].clone();
        let all = indexes.as_array().context("no list")?;
        if !all.is_empty() && all.iter().all(|index| index["status"] != "building") {
            return Ok(indexes);
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    anyhow::bail!("an index is never built")
}

pub(super) async fn indexed(desk: &Desk, index: Value) -> Result<Value> {
    let answer = desk
        .send("POST", "/index", json!({ "index": index }))
        .await?;
    ensure!(
        answer.status == 200 || answer.status == 202,
        "{}",
        answer.text()
    );
    let indexes = settled(desk).await?;
    let all = indexes.as_array().context("no list")?;
    ensure!(
        all.iter().all(|index| index["status"] == "ready"),
        "{indexes}"
    );
    Ok(indexes)
}

pub(super) async fn found(desk: &Desk, call: &str, body: Value) -> Result<Vec<i64>> {
    let answer = desk.send("POST", call, body.clone()).await?;
    ensure!(answer.status == 200, "{body}: {}", answer.text());
    numbers(&answer)
}

fn numbers(answer: &Answer) -> Result<Vec<i64>> {
    let rows = answer.json()?["rows"].clone();
    let rows = rows.as_array().context("no rows")?;
    rows.iter()
        .map(|row| row["n"].as_i64().context("no n"))
        .collect()
}

async fn words() -> Result<()> {
    let desk = Desk::new()?;
    desk.build(json!({}), &notes()).await?;
    indexed(
        &desk,
        json!([{ "kind": "text", "columns": ["title", "notes"] }]),
    )
    .await?;
    let search = async |body| found(&desk, "/search", body).await;
    ensure!(search(json!({ "query": "outage" })).await? == [2, 1, 4]);
    ensure!(search(json!({ "query": "outage", "columns": ["notes"] })).await? == [2]);
    ensure!(search(json!({ "query": "title:outage -again" })).await? == [1]);
    ensure!(search(json!({ "query": "outage", "limit": 1, "offset": 1 })).await? == [1]);
    ensure!(search(json!({ "query": "nothing of that" })).await?.len() <= 1);
    // All columns and the score, or those asked for.
    let body = json!({ "query": "cake", "select": ["title", "n"] });
    let answer = desk.send("POST", "/search", body.clone()).await?.json()?;
    let names: Vec<_> = answer["columns"]
        .as_array()
        .context("no columns")?
        .iter()
        .map(|c| c["name"].clone())
        .collect();
    ensure!(names == ["title", "n", "_score"], "{answer}");
    ensure!(
        answer["rows"][0]["_score"]
            .as_f64()
            .is_some_and(|score| score > 0.0),
        "{answer}"
    );
    let answer = desk
        .send("POST", "/search", json!({ "query": "cake" }))
        .await?
        .json()?;
    ensure!(
        answer["rows"][0]["_seq"] == 30 && answer["rows"][0]["v"] == json!([0.0, 1.0]),
        "{answer}"
    );
    // The usual forms.
    let accept = |form| [("accept", form)];
    let csv = desk
        .with("POST", "/search", &accept("text/csv"), body.clone())
        .await?;
    ensure!(csv.text().starts_with("title,n,_score"), "{}", csv.text());
    let arrow = accept("application/vnd.apache.arrow.stream");
    let arrow = desk.with("POST", "/search", &arrow, body).await?;
    ensure!(parquet::objects_of_stream(&arrow.body)?[0]["title"] == "Party");
    Ok(())
}

async fn vectors() -> Result<()> {
    let desk = Desk::new()?;
    desk.build(json!({}), &notes()).await?;
    let ask = |metric: &str| json!([{ "kind": "vector", "column": "v", "metric": metric }]);
    indexed(&desk, ask("cosine")).await?;
    let near = json!({ "column": "v", "vector": [2.0, 0.1], "limit": 2 });
    ensure!(found(&desk, "/vector-search", near.clone()).await? == [1, 2]);
    // Another metric takes the place of the one before.
    indexed(&desk, ask("l2")).await?;
    let answer = desk.send("POST", "/vector-search", near.clone()).await?;
    let score = answer.json()?["rows"][0]["_score"]
        .as_f64()
        .context("no score")?;
    ensure!((score + 1.01_f64.sqrt()).abs() < 0.01, "{}", answer.text());
    indexed(&desk, ask("dot")).await?;
    ensure!(found(&desk, "/vector-search", near).await? == [1, 2]);
    // The only column with vectors need not be named.
    let near = json!({ "vector": [2.0, 0.1], "limit": 2 });
    ensure!(found(&desk, "/vector-search", near.clone()).await? == [1, 2]);
    let files = desk
        .site
        .lab
        .world
        .entries
        .beside(&desk.site.lab.world.entries.list().await?[0])
        .await?;
    ensure!(files.len() == 1, "what was replaced goes: {files:?}");
    // Of several one has to be.
    indexed(&desk, json!([{ "kind": "vector", "column": "notes" }])).await?;
    let answer = desk.send("POST", "/vector-search", near).await?;
    ensure!(
        answer.status == 400 && answer.text().contains("v, notes"),
        "{}",
        answer.text()
    );
    Ok(())
}

async fn embedded() -> Result<()> {
    let desk = Desk::new()?;
    let mut rows = notes();
    for (n, blank) in [(5, ""), (6, " \n")] {
        rows.push(json!({ "n": n, "title": "Blank", "notes": blank, "v": [0.0, 1.0], "_seq": 50 }));
    }
    desk.build(json!({}), &rows).await?;
    indexed(&desk, json!([{ "kind": "vector", "column": "notes" }])).await?;
    let body = json!({ "column": "notes", "text": "a cake was there", "limit": 1 });
    ensure!(found(&desk, "/vector-search", body).await? == [3]);
    // Rows without text, or with one that says nothing, have no vector, and are never near.
    let body = json!({ "column": "notes", "text": "outage" });
    ensure!(found(&desk, "/vector-search", body).await?.len() == 3);
    let body = json!({ "column": "notes", "text": "unavailable" });
    ensure!(desk.send("POST", "/vector-search", body).await?.status == 503);
    Ok(())
}

async fn without_embedder() -> Result<()> {
    let mut lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    lab.world.searching.embedder = ports::search::Searching::default().embedder;
    let desk = Desk::on(Site::new(lab, "")?)?;
    let refused = |answer: &Answer| -> Result<()> {
        ensure!(
            answer.status == 400 && answer.text().contains("embedder.url"),
            "{} {}",
            answer.status,
            answer.text()
        );
        Ok(())
    };
    // A query says so before it is computed.
    let body = json!({ "sql": "SELECT 'a' AS t", "index": [{ "kind": "vector", "column": "t" }] });
    let call = "/api/materialize/query";
    let answer = desk.site.send("POST", call, &[], body.to_string()).await?;
    refused(&answer)?;
    ensure!(desk.listed().await? == 0 && desk.data_sets().await? == 0);
    desk.build(json!({}), &notes()).await?;
    let index = json!({ "index": [{ "kind": "vector", "column": "notes" }] });
    refused(&desk.send("POST", "/index", index).await?)?;
    // Vectors that are there need nobody to make them.
    indexed(&desk, json!([{ "kind": "vector", "column": "v" }])).await?;
    Ok(())
}

async fn filtered() -> Result<()> {
    let desk = Desk::new()?;
    let rows: Vec<Value> = (0..500)
        .map(|n| {
            // The best by far are those that the filter leaves out.
            let title = if n < 490 { "word word word" } else { "word and others beside it" };
            json!({ "n": n, "title": title, "_seq": n + 1, "v": [f64::from(n), 1.0], "it's \"odd\"": n % 2 })
        })
        .collect();
    desk.build(json!({}), &rows).await?;
    let index = json!([{ "kind": "text", "columns": ["title"] }, { "kind": "vector", "column": "v", "metric": "l2" }]);
    indexed(&desk, index).await?;
    for (filter, wanted) in [
        ("n >= 490", vec![490, 491, 492]),
        ("_seq > 499", vec![499]),
        (
            "n >= 490 AND \"it's \"\"odd\"\"\" = 1 -- odd ones",
            vec![491, 493, 495],
        ),
        ("n IN (SELECT max(n) FROM this)", vec![499]),
        ("n < 0", vec![]),
        ("title IS NULL", vec![]),
    ] {
        let body = json!({ "query": "word", "filter": filter, "limit": 3 });
        let rows = found(&desk, "/search", body).await?;
        ensure!(rows == wanted, "{filter}: {rows:?}");
        let body = json!({ "column": "v", "vector": [490.0, 1.0], "filter": filter, "limit": 3 });
        let rows = found(&desk, "/vector-search", body).await?;
        ensure!(rows == wanted, "{filter}: {rows:?}");
    }
    for filter in [
        "n >",
        "1",
        "n = 1) OR (1 = 1",
        "nobody = 1",
        "n = 1; DROP TABLE this",
        "n IN (SELECT n FROM silver.x)",
    ] {
        let body = json!({ "query": "word", "filter": filter });
        let answer = desk.send("POST", "/search", body).await?;
        ensure!(
            answer.status == 400,
            "{filter}: {} {}",
            answer.status,
            answer.text()
        );
    }
    Ok(())
}

async fn asked_for() -> Result<()> {
    let text = json!([{ "kind": "text", "columns": ["title"] }]);
    let desk = Desk::new()?;
    desk.build(json!({ "index": text }), &notes()).await?;
    settled(&desk).await?;
    ensure!(found(&desk, "/search", json!({ "query": "cake party" })).await? == [3]);
    let shown = desk.get().await?.json()?;
    ensure!(shown["entry"]["index"] == text, "{shown}");
    let desk = Desk::new()?;
    let token = desk.lease(json!({})).await?;
    desk.upload(&token, parquet::of_objects(&notes())?).await?;
    let done = desk
        .send("POST", "/commit", json!({ "token": token, "index": text }))
        .await?;
    ensure!(done.status == 200, "{}", done.text());
    settled(&desk).await?;
    ensure!(found(&desk, "/search", json!({ "query": "party" })).await? == [3]);
    let body = json!({ "sql": "SELECT 1 AS n, 'a word' AS title", "index": text });
    let answer = desk
        .site
        .send("POST", "/api/materialize/query", &[], body.to_string())
        .await?;
    let id = answer.json()?["entry"]["id"]
        .as_str()
        .context("no id")?
        .to_owned();
    let desk = Desk {
        site: desk.site,
        id,
    };
    settled(&desk).await?;
    ensure!(found(&desk, "/search", json!({ "query": "word" })).await? == [1]);
    Ok(())
}

async fn bad() -> Result<()> {
    let desk = Desk::new()?;
    let missing = desk
        .send("POST", "/search", json!({ "query": "a" }))
        .await?;
    ensure!(kind(&missing)? == "urn:headwater:problem:entry-missing");
    desk.build(json!({}), &notes()).await?;
    for (call, body) in [
        ("/search", json!({ "query": "a" })),
        ("/search", json!({ "query": "a", "columns": ["title"] })),
        (
            "/vector-search",
            json!({ "column": "v", "vector": [1.0, 2.0] }),
        ),
    ] {
        let answer = desk.send("POST", call, body).await?;
        ensure!(
            answer.status == 422 && kind(&answer)? == "urn:headwater:problem:not-indexed",
            "{}",
            answer.text()
        );
    }
    for index in [
        json!([]),
        json!([{ "kind": "text", "columns": [] }]),
        json!([{ "kind": "text", "columns": ["nobody"] }]),
        json!([{ "kind": "text", "columns": ["title", "title"] }]),
        json!([{ "kind": "text", "columns": ["n"] }]),
        json!([{ "kind": "vector", "column": "n" }]),
        json!([{ "kind": "vector", "column": "v", "metric": "manhattan" }]),
        json!([{ "kind": "fuzzy", "columns": ["title"] }]),
        json!("title"),
    ] {
        let answer = desk
            .send("POST", "/index", json!({ "index": index }))
            .await?;
        ensure!(
            answer.status == 400,
            "{index}: {} {}",
            answer.status,
            answer.text()
        );
    }
    indexed(
        &desk,
        json!([{ "kind": "text", "columns": ["title"] }, { "kind": "vector", "column": "v" }]),
    )
    .await?;
    for (body, told) in [
        (json!({ "query": "" }), "empty"),
        (json!({ "query": "title:" }), "character 7"),
        (json!({ "query": "a outa*" }), "character 7"),
        (json!({ "query": "outgae~1" }), "character 7"),
        (json!({ "query": "a", "columns": ["nobody"] }), "nobody"),
        (json!({ "query": "a", "select": ["nobody"] }), "nobody"),
        (json!({ "query": "a", "select": ["n", "n"] }), "twice"),
        (json!({ "query": "a", "limit": 0 }), "limit"),
        (json!({ "query": "a", "limit": 10_001 }), "limit"),
        (
            json!({ "query": "a", "limit": 1, "offset": u64::MAX }),
            "limit",
        ),
        (json!({ "query": "a", "limit": -1 }), "usize"),
        (json!({ "query": 7 }), "body"),
        (json!({ "query": "a", "columms": ["title"] }), "columms"),
    ] {
        let answer = desk.send("POST", "/search", body.clone()).await?;
        ensure!(
            answer.status == 400 && answer.text().contains(told),
            "{body}: {} {}",
            answer.status,
            answer.text()
        );
    }
    for (body, told) in [
        (
            json!({ "column": "v", "vector": [1.0, 2.0, 3.0] }),
            "3 numbers",
        ),
        (json!({ "column": "v", "vector": [] }), "0 numbers"),
        (
            json!({ "column": "v", "vector": [1e300, 0.0] }),
            "too large",
        ),
        (json!({ "column": "v", "vector": [0.0, 0.0] }), "zero"),
        (json!({ "column": "v", "vector": ["NaN", 0.0] }), "body"),
        (
            json!({ "column": "nobody", "vector": [1.0, 2.0] }),
            "nobody",
        ),
        (json!({ "column": "v" }), "either"),
        (
            json!({ "column": "v", "vector": [1.0, 2.0], "text": "a" }),
            "either",
        ),
    ] {
        let answer = desk.send("POST", "/vector-search", body.clone()).await?;
        ensure!(
            answer.status == 400 && answer.text().contains(told),
            "{body}: {} {}",
            answer.status,
            answer.text()
        );
    }
    let answer = desk
        .send(
            "POST",
            "/search",
            json!({ "query": "a", "columns": ["notes"] }),
        )
        .await?;
    ensure!(kind(&answer)? == "urn:headwater:problem:not-indexed");
    Ok(())
}
