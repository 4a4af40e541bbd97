//! Changes that could stop a model for ever, or take a row from it: refused where they come in, or read as what they mean.

use anyhow::{Context, Result, ensure};
use engine::{batch, cycle};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{case::ModelText, http::Answer, rows, site::Site};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "cdc_edges::a_table_takes_numbers_or_timestamps_and_not_both",
            kinds,
        ),
        test_async("cdc_edges::what_is_taken_can_be_put_in_order", orders),
        test_async(
            "cdc_edges::a_key_in_another_spelling_keeps_its_row",
            spellings,
        ),
        test_async(
            "cdc_edges::changes_read_from_a_model_are_taken_as_they_came",
            passed_on,
        ),
        test_async(
            "cdc_edges::of_rows_of_one_key_the_last_wins_or_none_does",
            last_of_key,
        ),
        test_async(
            "cdc_edges::of_rows_of_one_key_that_came_at_once_none_wins",
            at_once,
        ),
    ]
}

/// The rows of a source's changes, deleted for good.
fn silver(source: &str) -> ModelText {
    let config = json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "merge",
        "unique_key": "id", "cdc_op": "op", "cdc_seq": "lsn", "cdc_deletes": "hard",
        "incremental_filter": "WHERE _seq > {watermark}" });
    ModelText {
        name: format!("silver.{source}"),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: format!(
            "SELECT (payload->>'id')::DOUBLE::BIGINT AS id, payload->>'a' AS a, op, lsn, _seq FROM landing.{source}"
        ),
        asserts: Vec::new(),
    }
}

async fn post(site: &Site, source: &str, body: Value) -> Result<Answer> {
    let path = format!("/api/ingest/cdc/{source}");
    let headers = [("content-type", "application/json")];
    site.send("POST", &path, &headers, body.to_string()).await
}

async fn taken(site: &Site, source: &str, body: Value) -> Result<()> {
    let answer = post(site, source, body).await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    Ok(())
}

fn insert(lsn: Value, id: u64) -> Value {
    json!({ "op": "I", "lsn": lsn, "payload": { "id": id, "a": "x" } })
}

async fn ids(site: &Site, source: &str) -> Result<Value> {
    let sql = format!("SELECT id FROM silver.{source} ORDER BY id");
    Ok(json!(site.cells(&sql).await.context(sql)?))
}

async fn kinds() -> Result<()> {
    let models = ["large", "small", "moments"].map(silver);
    let site = Site::in_memory(&models, "")?;
    let large = "9".repeat(30);
    taken(&site, "large", insert(json!(large), 1)).await?;
    taken(&site, "small", insert(json!(5), 1)).await?;
    taken(&site, "moments", insert(json!("2026-01-01T00:00:00Z"), 1)).await?;
    site.cycle().await?;
    for (source, lsn, keeps) in [
        ("large", json!("2026-01-01T00:00:00Z"), "numbers"),
        ("large", json!("2026-01-01"), "numbers"),
        ("small", json!("2026-01-01T00:00:00Z"), "numbers"),
        ("small", json!(large), "BIGINT"),
        ("moments", json!(5), "timestamps"),
        ("moments", json!(large), "timestamps"),
        ("moments", json!("0/16B3748"), "timestamps"),
    ] {
        let answer = post(&site, source, insert(lsn.clone(), 2)).await?;
        let said = answer.text();
        ensure!(
            answer.status == 422 && said.contains(keeps) && said.contains("nothing was stored"),
            "{source} {lsn}: {} {said}",
            answer.status
        );
    }
    // Nothing of it is in the way of what comes next.
    taken(&site, "large", insert(json!("9".repeat(31)), 3)).await?;
    taken(&site, "large", insert(json!(7), 4)).await?;
    taken(&site, "small", insert(json!("0/16B3748"), 3)).await?;
    taken(&site, "moments", insert(json!("2026-01-02T00:00:00Z"), 3)).await?;
    site.cycle().await?;
    ensure!(ids(&site, "large").await? == json!([[1], [3], [4]]));
    ensure!(ids(&site, "small").await? == json!([[1], [3]]));
    ensure!(ids(&site, "moments").await? == json!([[1], [3]]));
    Ok(())
}

/// Every form of a timestamp that is taken, oldest first: each is newer to the model than the one before.
async fn orders() -> Result<()> {
    let site = Site::in_memory(&[silver("x")], "")?;
    let ascending = [
        "2026-01-02",
        "2026-01-02T00:00:00.000000001",
        "2026-01-02 00:00:01",
        "2026-01-02T02:00:01.5+02:00",
        "2026-01-02t00:00:02z",
        " 2026-01-02T00:00:03Z ",
        "2026-01-03",
    ];
    for (at, lsn) in ascending.iter().enumerate() {
        let change =
            |lsn: &str, a: String| json!({ "op": "U", "lsn": lsn, "payload": { "id": 1, "a": a } });
        taken(&site, "x", change(lsn, at.to_string())).await?;
        if let Some(before) = at.checked_sub(1) {
            taken(&site, "x", change(ascending[before], String::from("old"))).await?;
        }
        site.cycle().await?;
        let found = json!(site.cells("SELECT a FROM silver.x").await?);
        ensure!(found == json!([[at.to_string()]]), "{lsn}: {found}");
    }
    for bad in ["2026-1-2", "2026-01-02T25:00:00Z", "yesterday", "2026"] {
        let answer = post(&site, "x", insert(json!(bad), 2)).await?;
        ensure!(answer.status == 422, "{bad}: {}", answer.text());
    }
    Ok(())
}

async fn spellings() -> Result<()> {
    let site = Site::in_memory(&[silver("x")], "")?;
    for (at, (before, after)) in [("1", "1.0"), ("2", "\"2\""), ("\"3\"", "3"), ("4e0", "4")]
        .into_iter()
        .enumerate()
    {
        let lsn = at * 10;
        for body in [
            format!(
                r#"{{"op":"c","before":null,"after":{{"id":{before},"a":"x"}},"source":{{"lsn":{lsn}}}}}"#
            ),
            format!(
                r#"{{"op":"u","before":{{"id":{before},"a":"x"}},"after":{{"id":{after},"a":"y"}},"source":{{"lsn":{}}}}}"#,
                lsn + 1
            ),
        ] {
            let headers = [("content-type", "application/json")];
            let answer = site
                .send("POST", "/api/ingest/cdc/x", &headers, body)
                .await?;
            ensure!(answer.status == 202, "{}", answer.text());
        }
    }
    site.cycle().await?;
    let found = json!(site.cells("SELECT id, a FROM silver.x ORDER BY id").await?);
    ensure!(
        found == json!([[1, "y"], [2, "y"], [3, "y"], [4, "y"]]),
        "{found}"
    );
    Ok(())
}

/// Changes of a model in many files, read by another one whose query has no `_seq`, all at once and each as it comes.
async fn passed_on() -> Result<()> {
    let bronze = ModelText {
        name: String::from("bronze.x"),
        config: serde_json::from_value(json!({ "materialized": "incremental", "live": "true",
            "incremental_strategy": "append", "incremental_filter": "WHERE _seq > {watermark}" }))?,
        sql: String::from(
            "SELECT (payload->>'id')::BIGINT AS id, payload->>'a' AS a, op, lsn, _seq FROM landing.x",
        ),
        asserts: Vec::new(),
    };
    let reader = |name: &str| ModelText {
        name: name.to_owned(),
        sql: String::from("SELECT id, a, op, lsn FROM bronze.x WHERE id >= 0"),
        ..silver("x")
    };
    let last = ModelText {
        name: String::from("silver.last"),
        config: serde_json::from_value(json!({ "materialized": "incremental", "live": "true",
            "incremental_strategy": "merge", "unique_key": "id", "incremental_filter": "WHERE _seq > {watermark}" }))?,
        ..reader("silver.each")
    };
    let mut models = [bronze, last, reader("silver.each"), reader("silver.once")];
    for model in &mut models[2..] {
        let (key, value) = ("cdc_deletes", "soft");
        model.config.insert(key.to_owned(), value.to_owned());
    }
    let site = Site::in_memory(&models, "")?;
    let change = |op: &str, lsn: u64, id: u64, a: &str| json!({ "op": op, "lsn": lsn, "payload": { "id": id, "a": a } });
    for id in 0..5 {
        // A row that is flagged keeps what it was when its delete came; what comes behind is older.
        for body in [
            change("I", 10, id, "kept"),
            change("D", 30, id, "kept"),
            change("U", 20, id, "late"),
        ] {
            taken(&site, "x", body).await?;
            site.cycle().await?;
        }
    }
    let anew = ["silver.once".parse()?, "silver.last".parse()?];
    batch::run(&site.lab.world, &anew, true, &cycle::Silent)
        .await
        .map_err(|error| rows::chain(&error))?;
    let sql = "SELECT id, a, lsn FROM silver.last ORDER BY id";
    let found = json!(site.cells(sql).await?);
    let expected: Vec<_> = (0..5).map(|id| json!([id, "late", 20])).collect();
    ensure!(found == json!(expected), "silver.last: {found}");
    for table in ["silver.each", "silver.once"] {
        let sql = format!("SELECT id, a, _deleted FROM {table} ORDER BY id");
        let found = json!(site.cells(&sql).await?);
        let expected: Vec<_> = (0..5).map(|id| json!([id, "kept", true])).collect();
        ensure!(found == json!(expected), "{table}: {found}");
    }
    Ok(())
}

/// Merges over models, of which each key has many rows: from nothing they give what they gave step by step, or say why not.
async fn last_of_key() -> Result<()> {
    let model = |name: &str, strategy: &str, sql: &str| -> Result<ModelText> {
        // What fails is run by itself.
        let is_live = !["silver.bare", "silver.pairs"].contains(&name);
        let mut config = json!({ "materialized": "incremental", "live": is_live.to_string(),
            "incremental_strategy": strategy });
        if strategy == "merge" {
            config["unique_key"] = json!("k");
        }
        if is_live {
            config["incremental_filter"] = json!("WHERE _seq > {watermark}");
        }
        Ok(ModelText {
            name: name.to_owned(),
            config: serde_json::from_value(config)?,
            sql: sql.to_owned(),
            asserts: Vec::new(),
        })
    };
    let read = "(payload->>'k')::BIGINT AS k, (payload->>'v')::BIGINT AS v";
    let models = [
        model(
            "bronze.e",
            "append",
            &format!("SELECT {read}, _seq FROM landing.e"),
        )?,
        model(
            "bronze.bare",
            "append",
            &format!("SELECT {read} FROM landing.e"),
        )?,
        model("silver.plain", "merge", "SELECT k, v FROM bronze.e")?,
        model(
            "silver.sorted",
            "merge",
            "SELECT k, v FROM bronze.e ORDER BY v",
        )?,
        model("silver.once", "merge", "SELECT DISTINCT k, v FROM bronze.e")?,
        model("silver.bare", "merge", "SELECT k, v FROM bronze.bare")?,
        model(
            "silver.pairs",
            "merge",
            "SELECT k, unnest([v, v + 1]) AS v FROM bronze.e",
        )?,
        model(
            "silver.groups",
            "merge",
            "SELECT k, max(v) AS v FROM bronze.e GROUP BY k",
        )?,
    ];
    let site = Site::in_memory(&models, "")?;
    for v in [10, 5, 7, 30, 5, 2] {
        site.event("e", json!({ "k": 1, "v": v }).to_string())
            .await?;
        site.cycle().await?;
    }
    let told = ["silver.bare", "silver.pairs"];
    for anew in [false, true] {
        for name in ["silver.plain", "silver.sorted", "silver.once"] {
            if anew {
                let report =
                    batch::run(&site.lab.world, &[name.parse()?], true, &cycle::Silent).await;
                report.map_err(|error| rows::chain(&error))?;
            }
            let found = json!(site.cells(&format!("SELECT k, v FROM {name}")).await?);
            ensure!(found == json!([[1, 2]]), "{name}, anew {anew}: {found}");
        }
    }
    for name in told {
        let report = batch::run(&site.lab.world, &[name.parse()?], true, &cycle::Silent).await;
        let report = json!(report.map_err(|error| rows::chain(&error))?).to_string();
        ensure!(
            report.contains("several rows have k = 1, and which"),
            "{name}: {report}"
        );
    }
    let planned = engine::check::models(&site.lab.world).await;
    let planned = planned.map_err(|error| rows::chain(&error))?;
    let warned = planned
        .findings
        .iter()
        .filter(|found| found.code == "merge_unordered");
    let mut warned: Vec<&str> = warned.map(|found| found.model.as_str()).collect();
    warned.sort_unstable();
    ensure!(warned == told, "{:?}", planned.findings);
    Ok(())
}

/// Merges whose rows of one key have one sequence, those of two tables, or some of their own.
async fn at_once() -> Result<()> {
    let read = "(payload->>'k')::BIGINT AS k, (payload->>'v')::BIGINT AS v";
    let model = |name: &str, sql: &str| -> Result<ModelText> {
        let is_log = name.starts_with("bronze");
        let mut config = json!({ "materialized": "incremental", "live": is_log.to_string(),
            "incremental_strategy": if is_log { "append" } else { "merge" } });
        match is_log {
            true => config["incremental_filter"] = json!("WHERE _seq > {watermark}"),
            false => config["unique_key"] = json!("k"),
        }
        Ok(ModelText {
            name: name.to_owned(),
            config: serde_json::from_value(config)?,
            sql: sql.to_owned(),
            asserts: Vec::new(),
        })
    };
    let models = [
        model("bronze.e", &format!("SELECT {read}, _seq FROM landing.e"))?,
        model("bronze.f", &format!("SELECT {read}, _seq FROM landing.f"))?,
        model(
            "silver.joined",
            "SELECT e.k, f.v, e._seq FROM bronze.e AS e JOIN bronze.f AS f ON f.k = e.k",
        )?,
        model(
            "silver.united",
            "SELECT k, v, _seq FROM bronze.e UNION ALL SELECT k, v, _seq FROM bronze.f",
        )?,
        model(
            "silver.pairs",
            "SELECT k, unnest([v, v + 1]) AS v, _seq FROM bronze.e",
        )?,
        model(
            "silver.alike",
            "SELECT e.k, e.v, e._seq FROM bronze.e AS e JOIN bronze.f AS f ON f.k = e.k",
        )?,
        model("silver.by_value", "SELECT k, v, v AS _seq FROM bronze.e")?,
        model("silver.constant", "SELECT k, v, 1 AS _seq FROM bronze.e")?,
        model(
            "silver.landed",
            &format!("SELECT {read}, 1 AS _seq FROM landing.e"),
        )?,
    ];
    let site = Site::in_memory(&models, "")?;
    for v in [10, 30, 5, 2] {
        for source in ["e", "f"] {
            let event = json!({ "k": 1, "v": v }).to_string();
            site.event(source, event).await?;
        }
        site.cycle().await?;
    }
    for (name, is_told) in [
        ("silver.joined", false),
        ("silver.united", false),
        ("silver.pairs", false),
        ("silver.alike", true),
        ("silver.by_value", true),
        ("silver.constant", true),
        ("silver.landed", true),
    ] {
        let report = batch::run(&site.lab.world, &[name.parse()?], true, &cycle::Silent).await;
        let report = json!(report.map_err(|error| rows::chain(&error))?).to_string();
        if is_told {
            let found = json!(site.cells(&format!("SELECT k, v FROM {name}")).await?);
            ensure!(found == json!([[1, 2]]), "{name}: {found} {report}");
        } else {
            let refused = report.contains("several rows have k = 1, and which");
            ensure!(refused, "{name}: {report}");
        }
    }
    Ok(())
}
