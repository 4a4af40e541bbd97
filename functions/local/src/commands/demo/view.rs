//! What the demonstration shows.

use std::time::Instant;

use engine::status::Status;
use serde_json::{Value, json};

use super::{Stage, check::Group, poster::Progress};
use crate::{
    screen::{count, counted, number, right, span, table, text},
    tables,
};

/// The live picture on a terminal.
pub(super) fn block(
    stage: &Stage,
    status: &Status,
    progress: &Progress,
    gold: &[Group],
    started: Instant,
) -> String {
    let head = format!(
        "status page  {}    {} so far",
        stage.url,
        span(started.elapsed())
    );
    [
        head,
        events(progress),
        layers(status),
        groups(gold),
        freshness(stage),
    ]
    .join("\n")
}

/// One line, where there is no terminal to draw on.
pub(super) fn line(
    stage: &Stage,
    status: &Status,
    progress: &Progress,
    started: Instant,
) -> String {
    let rows = |name: &str| {
        let found = status
            .models
            .iter()
            .find(|model| model.model.to_string() == name);
        found.map_or(0, |model| model.rows)
    };
    let figures = stage.freshness.figures();
    format!(
        "{:>6}  {} posted  bronze {}  silver {}  gold {}  POST to gold p50 {} p95 {}",
        span(started.elapsed()),
        counted(progress.drawn().total(), "event"),
        count(rows("bronze.orders")),
        count(rows("silver.orders")),
        count(rows("gold.revenue")),
        span(figures.p50),
        span(figures.p95),
    )
}

/// The end of it.
pub(super) fn end(
    stage: &Stage,
    status: &Status,
    progress: &Progress,
    gold: &[Group],
    is_equal: bool,
) -> String {
    let verdict = match is_equal {
        true => format!(
            "gold equals the query run from scratch over {}: yes",
            counted(progress.drawn().total(), "event")
        ),
        false => String::from("gold equals the query run from scratch: NO"),
    };
    [
        "",
        &events(progress),
        &layers(status),
        &groups(gold),
        &freshness(stage),
        &verdict,
    ]
    .join("\n")
}

/// The end of it, for programs.
pub(super) fn summary(
    stage: &Stage,
    status: &Status,
    progress: &Progress,
    gold: &[Group],
    is_equal: bool,
    started: Instant,
) -> Value {
    let figures = stage.freshness.figures();
    let rows: serde_json::Map<String, Value> = status
        .models
        .iter()
        .map(|model| (model.model.to_string(), json!(model.rows)))
        .collect();
    json!({
        "events": progress.drawn().total(),
        "events_by_kind": progress.drawn(),
        "posts": progress.posts(),
        "seconds": started.elapsed().as_secs_f64(),
        "rows": rows,
        "gold": gold,
        "freshness_ms": {
            "posts": figures.posts,
            "p50": figures.p50.as_secs_f64() * 1_000.0,
            "p95": figures.p95.as_secs_f64() * 1_000.0,
            "max": figures.max.as_secs_f64() * 1_000.0,
        },
        "equals_recompute": is_equal,
    })
}

fn events(progress: &Progress) -> String {
    let drawn = progress.drawn();
    format!(
        "{} posted: {} new, {} changed, {} moved to another region, {} cancelled",
        counted(drawn.total(), "event"),
        count(drawn.placed),
        count(drawn.changed),
        count(drawn.moved),
        count(drawn.cancelled),
    )
}

fn layers(status: &Status) -> String {
    let mut shown = table(&[
        "table",
        "rows",
        "sequence",
        "commits or refreshes",
        "last took",
    ]);
    for source in &status.sources {
        let row = [
            text(&source.source),
            number(source.rows),
            number(source.watermark),
            number(source.commits),
        ];
        shown.add_row(row.into_iter().chain([text("")]));
    }
    for model in &status.models {
        let took = model
            .last_duration_ms
            .map(|ms| format!("{ms} ms"))
            .unwrap_or_default();
        let row = [
            text(&model.model),
            number(model.rows),
            number(model.watermark),
            number(model.refreshes),
        ];
        shown.add_row(row.into_iter().chain([right(took)]));
    }
    let troubles: String = tables::troubles(status)
        .iter()
        .map(|trouble| format!("\nerror: {trouble}"))
        .collect();
    format!("{shown}{troubles}")
}

fn groups(gold: &[Group]) -> String {
    let mut shown = table(&["region", "orders", "revenue"]);
    for group in gold {
        let mut cells = group.iter();
        let name = text(cells.next().map_or("", String::as_str));
        shown.add_row(std::iter::once(name).chain(cells.map(right)));
    }
    shown.to_string()
}

fn freshness(stage: &Stage) -> String {
    let figures = stage.freshness.figures();
    format!(
        "POST to gold: p50 {}, p95 {}, slowest {} over {}",
        span(figures.p50),
        span(figures.p95),
        span(figures.max),
        counted(figures.posts as u64, "POST"),
    )
}
