//! Rows that break a model: out of it, listed with the reason, and in again once it has been put right.

mod commands;
mod conditions;
mod deployed;
pub(crate) mod drops;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{
    case::ModelText,
    folder::Folder,
    program, rows,
    site::Site,
    world::{Adapter, Lab, table},
};

use crate::plain::{test, test_async};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = deployed::trials();
    trials.extend(conditions::trials());
    trials.extend([
        test_async("quarantine::bad_rows_stay_out_and_the_rest_goes_in", casts),
        test_async("quarantine::rows_that_break_an_assertion_stay_out", asserts),
        test_async(
            "quarantine::rows_that_an_assertion_cannot_be_asked_of_stay_out",
            unasked,
        ),
        test_async("quarantine::rows_go_in_once_the_model_is_right", replays),
        test_async(
            "quarantine::a_body_that_is_not_understood_drops_nothing",
            misread,
        ),
        test_async("quarantine::an_old_row_replaces_no_newer_one", overtaken),
        test_async("quarantine::a_group_is_built_anew_with_its_row", groups),
        test_async("quarantine::a_rebuild_tries_every_row_again", rebuilt),
        test_async("quarantine::what_cannot_be_told_fails_as_before", untold),
        test_async(
            "quarantine::without_it_a_bad_row_fails_the_refresh",
            without,
        ),
        test(
            "quarantine::the_commands_list_show_replay_and_drop",
            commands::all,
        ),
        test(
            "quarantine::events_without_a_sequence_are_listed_with_the_query_that_shows_them",
            commands::unordered,
        ),
    ]);
    trials
}

fn model(name: &str, extra: Value, sql: &str, asserts: &[&str]) -> ModelText {
    let mut config = json!({ "materialized": "incremental", "live": "true", "on_bad_row": "quarantine",
        "incremental_strategy": "merge", "unique_key": "id", "incremental_filter": "WHERE _seq > {watermark}" });
    for (key, value) in extra.as_object().into_iter().flatten() {
        match value.is_null() {
            true => drop(config.as_object_mut().map(|config| config.remove(key))),
            false => config[key] = value.clone(),
        }
    }
    ModelText {
        name: name.to_owned(),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: sql.to_owned(),
        asserts: asserts.iter().map(|text| (*text).to_owned()).collect(),
    }
}

const STRICT: &str = "SELECT (payload->>'id')::BIGINT AS id, (payload->>'amount')::BIGINT AS amount, _seq FROM landing.orders";
const LENIENT: &str = "SELECT (payload->>'id')::BIGINT AS id, TRY_CAST(payload->>'amount' AS BIGINT) AS amount, _seq \
                       FROM landing.orders";

fn orders(sql: &str) -> ModelText {
    model("silver.orders", json!({}), sql, &[])
}

/// Reads silver by its watermark.
fn copy() -> ModelText {
    model(
        "gold.copy",
        json!({ "on_bad_row": null }),
        "SELECT id, amount, _seq FROM silver.orders",
        &[],
    )
}

async fn send(site: &Site, events: &[(u64, &str)]) -> Result<()> {
    let lines: Vec<String> = events
        .iter()
        .map(|(id, amount)| json!({ "id": id, "amount": amount }).to_string())
        .collect();
    let headers = [("content-type", "application/x-ndjson")];
    let path = "/api/ingest/webhook/orders";
    let answer = site.send("POST", path, &headers, lines.join("\n")).await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    Ok(())
}

async fn expect(lab: &Lab, sql: &str, expected: Value) -> Result<()> {
    let found = json!(rows::query(&lab.world, sql).await.context(sql.to_owned())?);
    ensure!(found == expected, "{sql}:\n{found}\nexpected\n{expected}");
    Ok(())
}

/// What is listed of silver, over HTTP: sequences and reasons.
async fn listed(site: &Site) -> Result<Vec<(u64, String)>> {
    let path = "/api/live/models/silver.orders/quarantine";
    let answer = site.send("GET", path, &[], "").await?.json()?;
    let rows = answer["models"][0]["rows"].as_array();
    let rows = rows.with_context(|| answer.to_string())?;
    let row = |row: &Value| {
        let reason = row["reason"].as_str().unwrap_or_default().to_owned();
        (row["id"].as_u64().unwrap_or(0), reason)
    };
    Ok(rows.iter().map(row).collect())
}

/// Only an empty body or an object without `ids` means all rows.
async fn misread() -> Result<()> {
    let lab = Lab::new(
        Adapter::Memory,
        &[orders(STRICT)],
        domain::LiveSettings::default(),
    )?;
    let site = Site::new(lab, "")?;
    send(&site, &[(1, "ten"), (2, "ten"), (3, "ten"), (4, "10")]).await?;
    site.cycle().await?;
    let json = [("content-type", "application/json")];
    let post = async |action: &str, headers: &[(&str, &str)], body: &'static str| {
        let path = format!("/api/live/models/silver.orders/quarantine/{action}");
        site.send("POST", &path, headers, body).await
    };
    for action in ["drop", "replay"] {
        for body in [
            "{\"ids\": [1}",
            "ids=1",
            "[]",
            "[1]",
            "[[1]]",
            "null",
            "{\"ids\": null}",
            "{\"ids\": [\"1\"]}",
            "{\"id\": [1]}",
        ] {
            for headers in [&json[..], &[]] {
                let answer = post(action, headers, body).await?;
                ensure!(
                    answer.status == 400 && answer.text().contains("the body"),
                    "{action} {body}: {} {}",
                    answer.status,
                    answer.text()
                );
            }
        }
        let none = post(action, &json, "{\"ids\": []}").await?;
        ensure!(none.status == 200, "{action}: {}", none.text());
        ensure!(listed(&site).await?.len() == 3, "{action}: {}", none.text());
    }
    let query = post("drop?ids=1", &[], "").await?;
    ensure!(query.status == 400, "{}", query.text());
    // Without a content type it is read all the same.
    let one = post("drop", &[], "{\"ids\": [1]}").await?.json()?;
    ensure!(one["dropped"] == 1 && one["left"] == 2, "{one}");
    let all = post("drop", &[], "").await?.json()?;
    ensure!(all["dropped"] == 2 && all["left"] == 0, "{all}");
    Ok(())
}

async fn casts() -> Result<()> {
    for adapter in [Adapter::Memory, Adapter::Embedded, Adapter::Stepped] {
        let lab = Lab::new(
            adapter,
            &[orders(STRICT), copy()],
            domain::LiveSettings::default(),
        )?;
        let site = Site::new(lab, "")?;
        let bad = [7, 8, 250];
        let amount = |id: u64| if bad.contains(&id) { "ten" } else { "10" };
        let events: Vec<(u64, &str)> = (1..=300).map(|id| (id, amount(id))).collect();
        send(&site, &events).await?;
        site.cycle().await?;
        expect(
            &site.lab,
            "SELECT count(*), max(_seq) FROM silver.orders",
            json!([[297, 300]]),
        )
        .await?;
        expect(&site.lab, "SELECT count(*) FROM gold.copy", json!([[297]])).await?;
        let found = listed(&site).await?;
        let ids: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
        ensure!(ids == bad, "{found:?}");
        ensure!(found[0].1.contains("ten"), "{found:?}");
        ensure!(!found[0].1.contains("SELECT"), "{found:?}");
        let kept = "SELECT sequence, payload->>'payload' FROM quarantine.orders ORDER BY sequence";
        let row = |id: u64| json!([id, format!("{{\"amount\":\"ten\",\"id\":{id}}}")]);
        expect(&site.lab, kept, json!(bad.map(row))).await?;
        let status = site
            .send("GET", "/api/live/status", &[], "")
            .await?
            .json()?;
        let silver = &status["models"][0];
        ensure!(
            silver["quarantined"] == 3 && silver["status"] == "live",
            "{silver}"
        );
        ensure!(silver["consumed"]["landing.orders"] == 300, "{silver}");
        // They break nothing any more.
        send(&site, &[(301, "5")]).await?;
        site.cycle().await?;
        expect(&site.lab, "SELECT count(*) FROM gold.copy", json!([[298]])).await?;
        ensure!(listed(&site).await?.len() == 3, "listed again");
    }
    Ok(())
}

async fn asserts() -> Result<()> {
    let text = model(
        "silver.orders",
        json!({}),
        STRICT,
        &["amount >= 0", "row_count > 0"],
    );
    let site = Site::in_memory(&[text], "")?;
    send(
        &site,
        &[(1, "10"), (2, "20"), (1, "-1"), (3, "-3"), (2, "21")],
    )
    .await?;
    site.cycle().await?;
    let all = "SELECT id, amount FROM silver.orders ORDER BY id";
    expect(&site.lab, all, json!([[1, 10], [2, 21]])).await?;
    let expected = [3, 4].map(|id| (id, String::from("it breaks `amount >= 0`")));
    let found = listed(&site).await?;
    ensure!(found == expected, "{found:?}");
    // Of an old row, and of no row, it is the model that is wrong.
    let mut site = site;
    site.lab
        .set_models(&[model("silver.orders", json!({}), STRICT, &["amount > 15"])])?;
    send(&site, &[(4, "30")]).await?;
    let report = serde_json::to_value(site.lab.cycle().await?.models)?;
    ensure!(
        report["silver.orders"]["outcome"] == "assertion_failed",
        "{report}"
    );
    expect(&site.lab, all, json!([[1, 10], [2, 21]])).await
}

async fn replays() -> Result<()> {
    let mut site = Site::in_memory(&[orders(STRICT), copy()], "")?;
    send(&site, &[(1, "10"), (2, "two"), (3, "three"), (4, "40")]).await?;
    site.cycle().await?;
    expect(
        &site.lab,
        "SELECT id FROM gold.copy ORDER BY id",
        json!([[1], [4]]),
    )
    .await?;
    // Nothing has changed, so nothing goes in.
    let silver = table("silver.orders")?;
    let world = site.lab.world.clone();
    let chain = |error: ports::Error| rows::chain(&error);
    let done = engine::quarantine::replay(&world, &silver, None)
        .await
        .map_err(chain)?;
    ensure!(done.replayed == 0 && done.left.len() == 2, "{done:?}");
    site.lab.set_models(&[orders(LENIENT), copy()])?;
    let world = site.lab.world.clone();
    let done = engine::quarantine::replay(&world, &silver, Some(&[2]))
        .await
        .map_err(chain)?;
    ensure!(
        done.replayed == 1 && done.added == 1 && !done.rebuilt,
        "{done:?}"
    );
    let left: Vec<u64> = done.left.iter().map(|row| row.id).collect();
    ensure!(left == [3], "{left:?}");
    site.cycle().await?;
    let all = |table: &str| format!("SELECT id, amount, _seq FROM {table} ORDER BY id");
    let expected = json!([[1, 10, 1], [2, null, 2], [4, 40, 4]]);
    expect(&site.lab, &all("silver.orders"), expected.clone()).await?;
    // Its readers are past the row's sequence, and see it all the same.
    expect(&site.lab, &all("gold.copy"), expected).await?;
    let gone = engine::quarantine::replay(&world, &silver, Some(&[2])).await;
    let gone = gone.err().context("it is not there any more")?;
    ensure!(gone.kind == ports::Kind::NotFound, "{}", gone.chain());
    let dropped = engine::quarantine::drop_rows(&world, &silver, Some(&[3]))
        .await
        .map_err(chain)?;
    ensure!(dropped.dropped == 1 && dropped.left == 0, "{dropped:?}");
    send(&site, &[(5, "50")]).await?;
    site.cycle().await?;
    expect(
        &site.lab,
        "SELECT id FROM gold.copy ORDER BY id",
        json!([[1], [2], [4], [5]]),
    )
    .await
}

/// The assertion itself breaks on a row, and says nothing about the others.
async fn unasked() -> Result<()> {
    let sql =
        "SELECT (payload->>'id')::BIGINT AS id, payload->>'amount' AS v, _seq FROM landing.orders";
    let strict = "CAST(v AS BIGINT) < 90";
    let model = |asserts: &[&str]| model("silver.orders", json!({}), sql, asserts);
    let mut site = Site::in_memory(&[model(&[strict, "row_count > 0"])], "")?;
    send(&site, &[(1, "10"), (2, "bad"), (3, "95"), (4, "20")]).await?;
    let report = serde_json::to_value(site.lab.cycle().await?.models)?;
    let all = "SELECT id, v FROM silver.orders ORDER BY id";
    let found = listed(&site).await?;
    let ids: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
    ensure!(ids == [2, 3], "{found:?} {report}");
    ensure!(
        found[0].1.contains("bad") && found[1].1.contains(strict),
        "{found:?}"
    );
    expect(&site.lab, all, json!([[1, "10"], [4, "20"]])).await?;
    // They break it out of quarantine as they broke it first.
    let silver = table("silver.orders")?;
    let done = engine::quarantine::replay(&site.lab.world, &silver, Some(&[2])).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.replayed == 0 && done.left.len() == 2, "{done:?}");
    site.lab.set_models(&[model(&["row_count > 0"])])?;
    let done = engine::quarantine::replay(&site.lab.world, &silver, None).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.replayed == 2 && done.left.is_empty(), "{done:?}");
    // What no row is to blame for is not blamed on one.
    let wrong = model(&["no_such_column < 90"]);
    let site = Site::in_memory(&[wrong], "")?;
    send(&site, &[(1, "10")]).await?;
    let report = serde_json::to_value(site.lab.cycle().await?.models)?;
    let told = report["silver.orders"]["message"]
        .as_str()
        .unwrap_or_default();
    ensure!(told.contains("without the new rows too"), "{report}");
    ensure!(listed(&site).await?.is_empty(), "blamed a row");
    Ok(())
}

async fn overtaken() -> Result<()> {
    let mut site = Site::in_memory(&[orders(STRICT)], "")?;
    send(&site, &[(1, "one"), (2, "two")]).await?;
    site.cycle().await?;
    send(&site, &[(1, "11")]).await?;
    site.cycle().await?;
    site.lab.set_models(&[orders(LENIENT)])?;
    let silver = table("silver.orders")?;
    let done = engine::quarantine::replay(&site.lab.world, &silver, None).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.replayed == 2 && done.added == 1, "{done:?}");
    let all = "SELECT id, amount FROM silver.orders ORDER BY id";
    expect(&site.lab, all, json!([[1, 11], [2, null]])).await
}

async fn groups() -> Result<()> {
    let sums = |cast: &str| {
        let sql = format!(
            "SELECT (payload->>'id')::BIGINT % 2 AS id, sum({cast}) AS total FROM landing.orders GROUP BY 1"
        );
        let extra = json!({ "incremental_strategy": "delete+insert", "incremental_filter": null });
        model("silver.orders", extra, &sql, &[])
    };
    let mut site = Site::in_memory(&[sums("(payload->>'amount')::BIGINT")], "")?;
    send(&site, &[(1, "1"), (2, "2"), (3, "x"), (4, "4")]).await?;
    site.cycle().await?;
    let all = "SELECT id, total FROM silver.orders ORDER BY id";
    expect(&site.lab, all, json!([[0, 6], [1, 1]])).await?;
    // The whole input is read each time: what is in quarantine is not met again.
    send(&site, &[(5, "5")]).await?;
    site.cycle().await?;
    expect(&site.lab, all, json!([[0, 6], [1, 6]])).await?;
    ensure!(listed(&site).await?.len() == 1, "listed again");
    site.lab.set_models(&[sums(
        "COALESCE(TRY_CAST(payload->>'amount' AS BIGINT), 100)",
    )])?;
    let silver = table("silver.orders")?;
    let done = engine::quarantine::replay(&site.lab.world, &silver, None).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(
        done.replayed == 1 && done.rebuilt && done.left.is_empty(),
        "{done:?}"
    );
    expect(&site.lab, all, json!([[0, 6], [1, 106]])).await
}

async fn rebuilt() -> Result<()> {
    let mut site = Site::in_memory(&[orders(STRICT)], "")?;
    send(&site, &[(1, "one"), (2, "2"), (3, "x")]).await?;
    site.cycle().await?;
    let full = |lab: &Lab| {
        let world = lab.world.clone();
        async move {
            let run = engine::batch::run(&world, &[], true, &engine::cycle::Silent).await;
            run.map_err(|error| rows::chain(&error))
        }
    };
    full(&site.lab).await?;
    let ids: Vec<u64> = listed(&site).await?.into_iter().map(|(id, _)| id).collect();
    ensure!(ids == [1, 3], "{ids:?}");
    site.lab.set_models(&[orders(LENIENT)])?;
    full(&site.lab).await?;
    ensure!(listed(&site).await?.is_empty(), "all of them fit");
    expect(
        &site.lab,
        "SELECT count(*) FROM silver.orders",
        json!([[3]]),
    )
    .await
}

async fn untold() -> Result<()> {
    let sql = "SELECT (o.payload->>'id')::BIGINT AS id, (o.payload->>'amount')::BIGINT AS amount, o._seq \
               FROM landing.orders AS o LEFT JOIN landing.names AS n ON n.id = o.id";
    let extra = json!({ "incremental_filter": null });
    let site = Site::in_memory(&[model("silver.orders", extra, sql, &[])], "")?;
    site.event("names", "{}").await?;
    send(&site, &[(1, "one")]).await?;
    let report = serde_json::to_value(site.lab.cycle().await?.models)?;
    let told = report["silver.orders"]["message"]
        .as_str()
        .unwrap_or_default();
    ensure!(
        told.contains("one") && told.contains("2 inputs"),
        "{report}"
    );
    // A query that is wrong is no fault of any row.
    let wrong =
        orders("SELECT (payload->>'id')::BIGINT AS id, no_such_column, _seq FROM landing.orders");
    let site = Site::in_memory(&[wrong], "")?;
    send(&site, &[(1, "1")]).await?;
    let report = serde_json::to_value(site.lab.cycle().await?.models)?;
    let told = report["silver.orders"]["message"]
        .as_str()
        .unwrap_or_default();
    ensure!(
        told.contains("no_such_column") && told.contains("without the new rows"),
        "{report}"
    );
    Ok(())
}

async fn without() -> Result<()> {
    let text = model(
        "silver.orders",
        json!({ "on_bad_row": "fail" }),
        STRICT,
        &[],
    );
    let site = Site::in_memory(&[text], "")?;
    send(&site, &[(1, "one"), (2, "2")]).await?;
    let report = serde_json::to_value(site.lab.cycle().await?.models)?;
    ensure!(report["silver.orders"]["outcome"] == "error", "{report}");
    ensure!(report.to_string().contains("with `on_bad_row="), "{report}");
    Ok(())
}
