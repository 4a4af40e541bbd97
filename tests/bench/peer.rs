//! The peer's own scripts, in the same run, when a Python that has it is named by `HEADWATER_PEER_PYTHON`.

use std::{path::PathBuf, process::Command};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::Options;

pub(crate) fn run(options: &Options) -> Result<Value> {
    let Some(python) = std::env::var_os("HEADWATER_PEER_PYTHON").map(PathBuf::from) else {
        return Ok(json!({ "peer": "not installed: HEADWATER_PEER_PYTHON names no Python" }));
    };
    let Some(scripts) = tests::folder_of("HEADWATER_PEER", "../shared/peers/havn") else {
        return Ok(
            json!({ "peer": "its scripts are not beside the repository: HEADWATER_PEER names no folder" }),
        );
    };
    let full: &[&[&str]] = &[
        &["bench_latency.py", "default", "12"],
        &["bench_latency.py", "flush", "20"],
        &["bench_latency.py", "flush_fast", "20"],
        &["bench_ingest.py", "8", "20"],
        &["bench_ingest.py", "32", "20"],
        &["bench_refresh.py", "1000000", "10000", "5"],
        &["bench_refresh.py", "5000000", "10000", "3"],
        &["bench_cdc.py", "1000000", "100000", "5", "hard"],
    ];
    let quick: &[&[&str]] = &[
        &["bench_latency.py", "flush", "8"],
        &["bench_ingest.py", "8", "5"],
        &["bench_refresh.py", "1000000", "10000", "3"],
        &["bench_cdc.py", "1000000", "100000", "3", "hard"],
    ];
    let results = tempfile::tempdir()?;
    let file = results.path().join("results.jsonl");
    for script in if options.quick { quick } else { full } {
        eprintln!("  {}", script.join(" "));
        let output = Command::new(&python)
            .args(*script)
            .current_dir(&scripts)
            .env("PEER_RESULTS", &file)
            .env("PYTHONPATH", scripts.join("offline_shim"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()?;
        ensure!(
            output.status.success(),
            "{script:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let lines = std::fs::read_to_string(file)?;
    Ok(lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .collect())
}
