//! What a model may take for the order in which rows came, and what it may compare with a watermark.

use anyhow::{Result, ensure};
use engine::{batch, cycle};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{case::ModelText, rows, site::Site};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("sequences::what_is_none_is_refused", foreign),
        test_async(
            "sequences::those_of_another_input_tell_nothing",
            other_input,
        ),
        test_async("sequences::arms_of_a_union_have_a_watermark_each", arms),
        test_async("sequences::rows_of_a_feed_have_those_of_its_table", feed),
    ]
}

const COLUMNS: &str =
    "(payload->>'k')::BIGINT AS k, (payload->>'g')::BIGINT AS g, (payload->>'v')::BIGINT AS v";

/// A live model; one with a key is a merge.
fn model(name: &str, key: &str, filter: &str, sql: &str) -> ModelText {
    let mut config =
        json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "append" });
    if !key.is_empty() {
        config["incremental_strategy"] = json!("merge");
        config["unique_key"] = json!(key);
    }
    if !filter.is_empty() {
        config["incremental_filter"] = json!(filter);
    }
    ModelText {
        name: name.to_owned(),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: sql.replace("{columns}", COLUMNS),
        asserts: Vec::new(),
    }
}

async fn event(site: &Site, source: &str, k: u64, g: u64, v: u64) -> Result<()> {
    let event = json!({ "k": k, "g": g, "v": v }).to_string();
    site.event(source, event).await.map(|_| ())
}

/// What a rebuild says.
async fn rebuilt(site: &Site, name: &str) -> Result<String> {
    let report = batch::run(&site.lab.world, &[name.parse()?], true, &cycle::Silent).await;
    Ok(json!(report.map_err(|error| rows::chain(&error))?).to_string())
}

async fn expect(site: &Site, sql: &str, expected: Value) -> Result<()> {
    let found = json!(site.cells(sql).await?);
    ensure!(found == expected, "{sql}: {found}");
    Ok(())
}

async fn foreign() -> Result<()> {
    let newer = "WHERE _seq > {watermark}";
    let inside = "FROM (SELECT {columns}, _seq FROM landing.a WHERE _seq > {watermark})";
    let (none, compared) = ("readers take `_seq`", "compares what is not the _seq of");
    let all = [
        (
            newer,
            "",
            "SELECT {columns}, (payload->>'v')::BIGINT AS _seq FROM landing.a",
            compared,
        ),
        (
            "",
            "k",
            &format!("SELECT k, v, -_seq AS _seq {inside}"),
            none,
        ),
        (
            "",
            "k",
            &format!("SELECT k, v, v AS \"_SEQ\" {inside}"),
            none,
        ),
        (
            "",
            "k",
            &format!("SELECT k, g, min(_seq) AS _seq {inside} GROUP BY k, g"),
            none,
        ),
        (
            "",
            "k",
            &format!("SELECT k, v, greatest(v, _seq) AS _seq {inside}"),
            none,
        ),
        (
            "",
            "",
            &format!("SELECT k, v, row_number() OVER (ORDER BY v) AS _seq {inside}"),
            none,
        ),
        (
            "WHERE _seq > {watermark:landing.a}",
            "k, v",
            "SELECT {columns}, _seq FROM landing.a UNION ALL SELECT {columns}, _seq FROM landing.b",
            compared,
        ),
        (
            "WHERE a._seq > {watermark:landing.b}",
            "",
            "SELECT {columns}, a._seq FROM landing.a AS a WHERE EXISTS (SELECT 1 FROM landing.b)",
            compared,
        ),
    ];
    let named = all.iter().zip(0..);
    let named: Vec<_> = named
        .map(|(of, at)| (format!("silver.m{at}"), of))
        .collect();
    let models: Vec<_> = named
        .iter()
        .map(|(name, (filter, key, sql, _))| model(name, key, filter, sql))
        .collect();
    let site = Site::in_memory(&models, "")?;
    for source in ["a", "b"] {
        event(&site, source, 1, 1, 7).await?;
        event(&site, source, 2, 1, 8).await?;
    }
    let planned = engine::check::models(&site.lab.world).await;
    let planned = planned.map_err(|error| rows::chain(&error))?;
    for (name, (_, _, sql, told)) in named {
        let report = rebuilt(&site, &name).await?;
        ensure!(report.contains(told), "{sql}: {report}");
        let mut findings = planned.findings.iter();
        let found = findings.any(|found| found.model == name && found.message.contains(told));
        ensure!(found, "{sql}: {:?}", planned.findings);
    }
    Ok(())
}

/// Rows that come by one table, with the sequence of another.
async fn other_input() -> Result<()> {
    let joined = |yields: &str| {
        format!(
            "SELECT x.k, y.v, {yields} FROM (SELECT {COLUMNS}, _seq FROM landing.a) AS x JOIN
               (SELECT {COLUMNS}, _seq FROM landing.b) AS y ON x.g = y.g"
        )
    };
    let newer = "WHERE x._seq > {watermark:landing.a}";
    let models = [
        model("silver.other", "k", newer, &joined("y._seq")),
        model("silver.own", "k", newer, &joined("x._seq")),
    ];
    let site = Site::in_memory(&models, "")?;
    event(&site, "b", 0, 1, 10).await?;
    event(&site, "b", 0, 2, 20).await?;
    event(&site, "a", 1, 2, 0).await?;
    event(&site, "a", 1, 1, 0).await?;
    let report = rebuilt(&site, "silver.other").await?;
    ensure!(report.contains("several rows have k = 1"), "{report}");
    rebuilt(&site, "silver.own").await?;
    expect(&site, "SELECT k, v FROM silver.own", json!([[1, 10]])).await
}

async fn arms() -> Result<()> {
    let arm = |table: &str| {
        format!("SELECT {COLUMNS}, _seq FROM {table} WHERE _seq > {{watermark:{table}}}")
    };
    let united = format!("{} UNION ALL {}", arm("landing.a"), arm("landing.b"));
    let site = Site::in_memory(&[model("bronze.u", "", "", &united)], "")?;
    for v in 0..5 {
        event(&site, "a", 1, 0, v).await?;
        if v % 2 == 0 {
            event(&site, "b", 2, 0, v).await?;
        }
        site.cycle().await?;
    }
    let all = json!([
        [1, 0],
        [1, 1],
        [1, 2],
        [1, 3],
        [1, 4],
        [2, 0],
        [2, 2],
        [2, 4]
    ]);
    expect(&site, "SELECT k, v FROM bronze.u ORDER BY k, v", all).await
}

async fn feed() -> Result<()> {
    let models = [
        model(
            "bronze.e",
            "",
            "WHERE _seq > {watermark}",
            "SELECT {columns}, _seq FROM landing.a",
        ),
        model(
            "silver.last",
            "k",
            "",
            "SELECT k, v FROM {changes:bronze.e} WHERE _change = 'insert'",
        ),
    ];
    let site = Site::in_memory(&models, "")?;
    for v in [5, 9, 3] {
        for k in [1, 2] {
            event(&site, "a", k, 0, v).await?;
            event(&site, "a", k, 0, v + k).await?;
        }
        site.cycle().await?;
        let expected = json!([[1, v + 1], [2, v + 2]]);
        expect(&site, "SELECT k, v FROM silver.last ORDER BY k", expected).await?;
    }
    Ok(())
}
