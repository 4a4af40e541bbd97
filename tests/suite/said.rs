//! What commands say: which lines are errors, warnings and notes, and what an error says to do.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tests::{folder::Folder, program};

use crate::plain::test;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("said::status_run_and_check_tell_of_quarantine", quarantined),
        test("said::an_edit_of_a_live_model_is_a_note", edited),
        test("said::tables_and_their_columns_are_listed", listed),
        test("said::rows_that_nobody_takes_up_are_a_note", still),
        test("said::errors_say_what_to_do", remedies),
        test("said::a_project_is_made_in_folders_only", made),
        test("said::programs_are_told_of_a_misused_command", misused),
    ]
}

const ORDERS: &str = "@config materialized=incremental, live=true, incremental_strategy=append, on_bad_row=quarantine, \
                      incremental_filter=WHERE _seq > {watermark}\n\
                      SELECT CAST(id AS BIGINT) AS id, CAST(amount AS BIGINT) AS amount, _seq FROM landing.orders";
const AUTO: &str = "@config materialized=incremental, live=true, incremental_strategy=auto\n\
                    SELECT id, sum(amount) AS total FROM silver.orders GROUP BY id";

fn project() -> Result<Folder> {
    let folder = Folder::new("query:\n  rows_max: 1\n", &[])?;
    folder.write("transform/silver/orders.sql", ORDERS)?;
    folder.write("transform/gold/totals.sql", AUTO)?;
    let rows = "{\"id\": 1, \"amount\": \"10\"}\n{\"id\": 2, \"amount\": \"two\"}\n{\"id\": 3, \"amount\": \"30\"}\n";
    let file = folder.write("orders.ndjson", rows)?;
    let file = file.to_string_lossy().into_owned();
    expect(
        &folder,
        &["ingest", &file, "--table", "landing.orders"],
        0,
        &["3 rows"],
    )?;
    Ok(folder)
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// Runs a command: how it ends, and what it says.
fn expect(folder: &Folder, arguments: &[&str], code: i32, words: &[&str]) -> Result<String> {
    let output = program::run(folder.path(), arguments)?;
    let text = said(&output);
    ensure!(
        output.status.code() == Some(code),
        "{arguments:?}: {}\n{text}",
        output.status
    );
    for word in words {
        ensure!(text.contains(word), "{arguments:?}: no `{word}` in\n{text}");
    }
    Ok(text)
}

fn quarantined() -> Result<()> {
    let folder = project()?;
    let told = "warning: silver.orders: 1 row";
    for command in [&["run"][..], &["live", "status"], &["check"]] {
        let text = expect(
            &folder,
            command,
            0,
            &[told, "headwater quarantine list silver.orders"],
        )?;
        ensure!(!text.contains("error"), "{command:?}:\n{text}");
    }
    expect(
        &folder,
        &["quarantine", "drop", "silver.orders"],
        0,
        &["1 row dropped"],
    )?;
    for command in [&["live", "status"][..], &["check"]] {
        let text = expect(&folder, command, 0, &[])?;
        ensure!(!text.contains("warning"), "{command:?}:\n{text}");
    }
    Ok(())
}

fn edited() -> Result<()> {
    let folder = project()?;
    expect(&folder, &["run"], 0, &[])?;
    folder.write(
        "transform/silver/orders.sql",
        ORDERS.replace("BIGINT) AS id", "INTEGER) AS id"),
    )?;
    folder.write("transform/gold/totals.sql", AUTO.replace("sum", "max"))?;
    let told = [
        "note: silver.orders: edited since its rows were built",
        "`headwater run silver.orders --full` applies it to all",
        "note: gold.totals: edited since its rows were built: once something new arrives",
        "`headwater run gold.totals --full` does it now",
    ];
    for command in [&["live", "status"][..], &["plan"]] {
        let text = expect(&folder, command, 0, &told)?;
        let silver = text.lines().find(|line| line.starts_with(" silver.orders"));
        ensure!(
            silver.is_some_and(|line| !line.contains("edited")),
            "{text}"
        );
    }
    // Nothing new has come, so that the note stays true after a run.
    let text = expect(&folder, &["run"], 0, &[])?;
    let gold = text.lines().find(|line| line.starts_with(" gold.totals"));
    ensure!(gold.is_some_and(|line| line.contains("idle")), "{text}");
    expect(&folder, &["plan"], 0, &told)?;
    // What it says to do does it.
    expect(&folder, &["run", "gold.totals", "--full"], 0, &[])?;
    let text = expect(&folder, &["plan"], 0, &[])?;
    ensure!(!text.contains("note: gold.totals: edited"), "{text}");
    Ok(())
}

fn still() -> Result<()> {
    let folder = project()?;
    let note = "`headwater live` runs";
    // Nothing has run; and rows may wait for five minutes.
    let text = expect(&folder, &["live", "status"], 0, &["behind"])?;
    ensure!(!text.contains(note), "{text}");
    folder.write("headwater.yml", "live:\n  max_lag: 1ms\n")?;
    let told = ["note: silver.orders", "rows have waited", note];
    expect(&folder, &["live", "status"], 0, &told)?;
    expect(&folder, &["live", "--once"], 0, &[])?;
    let text = expect(&folder, &["live", "status"], 0, &[])?;
    ensure!(!text.contains(note), "{text}");
    Ok(())
}

fn listed() -> Result<()> {
    let folder = project()?;
    expect(&folder, &["run"], 0, &[])?;
    expect(
        &folder,
        &["tables"],
        0,
        &[
            "landing.orders",
            "silver.orders",
            "quarantine.orders",
            "live model",
        ],
    )?;
    expect(
        &folder,
        &["tables", "silver.orders"],
        0,
        &["amount", "BIGINT", "_seq"],
    )?;
    expect(
        &folder,
        &["tables", "silver.order"],
        1,
        &["did you mean `silver.orders`?"],
    )?;
    let output = program::run(folder.path(), &["tables", "landing.orders", "--json"])?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    ensure!(json["columns"][1]["type"] == "VARCHAR", "{json}");
    Ok(())
}

fn remedies() -> Result<()> {
    let folder = project()?;
    let cases: [(&[&str], i32, &[&str]); 8] = [
        (
            &["query", "SELECT * FROM gold.totals"],
            1,
            &["about a second after", "`headwater run gold.totals`"],
        ),
        (
            &["query", "SELECT * FROM landing.orders"],
            1,
            &["LIMIT", "`query.rows_max`"],
        ),
        (
            &["query", "--csv", "SELECT * FROM landing.orders"],
            1,
            &["are not all"],
        ),
        (&["query", "SELECT ?"], 1, &["`$1`"]),
        (&["query", "SHOW TABLES"], 1, &["`headwater tables`"]),
        (
            &["query", "DESCRIBE landing.orders"],
            1,
            &["`headwater tables schema.name`"],
        ),
        (
            &["query", "SELECT * FROM information_schema.tables"],
            1,
            &["`headwater tables`"],
        ),
        (&["live", "advance", "orders"], 2, &["`landing.orders`"]),
    ];
    for (arguments, code, words) in cases {
        expect(&folder, arguments, code, words)?;
    }
    folder.write(
        ".headwater/warehouse/landing/orders/incoming/1.parquet",
        "no parquet",
    )?;
    let words = ["orders/incoming/1.parquet", "move it out of `incoming/`"];
    expect(&folder, &["live", "advance", "landing.orders"], 1, &words)?;
    Ok(())
}

fn made() -> Result<()> {
    let folder = Folder::new("", &[])?;
    let file = folder.write("afile", "")?;
    for below in [file.clone(), file.join("shop")] {
        let below = below.to_string_lossy().into_owned();
        expect(
            &folder,
            &["init", &below],
            2,
            &["is a file", "headwater init shop"],
        )?;
    }
    expect(
        &folder,
        &["init", &folder.path().join("shop").to_string_lossy()],
        0,
        &[],
    )?;
    let kept = std::fs::read_to_string(folder.path().join("shop/.gitignore"))?;
    ensure!(kept == "/.headwater/\n", "{kept}");
    folder.write("repository/.gitignore", "/target\n")?;
    let repository = folder.path().join("repository");
    expect(&folder, &["init", &repository.to_string_lossy()], 0, &[])?;
    let kept = std::fs::read_to_string(repository.join(".gitignore"))?;
    ensure!(kept == "/target\n", "{kept}");
    // The commands can be copied, whatever the folder is called.
    let odd = folder.path().join("a/b's d");
    let odd = odd.to_string_lossy();
    let quoted = odd.replace('\'', r"'\''");
    let serve = format!("--project '{quoted}' serve");
    let data = format!("--data-binary '@{quoted}/data/orders.ndjson' ");
    expect(&folder, &["init", &odd], 0, &[&serve, &data])?;
    Ok(())
}

/// Programs are told on stdout, as of any other error, what is wrong with their command line.
fn misused() -> Result<()> {
    let folder = Folder::new("", &[])?;
    for (arguments, says) in [
        (&["--json", "ingest"][..], "<FILE>"),
        (&["--json", "bogus"], "bogus"),
        (&["query", "--bogus", "--json"], "--bogus"),
        (&["--json"], "--help"),
        (&["entries", "--json"], "--help"),
    ] {
        let output = program::run(folder.path(), arguments)?;
        ensure!(output.status.code() == Some(2), "{arguments:?}: {output:?}");
        let told: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{arguments:?}: {output:?}"))?;
        let error = told["error"].as_str().unwrap_or_default();
        ensure!(
            told["code"] == 2 && error.contains(says) && !error.contains("Usage"),
            "{told}"
        );
        ensure!(output.stderr.is_empty(), "{output:?}");
    }
    // People are told as before, and help is no error.
    let output = program::run(folder.path(), &["ingest"])?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(2) && told.contains("Usage"),
        "{output:?}"
    );
    let output = program::run(folder.path(), &["--json", "--help"])?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    Ok(())
}
