//! What is said of models beside their tables: errors, warnings and notes, a line each that begins with which it is.

use domain::{Duration, TableName};
use engine::{
    cycle::Report,
    refresh::Refreshed,
    status::{ModelStatus, Status},
};

use crate::screen::{counted, span};

/// How long a refresh may take before it is worth a word.
const ASKED_SECONDS: f64 = 60.0;

/// What a person should know of every model: its last error, what assertions of severity warn say, rows that are not in it, what an
/// edit waits for, that nothing is heard of its refresh, and why it is computed anew each time.
#[must_use]
pub fn of_status(status: &Status) -> Vec<String> {
    status.models.iter().flat_map(of_model).collect()
}

/// That models wait longer than `live.max_lag` for no reason that the state knows: most often nothing runs that would refresh
/// them, which no item tells.
#[must_use]
pub fn of_standstill(status: &Status) -> Option<String> {
    let waits = |model: &&ModelStatus| {
        model.status == "behind" && !model.fresh && model.gathers_until.is_none()
    };
    let waiting: Vec<&ModelStatus> = status.models.iter().filter(waits).collect();
    let first = waiting.first()?;
    let longest = waiting.iter().map(|model| model.behind_seconds);
    let longest = span(Duration::from_secs_f64(longest.fold(0.0, f64::max)));
    let more = match waiting.len() {
        1 => String::new(),
        some => format!(" and {} more", some - 1),
    };
    Some(format!(
        "note: {}{more}: rows have waited {longest}, and nothing says why: models are refreshed while `headwater serve` or \
         `headwater live` runs",
        first.model
    ))
}

fn of_model(model: &ModelStatus) -> Vec<String> {
    let name = &model.model;
    let kept = format!("quarantine.{}", name.name());
    let retry = model.retry_in_seconds.filter(|seconds| *seconds > 0.0);
    let retry = retry
        .map(|s| format!(" (next try in {})", span(Duration::from_secs_f64(s))))
        .unwrap_or_default();
    let error = model.last_error.as_ref();
    let error = error.map(|error| format!("error: {name}: {error}{retry}"));
    let warned = model.warnings.iter();
    let warned = warned.map(|warning| format!("warning: {name}: {warning}"));
    let some = |number: u64, noun: &str, what: String| {
        (number > 0).then(|| format!("warning: {name}: {} {what}", counted(number, noun)))
    };
    let counts = [
        some(
            model.quarantined,
            "row",
            format!("in quarantine; `headwater quarantine list {name}` says why"),
        ),
        some(
            model.late_after_gc,
            "change event",
            format!("came later than tombstones are kept, and went to {kept} (late_after_gc)"),
        ),
        some(
            model.unordered_events,
            "change event",
            format!("without a place in the order of changes, put into {kept} (unordered_events)"),
        ),
        some(
            model.unavailable_values,
            "value",
            String::from(
                "that had not changed and that nobody had: NULL now, named in `unavailable` of their rows",
            ),
        ),
    ];
    let asked = model
        .asked_seconds
        .filter(|seconds| *seconds > ASKED_SECONDS);
    let asked = asked.map(|seconds| {
        format!(
            "warning: {name}: its refresh was asked for {} ago and has not ended; models wait for it, and go on while it is paused",
            span(Duration::from_secs_f64(seconds))
        )
    });
    let edit = model.edit.as_ref();
    let edit = edit.map(|edit| format!("note: {name}: {edit}"));
    let anew = model.recomputes.as_ref();
    let anew =
        anew.map(|why| format!("note: {name}: every refresh computes all its rows anew: {why}"));
    let lines = error.into_iter().chain(warned);
    let lines = lines.chain(counts.into_iter().flatten());
    lines.chain(asked).chain(edit).chain(anew).collect()
}

/// What went wrong in a report: the model and the message, and whether it is an error.
#[must_use]
pub fn of_report(report: &Report) -> Vec<(String, bool)> {
    let models = report.models.iter();
    models
        .flat_map(|(model, how)| of_refresh(model, how))
        .collect()
}

fn of_refresh(model: &TableName, how: &Refreshed) -> Vec<(String, bool)> {
    match how {
        Refreshed::Built {
            warnings,
            recomputed,
            quarantined,
            ..
        } => {
            let told = (*quarantined > 0).then(|| {
                let rows = counted(*quarantined, "row");
                format!("{rows} went to quarantine; `headwater quarantine list {model}` says why")
            });
            let said = warnings.iter().chain(recomputed).cloned().chain(told);
            said.map(|said| (format!("{model}: {said}"), false))
                .collect()
        }
        Refreshed::Error { message } | Refreshed::AssertionFailed { message } => {
            vec![(format!("{model}: {message}"), true)]
        }
        Refreshed::Idle | Refreshed::Conflict | Refreshed::Held { .. } => Vec::new(),
    }
}
