//! What `validate` finds by planning models over what has landed.

use anyhow::{Result, ensure};
use engine::check;
use libtest_mimic::Trial;
use serde_json::json;
use tests::{case::ModelText, rows, site::Site};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "checks::what_cannot_be_planned_is_found_at_its_place",
            found,
        ),
        test_async("checks::what_can_only_fail_is_found", failing),
        test_async("checks::what_is_to_come_is_no_mistake", coming),
        test_async(
            "checks::models_are_planned_over_models_that_are_not_built",
            chained,
        ),
        test_async("checks::an_auto_model_that_is_computed_anew_is_found", anew),
        test_async(
            "checks::a_query_and_an_assertion_that_are_wrong_are_told_together",
            together,
        ),
    ]
}

fn model(name: &str, config: serde_json::Value, sql: &str) -> ModelText {
    ModelText {
        name: name.to_owned(),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: sql.to_owned(),
        asserts: Vec::new(),
    }
}

async fn site(models: &[ModelText]) -> Result<Site> {
    let site = Site::in_memory(models, "")?;
    site.event("t", json!({ "id": 1 }).to_string()).await?;
    Ok(site)
}

async fn found() -> Result<()> {
    let merge = json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "merge",
        "unique_key": "idd", "incremental_filter": "WHERE _seq > {watermark}" });
    for (config, sql, code, says, line) in [
        (
            json!({ "materialized": "table" }),
            "SELECT id,\n  nope FROM landing.t",
            "query",
            "nope",
            1,
        ),
        (
            json!({ "materialized": "table" }),
            "SELECT\n  substrin(id, 1)\nFROM landing.t",
            "query",
            "substrin",
            1,
        ),
        (
            merge,
            "SELECT id, _seq FROM landing.t",
            "unknown_key_column",
            "`idd`",
            0,
        ),
    ] {
        let text = model("a.m", config, sql);
        let site = site(std::slice::from_ref(&text)).await?;
        let findings = check::models(&site.lab.world).await;
        let findings = findings
            .map(|planned| planned.findings)
            .map_err(|error| rows::chain(&error))?;
        let [finding] = findings.as_slice() else {
            anyhow::bail!("{sql}: {findings:?}")
        };
        ensure!(
            finding.code == code && finding.message.contains(says),
            "{finding:?}"
        );
        if line > 0 {
            let first = site
                .lab
                .world
                .project
                .models
                .values()
                .next()
                .map_or(0, |m| m.sql_line);
            ensure!(
                finding.line == first + line && finding.column == 3,
                "{finding:?}"
            );
        }
    }
    Ok(())
}

async fn together() -> Result<()> {
    let mut text = model(
        "a.m",
        json!({ "materialized": "table" }),
        "SELECT nope FROM landing.t",
    );
    text.asserts = vec!["no_null(nope)".to_owned(), "nope > 1".to_owned()];
    let site = site(&[text]).await?;
    let findings = check::models(&site.lab.world).await;
    let findings = findings
        .map(|planned| planned.findings)
        .map_err(|error| rows::chain(&error))?;
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
    ensure!(codes == ["query", "assert_invalid"], "{findings:?}");
    Ok(())
}

/// Findings about one model over an event of `landing.t`.
async fn findings_of(model: ModelText) -> Result<Vec<domain::Finding>> {
    let site = site(&[model]).await?;
    let findings = check::models(&site.lab.world).await;
    findings
        .map(|planned| planned.findings)
        .map_err(|error| rows::chain(&error))
}

async fn failing() -> Result<()> {
    let table = || json!({ "materialized": "table" });
    let cdc = |op: &str, seq: &str| {
        json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "merge", "unique_key": "id",
            "cdc_op": op, "cdc_seq": seq, "incremental_filter": "WHERE _seq > {watermark}" })
    };
    let events = "SELECT id, 'I' AS op, 1 AS lsn, _seq FROM landing.t";
    for (config, sql, code, says) in [
        (
            cdc("opp", "lsn"),
            events,
            "unknown_cdc_column",
            "`cdc_op` names `opp`",
        ),
        (
            cdc("OP", "lns"),
            events,
            "unknown_cdc_column",
            "`cdc_seq` names `lns`",
        ),
        (
            cdc("op", "lsn"),
            "SELECT id, 'I' AS op, max(_seq) AS lsn FROM landing.t GROUP BY id",
            "query",
            "yield a column _seq",
        ),
        (
            table(),
            "SELECT 1 AS a, 2 AS \"A\"",
            "columns_invalid",
            "column `A` twice",
        ),
        (
            table(),
            "SELECT INTERVAL '1' DAY AS span",
            "columns_invalid",
            "column `span` has type INTERVAL",
        ),
        (
            table(),
            "SELECT payload->'n' AS n FROM landing.t",
            "columns_invalid",
            "column `n` has type JSON",
        ),
    ] {
        let found = findings_of(model("a.m", config, sql)).await?;
        let [finding] = found.as_slice() else {
            anyhow::bail!("{sql}: {found:?}")
        };
        ensure!(
            finding.code == code && finding.message.contains(says),
            "{finding:?}"
        );
    }
    for (assert, says) in [
        ("relationships(id, gold.nope, id)", "gold.nope"),
        ("id IN (SELECT id FROM nowhere)", "needs its schema"),
    ] {
        let asserts = ModelText {
            asserts: vec![assert.to_owned()],
            ..model("a.m", table(), "SELECT id FROM landing.t")
        };
        let found = findings_of(asserts).await?;
        ensure!(
            matches!(found.as_slice(), [one] if one.code == "assert_invalid" && one.message.contains(says)),
            "{found:?}"
        );
    }
    Ok(())
}

async fn coming() -> Result<()> {
    // What lands, is quarantined or deleted makes its table; a view keeps nothing.
    let table = || json!({ "materialized": "table" });
    let asserts = [
        "relationships(id, landing.later, id)",
        "relationships(id, quarantine.t, id)",
        "relationships(id, a.m__tombstones, id)",
    ];
    let asserts = ModelText {
        asserts: asserts.map(str::to_owned).into(),
        ..model("a.m", table(), "SELECT id FROM landing.t")
    };
    let view = |sql| model("a.m", json!({}), sql);
    for model in [
        asserts,
        view("SELECT 1 AS a, 2 AS \"A\""),
        view("SELECT payload->'n' AS n FROM landing.t"),
    ] {
        let found = findings_of(model).await?;
        ensure!(found.is_empty(), "{found:?}");
    }
    Ok(())
}

async fn chained() -> Result<()> {
    let live = |key: &str| {
        json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "merge", "unique_key": key,
            "incremental_filter": "WHERE _seq > {watermark}" })
    };
    let models = |amount: &str| {
        vec![
            model(
                "bronze.t",
                live("id"),
                "SELECT payload->>'id' AS id, 1 AS amount, _seq FROM landing.t",
            ),
            model(
                "gold.t",
                json!({}),
                &format!("SELECT id, sum({amount}) AS total FROM bronze.t GROUP BY id"),
            ),
            model(
                "other.t",
                json!({ "materialized": "table" }),
                "SELECT anything FROM landing.not_there_yet",
            ),
        ]
    };
    for (amount, count) in [("amount", 0), ("amout", 1)] {
        let site = site(&models(amount)).await?;
        let planned = check::models(&site.lab.world).await;
        let planned = planned.map_err(|error| rows::chain(&error))?;
        ensure!(planned.findings.len() == count, "{amount}: {planned:?}");
        let unplanned: Vec<_> = planned.unplanned.iter().map(ToString::to_string).collect();
        ensure!(unplanned == ["other.t"], "{unplanned:?}");
    }
    Ok(())
}

async fn anew() -> Result<()> {
    let merge = json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "merge", "unique_key": "id",
        "incremental_filter": "WHERE _seq > {watermark}" });
    let auto = json!({ "materialized": "incremental", "live": "true", "incremental_strategy": "auto", "unique_key": "id" });
    let joined = |condition: &str| {
        format!(
            "SELECT o.id, c.boss FROM silver.orders AS o LEFT JOIN silver.customers AS c ON c.id = o.customer \
             WHERE EXISTS (SELECT 1 FROM silver.others AS b WHERE b.id = {condition})"
        )
    };
    // A name without its relation is of the table that has such a column.
    for (condition, count) in [("o.customer", 0), ("customer", 0), ("boss", 1)] {
        let read = |name: &str, columns: &str| {
            let sql = format!("SELECT payload->>'id' AS id{columns}, _seq FROM landing.t");
            model(name, merge.clone(), &sql)
        };
        let models = [
            read("silver.orders", ", 'x' AS customer"),
            read("silver.customers", ", 'y' AS boss"),
            read("silver.others", ""),
            model("gold.t", auto.clone(), &joined(condition)),
        ];
        let site = site(&models).await?;
        let findings = check::models(&site.lab.world).await;
        let findings = findings
            .map(|planned| planned.findings)
            .map_err(|error| rows::chain(&error))?;
        ensure!(findings.len() == count, "{condition}: {findings:?}");
        let told = findings.iter().all(|finding| {
            finding.code == "auto_untraceable"
                && finding.severity == domain::Severity::Warning
                && finding.message.contains("boss")
        });
        ensure!(told, "{condition}: {findings:?}");
    }
    Ok(())
}
