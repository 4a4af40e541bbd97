//! `headwater ingest`: a file becomes landing rows.

use std::path::Path;

use domain::TableName;
use engine::ingest::{self, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Context, named, print_json};
use crate::{
    failure::Failure,
    screen::{counted, say, span},
    world,
};

/// Loads a file.
pub(super) async fn ingest(
    context: &Context,
    file: &Path,
    table: Option<&str>,
) -> Result<(), Failure> {
    let settings = context.settings()?;
    let table = match table {
        Some(table) => named(table)?,
        None => from_file_name(file)?,
    };
    let world = world::open_any(&settings)?;
    let bar = bar(context);
    let started = std::time::Instant::now();
    let show = |progress: Progress| {
        bar.set_length(progress.bytes_total);
        bar.set_position(progress.bytes_done);
        bar.set_message(counted(progress.rows, "row"));
    };
    let loaded = ingest::file(&world, &table, file, None, &show).await;
    bar.finish_and_clear();
    let loaded = loaded?;
    if context.json {
        return print_json(&loaded);
    }
    let took = span(started.elapsed());
    if loaded.quarantined > 0 {
        let rows = counted(loaded.quarantined, "row");
        let line = format!(
            "{rows} did not fit and went to quarantine.{}, with the reason",
            table.name()
        );
        say(&line)?;
    }
    Ok(say(&format!(
        "{table}: {} from {} in {took}",
        counted(loaded.rows, "row"),
        file.display()
    ))?)
}

/// `landing.<file name without its endings>`.
fn from_file_name(file: &Path) -> Result<TableName, Failure> {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    TableName::landing(stem).map_err(|error| {
        Failure::usage(format!(
            "the file's name makes no table name ({error}); say which with --table landing.<name>"
        ))
    })
}

fn bar(context: &Context) -> ProgressBar {
    if context.json {
        return ProgressBar::hidden();
    }
    // Drawn to stderr, and only on a terminal.
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = "{bar:32} {percent:>3} %  {msg}  {binary_bytes_per_sec}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}
