//! Rules on whole models, and on models among each other.

use std::collections::BTreeSet;

use super::{File, about, known_inputs};
use crate::{
    Finding, Materialized, Model, Project, Severity, Strategy, TableName,
    project::Reads,
    sql::{self, Placeholder},
};

/// What one model must keep by itself.
pub(super) fn model(model: &Model, file: &mut File<'_>) {
    let config = &model.config;
    let top = (1, 1);
    if model.name.is_landing() {
        let message = "the landing schema holds raw tables: put the model in another".to_owned();
        file.push(Severity::Error, "writes_landing", message, top);
    }
    if model.name.schema().starts_with(sql::FEED_PREFIX) {
        let message = format!(
            "schemas that begin with `{}` are change feeds",
            sql::FEED_PREFIX
        );
        file.push(Severity::Error, "name_reserved", message, top);
    }
    if config.materialized == Materialized::Ephemeral && !model.asserts.is_empty() {
        let message = "an ephemeral model is never stored: there is nothing to check".to_owned();
        file.push(Severity::Error, "ephemeral_assertions", message, top);
    }
    if config.live_interval.is_some() && !config.live {
        let message = "live_interval does nothing without live=true".to_owned();
        file.at_key(
            Severity::Warning,
            "live_interval_without_live",
            "live_interval",
            message,
        );
    }
    if config.target_lag.is_some()
        && !(config.live && config.materialized == Materialized::Incremental)
    {
        let message =
            "target_lag does nothing but in a live incremental model: add live=true".to_owned();
        file.at_key(
            Severity::Warning,
            "target_lag_without_live",
            "target_lag",
            message,
        );
    }
    if !config.partition_by.is_empty() {
        let message =
            "partition_by is kept but not applied yet: the table is not partitioned".to_owned();
        file.at_key(
            Severity::Warning,
            "partition_by_not_applied",
            "partition_by",
            message,
        );
    }
    let incremental = config.materialized == Materialized::Incremental;
    if incremental
        && matches!(config.strategy, Strategy::Merge | Strategy::DeleteInsert)
        && config.unique_key.is_empty()
        && config.cdc.is_none()
    {
        let message = "without a unique_key rows are only added: set one, or use append".to_owned();
        file.push(Severity::Warning, "missing_unique_key", message, top);
    }
    let placeholders = placeholders(model);
    if model.is_auto() {
        auto(model, &placeholders, file);
    }
    let reads_changes = placeholders.iter().any(|placed| is_feed(&placed.0));
    if incremental
        && config.live
        && config.strategy == Strategy::Append
        && config.filter.is_none()
        && !reads_changes
        && !placeholders.iter().any(|placed| is_watermark(&placed.0))
    {
        let message = "it would append its whole input on every refresh: add \
                       incremental_filter=WHERE _seq > {watermark}, or read {changes}";
        file.push(
            Severity::Error,
            "live_append_needs_filter",
            message.to_owned(),
            top,
        );
    }
    // A live table or ephemeral model is refused as such already.
    let has_watermark = config.live && config.materialized != Materialized::View;
    if placeholders.iter().any(|placed| is_watermark(&placed.0)) && !has_watermark {
        let message = "{watermark} has a value in live incremental models only".to_owned();
        file.push(
            Severity::Error,
            "watermark_without_live",
            message,
            (model.sql_line, 1),
        );
    }
    if let Some((_, at)) = placeholders.iter().find(|placed| is_feed(&placed.0))
        && !(config.live && incremental)
    {
        let message = "{changes} has rows in live incremental models only".to_owned();
        file.push(Severity::Error, "changes_without_live", message, *at);
    }
}

/// A model that finds out by itself what changed says nothing about it.
fn auto(model: &Model, placeholders: &[(Placeholder, (usize, usize))], file: &mut File<'_>) {
    if model.config.filter.is_some() {
        let message =
            "auto finds out by itself what changed, and leaves incremental_filter out".to_owned();
        file.at_key(
            Severity::Warning,
            "auto_ignores_filter",
            "incremental_filter",
            message,
        );
    }
    // Those of a filter are left out with it.
    let of_query = sql::placeholders(&model.sql).unwrap_or_default().len();
    if let Some((_, at)) = placeholders.iter().take(of_query).next() {
        let message =
            "auto finds out by itself what changed: its query is written as for all rows, without \
                       {watermark}, {changes} or {this}"
                .to_owned();
        file.push(Severity::Error, "auto_with_placeholder", message, *at);
    }
}

/// What models must keep among each other.
pub(crate) fn project(
    project: &Project,
    known: Option<&BTreeSet<TableName>>,
    findings: &mut Vec<Finding>,
) {
    let known_to_exist = known_inputs(project, known);
    // Models that could not be read have findings of their own; their readers need no second one.
    let left_out: BTreeSet<TableName> = findings
        .iter()
        .filter_map(|finding| finding.model.parse().ok())
        .collect();
    let exists = |table: &TableName| known_to_exist(table) || left_out.contains(table);
    for model in project
        .order
        .iter()
        .filter_map(|name| project.models.get(name))
    {
        for read in model.reads.iter().filter(|read| !exists(read)) {
            let text = read.to_string();
            let hint = project
                .models
                .keys()
                .chain(known.into_iter().flatten())
                .map(ToString::to_string)
                .collect::<Vec<_>>();
            let near = crate::name::nearest(&text, hint.iter().map(String::as_str))
                .map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
            let message = format!("`{read}` is neither a model nor a known table{near}");
            // A landing table may simply not have received anything yet.
            let severity = if read.is_landing() {
                Severity::Warning
            } else {
                Severity::Error
            };
            findings.push(at_name(model, read, severity, "missing_input", message));
        }
        if model.config.live && model.config.materialized == Materialized::Incremental {
            live(project, model, findings);
        }
        if let Some(Err(why)) = project.traced(model) {
            let finding = about(
                model,
                Severity::Warning,
                "auto_untraceable",
                why.to_string(),
            );
            findings.push(finding);
        }
    }
}

fn live(project: &Project, model: &Model, findings: &mut Vec<Finding>) {
    let reads = project.walk(model);
    feeds(model, &reads, findings);
    let mut push = |severity, code, message| findings.push(about(model, severity, code, message));
    for batch in &reads.batch {
        let message =
            format!("`{batch}` is built by batch runs only: its changes do not refresh this model");
        push(Severity::Warning, "live_reads_batch_model", message);
    }
    if reads.live.is_empty() {
        let message = "nothing it reads is live: it never refreshes by itself".to_owned();
        push(Severity::Warning, "live_no_live_input", message);
    }
    let placeholders: Vec<Placeholder> = placeholders(model).into_iter().map(|p| p.0).collect();
    if !model.is_auto() && !placeholders.iter().any(|p| is_watermark(p) || is_feed(p)) {
        let message = "it reads its whole input on every refresh: filter by _seq > {watermark}, \
                       or read {changes}"
            .to_owned();
        push(Severity::Warning, "live_not_incremental_read", message);
    }
    if reads.live.len() > 1 && placeholders.contains(&Placeholder::Watermark) {
        let names: Vec<String> = reads.live.iter().map(ToString::to_string).collect();
        let message = format!(
            "several live inputs ({}): name one, {{watermark:{}}}",
            names.join(", "),
            names[0]
        );
        push(Severity::Error, "watermark_ambiguous", message);
    }
    for placeholder in &placeholders {
        if let Placeholder::WatermarkOf(input) = placeholder
            && !reads.live.contains(input)
        {
            let message = format!("`{input}` is no live input of this model");
            push(Severity::Error, "watermark_unknown_input", message);
        }
    }
}

/// A change feed is that of a live input, named when there are several.
fn feeds(model: &Model, reads: &Reads, findings: &mut Vec<Finding>) {
    for (placeholder, (line, column)) in placeholders(model) {
        let (code, message) = match placeholder {
            Placeholder::Changes if reads.live.len() != 1 => {
                let names: Vec<String> = reads.live.iter().map(ToString::to_string).collect();
                let message = match names.first() {
                    Some(first) => format!(
                        "several live inputs ({}): name one, {{changes:{first}}}",
                        names.join(", ")
                    ),
                    None => "{changes} does not say whose: name the input, {changes:schema.table}"
                        .to_owned(),
                };
                ("changes_ambiguous", message)
            }
            // Of a table that does not exist this is said already.
            Placeholder::ChangesOf(input)
                if !reads.live.contains(&input) && !reads.unknown.contains(&input) =>
            {
                let message = format!(
                    "`{input}` has no change feed: only landing tables and live incremental models do"
                );
                ("changes_unknown_input", message)
            }
            _ => continue,
        };
        let mut finding = about(model, Severity::Error, code, message);
        (finding.line, finding.column) = (line, column);
        findings.push(finding);
    }
}

/// A finding at the place where the model's query first names a table.
fn at_name(
    model: &Model,
    table: &TableName,
    severity: Severity,
    code: &'static str,
    message: String,
) -> Finding {
    let mut finding = about(model, severity, code, message);
    let wanted = table.to_string();
    for (index, line) in model.sql.lines().enumerate() {
        if let Some(byte) = line.to_ascii_lowercase().find(&wanted) {
            finding.line = model.sql_line + index;
            finding.column = line.get(..byte).map_or(0, |head| head.chars().count()) + 1;
            break;
        }
    }
    finding
}

/// Placeholders with their places in the file; those of the filter are at its top, where directives are.
fn placeholders(model: &Model) -> Vec<(Placeholder, (usize, usize))> {
    // Both texts were split into tokens before: an error here was a finding there.
    let mut found = sql::placed(&model.sql).unwrap_or_default();
    for (_, (line, _)) in &mut found {
        *line += model.sql_line.saturating_sub(1);
    }
    if let Some(filter) = &model.config.filter {
        let of_filter = sql::placeholders(filter).unwrap_or_default().into_iter();
        found.extend(of_filter.map(|placeholder| (placeholder, (1, 1))));
    }
    found
}

fn is_feed(placeholder: &Placeholder) -> bool {
    matches!(
        placeholder,
        Placeholder::Changes | Placeholder::ChangesOf(_)
    )
}

fn is_watermark(placeholder: &Placeholder) -> bool {
    matches!(
        placeholder,
        Placeholder::Watermark | Placeholder::WatermarkOf(_)
    )
}
