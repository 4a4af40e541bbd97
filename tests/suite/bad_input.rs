//! Bad input: each a clear error with a position or a limit, the process alive, nothing acknowledged lost.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;
use tests::{
    folder::Folder,
    program::{self, Served},
    site::Site,
};

use crate::{
    bugs::{hostile_statements, merged},
    plain::{test, test_async},
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = model_files();
    trials.extend([
        test(
            "bad_input::a_project_without_models_is_told_so",
            project_without_models,
        ),
        test(
            "bad_input::a_model_file_that_is_no_text_hides_no_other",
            no_text,
        ),
        test(
            "bad_input::a_model_that_fails_is_told_with_its_place",
            failing_model,
        ),
        test(
            "bad_input::a_state_file_that_is_not_one_is_left_alone",
            not_a_state_file,
        ),
        test(
            "bad_input::ddl_and_copy_are_refused_by_the_program",
            writes_on_the_command_line,
        ),
        test_async("bad_input::a_source_that_is_no_identifier", bad_sources),
        test_async("bad_input::an_empty_body", empty_body),
        test_async(
            "bad_input::invalid_json_names_line_and_column",
            invalid_json,
        ),
        test_async("bad_input::a_20_mb_body_names_the_limit", large_body),
        test_async("bad_input::statements_that_write_are_refused", writes),
        test_async("bad_input::bad_sql_names_its_position", bad_sql),
        test_async("bad_input::long_sql_through_the_real_program", long_sql),
    ]);
    trials
}

/// A name, model files by path, and what the findings must say.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

/// Model files that `validate` refuses: each with what its message must hold.
fn model_files() -> Vec<Trial> {
    let cases: [Case; 6] = [
        (
            "a_wrong_directive",
            &[("silver/a.sql", "@confg materialized=view\nSELECT 1 AS n")],
            &["a.sql", "1", "@config"],
        ),
        (
            "an_unknown_key",
            &[("silver/a.sql", "@config materialised=view\nSELECT 1 AS n")],
            &["a.sql:1", "materialised", "materialized"],
        ),
        (
            "a_cycle",
            &[
                (
                    "silver/a.sql",
                    "@config materialized=view\nSELECT n FROM silver.b",
                ),
                (
                    "silver/b.sql",
                    "@config materialized=view\nSELECT n FROM silver.a",
                ),
            ],
            &["silver.a", "silver.b"],
        ),
        (
            "a_missing_input",
            &[
                (
                    "silver/orders.sql",
                    "@config materialized=view\nSELECT 1 AS n",
                ),
                (
                    "silver/b.sql",
                    "@config materialized=view\nSELECT n FROM silver.ordres",
                ),
            ],
            &["silver.ordres", "silver.orders"],
        ),
        (
            "bad_sql",
            &[(
                "silver/a.sql",
                "@config materialized=view\nSELECT 1 AS n\nFRUM landing.x",
            )],
            &["a.sql:3"],
        ),
        (
            "ddl_as_a_model",
            &[(
                "silver/a.sql",
                "@config materialized=view\nDROP TABLE landing.x",
            )],
            &["a.sql:2", "SELECT"],
        ),
    ];
    let trial = |(name, files, wanted): (&str, &'static [(&str, &str)], &'static [&str])| {
        test(format!("bad_input::{name}_in_a_model_file"), move || {
            validate(files, wanted)
        })
    };
    cases.into_iter().map(trial).collect()
}

fn validate(files: &[(&str, &str)], wanted: &[&str]) -> Result<()> {
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (format!("transform/{path}"), (*text).to_owned()))
        .collect();
    let folder = Folder::new("name: test\n", &files)?;
    let output = program::run(folder.path(), &["validate"])?;
    let said = said(&output);
    ensure!(!output.status.success(), "validate is content: {said}");
    ensure!(output.status.code().is_some(), "validate died: {said}");
    for want in wanted {
        ensure!(said.contains(want), "`{want}` is not in: {said}");
    }
    Ok(())
}

fn no_text() -> Result<()> {
    let files = [(
        "transform/silver/a.sql".to_owned(),
        "@config materialised=view\nSELECT 1 AS n".to_owned(),
    )];
    let folder = Folder::new("name: test\n", &files)?;
    folder.write("transform/silver/b.sql", b"SELECT\n  '\xe9' AS b\n")?;
    for command in ["validate", "run"] {
        let output = program::run(folder.path(), &[command])?;
        let said = said(&output);
        ensure!(output.status.code() == Some(1), "{command}: {said}");
        for want in ["b.sql:2:4: error: the file is no UTF-8", "materialised"] {
            ensure!(said.contains(want), "{command}: `{want}` is not in: {said}");
        }
    }
    Ok(())
}

fn failing_model() -> Result<()> {
    let sources = [
        "@config materialized=table\n\nSELECT\n  INTERVAL '1' DAY AS span\n",
        "@config materialized=table\nSELECT\n  nope FROM (SELECT 1 AS n) AS t\n",
    ];
    let files = ["a", "b"].map(|name| format!("transform/silver/{name}.sql"));
    let files: Vec<_> = files.into_iter().zip(sources.map(str::to_owned)).collect();
    let folder = Folder::new("name: test\n", &files)?;
    // The first makes the state that models are planned over.
    for command in ["run", "run", "validate"] {
        let output = program::run(folder.path(), &[command])?;
        let said = said(&output);
        ensure!(output.status.code() == Some(1), "{command}: {said}");
        for (want, part) in [
            (
                "transform/silver/a.sql:4:23: error: column `span` has type INTERVAL",
                "`span`",
            ),
            ("transform/silver/b.sql:3:3: error: ", "nope"),
        ] {
            ensure!(said.contains(want), "{command}: `{want}` is not in: {said}");
            // Once, and with its place only.
            let told = said.matches(part).count();
            ensure!(
                told == 1,
                "{command}: `{part}` is told {told} times: {said}"
            );
        }
    }
    Ok(())
}

fn said(output: &std::process::Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn project_without_models() -> Result<()> {
    let folder = Folder::new("name: empty\n", &[])?;
    for command in [&["validate"][..], &["run"], &["live", "--once"]] {
        let output = program::run(folder.path(), command)?;
        let said = said(&output);
        ensure!(output.status.code().is_some(), "{command:?} died: {said}");
        ensure!(
            said.contains("no model") || said.contains("transform"),
            "{command:?}: {said}"
        );
    }
    Ok(())
}

fn not_a_state_file() -> Result<()> {
    let folder = Folder::with_models(
        "name: test\n",
        &[merged("silver.x", "id", "SELECT id, _seq FROM landing.x")],
    )?;
    let text = "this is a letter, not a state file; it must survive\n".repeat(40);
    let file = folder.write(".headwater/state.db", &text)?;
    for command in [
        &["live", "status"][..],
        &["run"],
        &["query", "SELECT 1 AS n"],
    ] {
        let output = program::run(folder.path(), command)?;
        let said = said(&output);
        ensure!(
            output.status.code().is_some_and(|code| code != 0),
            "{command:?}: {said}"
        );
        ensure!(
            said.contains("state.db"),
            "{command:?} does not name the file: {said}"
        );
    }
    ensure!(
        std::fs::read_to_string(file)? == text,
        "the file was written to"
    );
    Ok(())
}

const WRITES: [&str; 9] = [
    "DROP TABLE landing.x",
    "CREATE TABLE silver.y AS SELECT 1 AS n",
    "INSERT INTO landing.x VALUES (1)",
    "UPDATE landing.x SET payload = ''",
    "DELETE FROM landing.x",
    "COPY landing.x TO 'out.csv'",
    "COPY (SELECT 1 AS n) TO 'out.parquet'",
    "SET datafusion.execution.batch_size = 1",
    "SELECT 1 AS n; DROP TABLE landing.x",
];

fn writes_on_the_command_line() -> Result<()> {
    let folder = Folder::new("name: test\n", &[])?;
    for sql in WRITES {
        let output = program::run(folder.path(), &["query", sql])?;
        let said = said(&output);
        ensure!(
            output.status.code().is_some_and(|code| code != 0),
            "`{sql}`: {said}"
        );
        ensure!(!said.trim().is_empty(), "`{sql}` is refused without a word");
    }
    for name in ["out.csv", "out.parquet"] {
        ensure!(
            !folder.path().join(name).exists() && !std::path::Path::new(name).exists(),
            "{name} was written"
        );
    }
    Ok(())
}

async fn writes() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    site.event("x", "{}").await?;
    for sql in WRITES {
        let answer = site.query(sql).await?;
        ensure!(
            answer.status == 400,
            "`{sql}`: {} {}",
            answer.status,
            answer.text()
        );
    }
    ensure!(
        site.cells("SELECT * FROM landing.x").await?.len() == 1,
        "a refused statement did something"
    );
    Ok(())
}

async fn bad_sources() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let long = "a".repeat(200);
    for source in [
        "or-ders",
        "1abc",
        "a.b",
        "a%20b",
        "a%3Bdrop",
        "%C3%A9t%C3%A9",
        "..%2Fx",
        &long,
    ] {
        let answer = site.webhook(source, "{}").await?;
        ensure!(
            answer.status == 400,
            "`{source}`: {} {}",
            answer.status,
            answer.text()
        );
        ensure!(
            answer.text().contains("identifier"),
            "`{source}`: {}",
            answer.text()
        );
    }
    Ok(())
}

async fn empty_body() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    for (kind, body) in [
        ("application/json", ""),
        ("application/json", " \n "),
        ("application/x-ndjson", "\n\n"),
    ] {
        let answer = site
            .send(
                "POST",
                "/api/ingest/webhook/x",
                &[("content-type", kind)],
                body,
            )
            .await?;
        ensure!(
            answer.status == 400,
            "{kind} {body:?}: {} {}",
            answer.status,
            answer.text()
        );
        ensure!(
            answer.text().contains("empty"),
            "{kind} {body:?}: {}",
            answer.text()
        );
    }
    Ok(())
}

async fn invalid_json() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let answer = site.webhook("x", "{\n  \"a\": 1,\n  b: 2\n}").await?;
    ensure!(answer.status == 400, "{} {}", answer.status, answer.text());
    ensure!(answer.text().contains("line 3"), "{}", answer.text());
    let headers = [("content-type", "application/x-ndjson")];
    let answer = site
        .send(
            "POST",
            "/api/ingest/webhook/x",
            &headers,
            "{\"a\":1}\n{\"a\":2}\n{oops\n",
        )
        .await?;
    ensure!(answer.status == 400, "{} {}", answer.status, answer.text());
    ensure!(answer.text().contains("line 3"), "{}", answer.text());
    ensure!(
        site.cells("SELECT 1 AS n FROM landing.x")
            .await
            .map_or(true, |rows| rows.is_empty()),
        "half a body was stored"
    );
    Ok(())
}

async fn large_body() -> Result<()> {
    let site = Site::in_memory(&[], "sources:\n  small:\n    body_max: 1000\n")?;
    let body = json!({ "text": "x".repeat(20 << 20) }).to_string();
    let answer = site.webhook("x", body).await?;
    ensure!(answer.status == 413, "{} {}", answer.status, answer.text());
    ensure!(
        answer.text().contains("16"),
        "no limit in {}",
        answer.text()
    );
    let answer = site
        .webhook("small", json!({ "text": "x".repeat(1_000) }).to_string())
        .await?;
    ensure!(
        answer.status == 413 && answer.text().contains("1000"),
        "{} {}",
        answer.status,
        answer.text()
    );
    Ok(())
}

async fn bad_sql() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    site.event("x", "{}").await?;
    let answer = site.query("SELECT *\nFROM landing.x\nWHERE )").await?;
    ensure!(
        answer.status == 400 && answer.text().contains("line 3"),
        "{} {}",
        answer.status,
        answer.text()
    );
    let answer = site.query("SELECT * FROM landing.xx").await?;
    ensure!(
        answer.status == 404 || answer.status == 400,
        "{} {}",
        answer.status,
        answer.text()
    );
    ensure!(answer.text().contains("landing.x"), "{}", answer.text());
    let answer = site.query("SELECT * FROM '/etc/passwd'").await?;
    ensure!(
        answer.status == 400 || answer.status == 404,
        "{} {}",
        answer.status,
        answer.text()
    );
    Ok(())
}

async fn long_sql() -> Result<()> {
    let folder = Folder::new("name: test\n", &[])?;
    let mut served = Served::start(folder.path(), &[]).await?;
    let client = served.client();
    client
        .post("/api/ingest/webhook/x", &json!({ "a": 1 }))
        .await?;
    for (what, sql) in hostile_statements() {
        let answer = client
            .post("/api/query", &json!({ "sql": sql }))
            .await
            .with_context(|| what.to_owned())?;
        ensure!(
            answer.status == 400,
            "{what}: {} {:.200}",
            answer.status,
            answer.text()
        );
    }
    let nested = "[".repeat(10_000);
    let answer = client
        .send("POST", "/api/ingest/webhook/x", &[], nested)
        .await?;
    ensure!(answer.status == 400, "{} {}", answer.status, answer.text());
    ensure!(served.is_alive()?, "the server is gone");
    ensure!(
        client.query("SELECT COUNT(*) AS n FROM landing.x").await?[0]["n"] == 1,
        "an event is gone"
    );
    Ok(())
}
