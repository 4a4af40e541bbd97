//! A real file: 336,776 flights through `ingest`, bronze, silver and gold, compared with a computation of our own.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tests::{folder::Folder, program, rows};

use crate::plain::test_given;

pub(crate) fn trials() -> Vec<Trial> {
    vec![test_given(
        "flights::the_whole_file_through_ingest",
        "HEADWATER_DATA_REQUIRED",
        archive,
        |file| chain(&file),
    )]
}

fn archive() -> Result<PathBuf, String> {
    let file = tests::data::folder().map(|folder| folder.join("flights.csv.zip"));
    file.filter(|file| file.is_file())
        .ok_or_else(|| "no flights.csv.zip beside the repository".to_owned())
}

#[derive(Clone, Copy, Debug, Default)]
struct Delays {
    flights: u64,
    departed: u64,
    departure: i64,
    arrived: u64,
    arrival: i64,
}

/// Delays per carrier and date, of one row per (time_hour, carrier, flight): the last in the file.
fn expected(text: &str) -> Result<BTreeMap<(String, String), Delays>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().context("a header")?.split(',').collect();
    let at = |name: &str| {
        header
            .iter()
            .position(|column| *column == name)
            .with_context(|| name.to_owned())
    };
    let [year, month, day] = [at("year")?, at("month")?, at("day")?];
    let [carrier, flight, hour] = [at("carrier")?, at("flight")?, at("time_hour")?];
    let [departure, arrival] = [at("dep_delay")?, at("arr_delay")?];
    let mut last = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        last.insert((cells[hour], cells[carrier], cells[flight]), cells);
    }
    let mut all: BTreeMap<(String, String), Delays> = BTreeMap::new();
    for cells in last.values() {
        let date = format!("{}-{:0>2}-{:0>2}", cells[year], cells[month], cells[day]);
        let delays = all.entry((cells[carrier].to_owned(), date)).or_default();
        delays.flights += 1;
        if let Ok(minutes) = cells[departure].parse::<i64>() {
            delays.departed += 1;
            delays.departure += minutes;
        }
        if let Ok(minutes) = cells[arrival].parse::<i64>() {
            delays.arrived += 1;
            delays.arrival += minutes;
        }
    }
    Ok(all)
}

fn run(folder: &Folder, arguments: &[&str]) -> Result<String> {
    let output = program::run(folder.path(), arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{arguments:?}: {} {errors}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn query(folder: &Folder, sql: &str) -> Result<Vec<Value>> {
    let answer: Value = serde_json::from_str(&run(folder, &["--json", "query", sql])?)?;
    answer["rows"].as_array().cloned().context("rows")
}

fn chain(file: &std::path::Path) -> Result<()> {
    let csv = tests::data::unzip(file)?;
    let folder = Folder::of_example("flights")?;
    let path = folder.write("flights.csv", &csv)?;
    let text = String::from_utf8(csv)?;
    let rows = text.lines().count() as u64 - 1;
    run(
        &folder,
        &[
            "ingest",
            &path.to_string_lossy(),
            "--table",
            "landing.flights",
        ],
    )?;
    run(&folder, &["live", "--once"])?;
    let counts = query(
        &folder,
        "SELECT (SELECT COUNT(*) FROM landing.flights) AS landing, (SELECT COUNT(*) FROM bronze.flights) AS bronze, \
         (SELECT MAX(_seq) FROM silver.flights) AS last",
    )?;
    ensure!(
        counts[0]["landing"] == rows && counts[0]["bronze"] == rows,
        "{counts:?}, not {rows}"
    );
    same(&folder, &text)?;
    // Loading a part again changes no count: silver merges, and gold follows.
    let again: Vec<&str> = text.lines().take(5_001).collect();
    let path = folder.write("again.csv", again.join("\n"))?;
    run(
        &folder,
        &[
            "ingest",
            &path.to_string_lossy(),
            "--table",
            "landing.flights",
        ],
    )?;
    run(&folder, &["live", "--once"])?;
    same(&folder, &text)
}

fn same(folder: &Folder, text: &str) -> Result<()> {
    let want = expected(text)?;
    let sql = "SELECT carrier, CAST(date AS VARCHAR) AS date, flights, departed, dep_delay_total, arr_delay_mean FROM gold.delays";
    let got = query(folder, sql)?;
    ensure!(
        got.len() == want.len(),
        "{} groups, not {}",
        got.len(),
        want.len()
    );
    for row in &got {
        let word = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let delays = want
            .get(&(word("carrier"), word("date")))
            .with_context(|| format!("no group {row}"))?;
        let counts = row["flights"] == delays.flights && row["departed"] == delays.departed;
        let total = if delays.departed == 0 {
            Value::Null
        } else {
            delays.departure.into()
        };
        #[expect(clippy::cast_precision_loss, reason = "minutes and flights of one day")]
        let mean = match delays.arrived {
            0 => Value::Null,
            arrived => (delays.arrival as f64 / arrived as f64).into(),
        };
        let sums = rows::same(&row["dep_delay_total"], &total)
            && rows::same(&row["arr_delay_mean"], &mean);
        ensure!(counts && sums, "{row} is not {delays:?}");
    }
    Ok(())
}
