//! Status, reports, plans and rows as tables.

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema},
    util::display::{ArrayFormatter, FormatOptions},
};
use comfy_table::{Cell, CellAlignment, Color};
use domain::{Duration, TableName};
use engine::{
    cycle::Report,
    explain::Step,
    refresh::Refreshed,
    status::{ModelStatus, Status},
};
use ports::{Error, Kind, Result};

use crate::screen::{self, Table, coloured, count, counted, number, right, span, table, text};

/// Where every live model stands.
#[must_use]
pub fn models(status: &Status) -> Table {
    let is_target = status
        .models
        .iter()
        .any(|model| model.target_seconds.is_some());
    let mut titles = vec!["model", "status", ">lag", ">p50 / p95, 1 h"];
    titles.extend(is_target.then_some(">target"));
    titles.extend([">rows", ">watermark", ">refreshes", "last refresh"]);
    // Without room for all, what the others say too goes first.
    let (lag, refreshes) = (3, titles.len() - 2);
    let mut table = table(&titles).with_spare(&[refreshes, lag]);
    for model in &status.models {
        let mut row = vec![
            text(&model.model),
            state(model),
            right(span(Duration::from_secs_f64(model.behind_seconds.max(0.0)))),
            right(lag_hour(model)),
        ];
        row.extend(is_target.then(|| target(model)));
        row.extend([
            number(model.rows),
            number(model.watermark),
            number(model.refreshes),
            text(clock_time(model.last_refresh.as_deref(), &status.now)),
        ]);
        table.add_row(row);
    }
    table
}

/// Lags of what was applied in the last hour: half of them, and 95 of 100, were no higher.
fn lag_hour(model: &ModelStatus) -> String {
    let shown = |ms| span(Duration::from_millis(ms));
    model.lag_hour.map_or_else(String::new, |hour| {
        format!("{} / {}", shown(hour.p50_ms), shown(hour.p95_ms))
    })
}

/// A model's target, and whether it is met.
fn target(model: &ModelStatus) -> Cell {
    let Some(seconds) = model.target_seconds else {
        return text("");
    };
    let target = span(Duration::from_secs_f64(seconds));
    match model.target_met {
        Some(false) => {
            coloured(format!("{target}, missed"), Color::Red).set_alignment(CellAlignment::Right)
        }
        Some(true) | None => right(format!("{target}, met")),
    }
}

/// Where every landing table stands.
#[must_use]
pub fn sources(status: &Status) -> Table {
    let mut table = table(&[
        "landing table",
        ">rows",
        ">sequence",
        ">commits",
        "last advance",
    ]);
    for source in &status.sources {
        table.add_row(vec![
            text(&source.source),
            number(source.rows),
            number(source.watermark),
            number(source.commits),
            text(clock_time(source.advanced_at.as_deref(), &status.now)),
        ]);
    }
    table
}

fn state(model: &ModelStatus) -> Cell {
    let colour = match model.status {
        "live" => Color::Green,
        "failing" => Color::Red,
        "paused" => Color::DarkGrey,
        _ => Color::Yellow,
    };
    match &model.waiting_on {
        Some(other) => coloured(format!("waiting on {other}"), colour),
        None => coloured(model.status, colour),
    }
}

/// An RFC 3339 moment in UTC, without its date when that is today's: `2026-11-29 16:44:49`, `16:44:49`.
fn clock_time(moment: Option<&str>, now: &str) -> String {
    let Some(moment) = moment else {
        return String::from("never");
    };
    let whole = screen::moment(moment);
    match (whole.split_once(' '), now.split_once('T')) {
        (Some((day, time)), Some((today, _))) if day == today => time.to_owned(),
        _ => whole,
    }
}

/// What a cycle or a batch run did, in the `order` of the project.
#[must_use]
pub fn report(report: &Report, order: &[TableName]) -> Table {
    let mut table = table(&[
        "model",
        "outcome",
        ">added",
        ">removed",
        ">rows",
        ">took",
        ">age of data",
    ]);
    for (model, how) in order
        .iter()
        .filter_map(|name| report.models.get_key_value(name))
    {
        let mut row = vec![text(model), outcome(how)];
        if let Refreshed::Built {
            added,
            deleted,
            rows,
            lag_ms,
            duration_ms,
            ..
        } = how
        {
            row.extend([number(*added), number(*deleted), number(*rows)]);
            row.extend([*duration_ms, *lag_ms].map(|ms| right(span(Duration::from_millis(ms)))));
        }
        table.add_row(row);
    }
    table
}

fn outcome(how: &Refreshed) -> Cell {
    match how {
        Refreshed::Built { warnings, .. } if warnings.is_empty() => coloured("built", Color::Green),
        Refreshed::Built { warnings, .. } => coloured(
            format!("built, {}", counted(warnings.len() as u64, "warning")),
            Color::Yellow,
        ),
        Refreshed::Idle => text("idle"),
        Refreshed::Conflict => coloured("conflict", Color::Yellow),
        Refreshed::Error { .. } => coloured("error", Color::Red),
        Refreshed::AssertionFailed { .. } => coloured("assertion failed", Color::Red),
        Refreshed::Held { reason } => coloured(format!("held: {reason}"), Color::Yellow),
    }
}

/// How one refresh ended, on one line.
#[must_use]
pub fn sentence(model: &TableName, how: &Refreshed) -> Option<String> {
    match how {
        Refreshed::Built {
            added,
            deleted,
            rows,
            lag_ms,
            duration_ms,
            quarantined,
            ..
        } => Some(format!(
            "refreshed  {model}  +{} -{}, {} now, {}, lag {}{}",
            count(*added),
            count(*deleted),
            counted(*rows, "row"),
            span(Duration::from_millis(*duration_ms)),
            span(Duration::from_millis(*lag_ms)),
            match quarantined {
                0 => String::new(),
                some => format!(", {} quarantined", count(*some)),
            },
        )),
        Refreshed::Error { message } => Some(format!("failed     {model}  {message}")),
        Refreshed::AssertionFailed { message } => Some(format!("refused    {model}  {message}")),
        Refreshed::Conflict => Some(format!("conflict   {model}  looked at again next cycle")),
        Refreshed::Idle | Refreshed::Held { .. } => None,
    }
}

/// What a run would do.
#[must_use]
pub fn plan(steps: &[Step]) -> Table {
    let mut table = table(&["model", "action", "reason", "reads", "strategy"]);
    for step in steps {
        let colour = match step.action {
            "idle" | "view" | "ephemeral" => Color::DarkGrey,
            "held" => Color::Yellow,
            _ => Color::Green,
        };
        table.add_row(vec![
            text(&step.model),
            coloured(step.action, colour),
            text(step.reason.split(EDITED).next().unwrap_or_default()),
            text(step.reads.join("\n")),
            text(match anew(step) {
                Some(_) => "auto, all rows anew",
                None => &step.strategy,
            }),
        ]);
    }
    table
}

/// Where the sentence about an edit begins in a reason.
const EDITED: &str = "; edited since";

/// Why an auto model is computed anew with every refresh.
fn anew(step: &Step) -> Option<&str> {
    step.strategy.strip_prefix("auto: ")
}

/// What is said of a plan below its table: sentences that no column has room for.
#[must_use]
pub fn plan_notes(steps: &[Step]) -> Vec<String> {
    let notes = |step: &Step| {
        let model = &step.model;
        let edited = step.reason.split_once(EDITED);
        let edited = edited.map(|(_, rest)| format!("note: {model}: edited since{rest}"));
        let anew = anew(step)
            .map(|why| format!("note: {model}: every refresh computes all its rows anew: {why}"));
        edited.into_iter().chain(anew).collect::<Vec<_>>()
    };
    steps.iter().flat_map(notes).collect()
}

/// Rows of a statement.
///
/// # Errors
/// `Invalid` for a column that has no form as text.
pub fn rows(schema: &Schema, batches: &[RecordBatch]) -> Result<Table> {
    let title = |field: &Field| match field.data_type().is_numeric() {
        true => format!(">{}", printable(field.name())),
        false => printable(field.name()),
    };
    let titles: Vec<String> = schema.fields().iter().map(|field| title(field)).collect();
    let mut table = table(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    let options = FormatOptions::default()
        .with_display_error(true)
        .with_null("NULL");
    for batch in batches {
        let batch = web::rows::readable(batch)?;
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| Error::new(Kind::Invalid, "show", "rows").because(error))?;
        for row in 0..batch.num_rows() {
            table.add_row(columns.iter().zip(batch.columns()).map(|(shown, column)| {
                let is_number = column.data_type().is_numeric();
                let align = if is_number {
                    CellAlignment::Right
                } else {
                    CellAlignment::Left
                };
                Cell::new(printable(&shown.value(row).to_string())).set_alignment(align)
            }));
        }
    }
    Ok(table)
}

/// Text that cannot move the cursor or end a table row: control characters are shown as escapes.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
    }
    out
}
