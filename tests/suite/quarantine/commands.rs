//! The commands about rows that stay out of a model.

use super::*;

pub(super) fn all() -> Result<()> {
    let folder = Folder::with_models("", &[orders(STRICT)])?;
    let file = folder.path().join("orders.ndjson");
    let line = |id: u64, amount: &str| json!({ "id": id, "amount": amount }).to_string();
    let lines = [line(1, "10"), line(2, "two"), line(3, "three")];
    let payloads = lines.map(|line| json!({ "payload": line }).to_string());
    std::fs::write(&file, payloads.join("\n"))?;
    let run = |arguments: &[&str]| -> Result<String> {
        let output = program::run(folder.path(), arguments)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{arguments:?}: {text}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let path = file.to_string_lossy().into_owned();
    run(&["ingest", &path, "--table", "landing.orders"])?;
    run(&["run"])?;
    let list = run(&["quarantine", "list"])?;
    for part in [
        "silver.orders: 2 rows",
        "landing.orders",
        "two",
        "quarantine.orders",
    ] {
        ensure!(list.contains(part), "no `{part}` in\n{list}");
    }
    let shown = run(&["quarantine", "show", "silver.orders", "3", "--json"])?;
    let shown: Value = serde_json::from_str(&shown)?;
    let row = shown["row"].as_str().unwrap_or_default();
    ensure!(shown["id"] == 3 && row.contains("three"), "{shown}");
    run(&["quarantine", "drop", "silver.orders", "--id", "3"])?;
    // Nothing has been mended: nothing goes in, and that is no success.
    let replay = ["quarantine", "replay", "silver.orders"];
    let output = program::run(folder.path(), &replay)?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{output:?}");
    for word in [
        "1 row would break it still",
        "quarantine drop silver.orders",
    ] {
        ensure!(told.contains(word), "no `{word}` in\n{told}");
    }
    let output = program::run(folder.path(), &[&replay[..], &["--json"]].concat())?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let done: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(
        done["replayed"] == 0 && done["left"][0]["id"] == 2,
        "{done}"
    );
    let text = run(&["quarantine", "list", "silver.orders", "--json"])?;
    let listed: Value = serde_json::from_str(&text)?;
    ensure!(
        listed["models"][0]["rows"].as_array().map(Vec::len) == Some(1),
        "{listed}"
    );
    ensure!(
        listed["tables"][0] == json!({ "table": "quarantine.orders", "rows": 2 }),
        "{listed}"
    );
    let output = program::run(folder.path(), &["quarantine", "show", "silver.orders", "3"])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    run(&["quarantine", "drop", "silver.orders"])?;
    // Where nothing is in quarantine, nothing fails.
    run(&replay)?;
    Ok(())
}

pub(super) fn unordered() -> Result<()> {
    let sql = "SELECT (payload->>'id')::BIGINT AS id, payload->>'op' AS op, (payload->>'lsn')::BIGINT AS lsn, _seq \
               FROM landing.orders";
    let events = json!({ "on_bad_row": null, "cdc_op": "op", "cdc_seq": "lsn" });
    let folder = Folder::with_models("", &[model("silver.orders", events, sql, &[])])?;
    let event = |id: u64, lsn: Value| json!({ "id": id, "op": "c", "lsn": lsn }).to_string();
    let lines = [event(1, json!(1)), event(2, Value::Null)];
    let lines = lines.map(|line| json!({ "payload": line }).to_string());
    let file = folder.write("orders.ndjson", lines.join("\n"))?;
    let path = file.to_string_lossy().into_owned();
    let run = |arguments: &[&str]| -> Result<String> {
        let output = program::run(folder.path(), arguments)?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    run(&["ingest", &path, "--table", "landing.orders"])?;
    run(&["run"])?;
    let list = run(&["quarantine", "list"])?;
    let query = "SELECT reason, payload FROM quarantine.orders";
    for part in ["no model has rows", query] {
        ensure!(list.contains(part), "no `{part}` in\n{list}");
    }
    let shown = run(&["query", query, "--json"])?;
    ensure!(shown.contains("without a sequence"), "{shown}");
    Ok(())
}
