//! What the demonstration shows.

use std::time::Instant;

use engine::status::Status;
use serde_json::{Value, json};

use super::{Stage, check::Group, poster::Progress};
use crate::{
    remarks,
    screen::{count, counted, number, right, span, table, text},
};

/// The live picture on a terminal.
pub(super) fn block(
    stage: &Stage,
    status: &Status,
    progress: &Progress,
    gold: &[Group],
    started: Instant,
) -> String {
    let elapsed = span(started.elapsed());
    let picture = picture(stage, status, progress, gold);
    format!(
        "status page  {}    {elapsed} so far\n\n{picture}",
        stage.url
    )
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
    let events_total = counted(progress.drawn().total(), "event");
    let verdict = match is_equal {
        true => format!("gold equals the query run from scratch over {events_total}"),
        false => format!("gold is NOT what the query gives from scratch over {events_total}"),
    };
    let tables = picture(stage, status, progress, gold);
    format!("{tables}\n{verdict}")
}

/// Events, layers, groups and freshness, apart from each other.
fn picture(stage: &Stage, status: &Status, progress: &Progress, gold: &[Group]) -> String {
    [
        events(progress),
        layers(status),
        groups(gold),
        freshness(stage),
    ]
    .join("\n\n")
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
        "gold": gold.iter().map(group).collect::<Vec<_>>(),
        "freshness_ms": {
            "posts": figures.posts,
            "p50": figures.p50.as_secs_f64() * 1_000.0,
            "p95": figures.p95.as_secs_f64() * 1_000.0,
            "max": figures.max.as_secs_f64() * 1_000.0,
        },
        "equals_recompute": is_equal,
    })
}

/// A group as an object; figures keep their digits.
fn group(group: &Group) -> Value {
    let figure = |at: usize| {
        group
            .get(at)
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
    };
    json!({ "region": group.first(), "orders": figure(1), "revenue": figure(2) })
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
        ">rows",
        ">sequence",
        ">commits or refreshes",
        ">last took",
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
    let troubles: String = remarks::of_status(status)
        .iter()
        .map(|trouble| format!("\n{trouble}"))
        .collect();
    format!("{shown}{troubles}")
}

fn groups(gold: &[Group]) -> String {
    let mut shown = table(&["region", ">orders", ">revenue"]);
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
