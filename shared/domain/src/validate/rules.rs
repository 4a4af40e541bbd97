//! Rules on whole models, and on models among each other.

use std::collections::BTreeSet;

use super::{File, about, known_inputs};
use crate::{
    Finding, Materialized, Model, Project, Severity, Strategy, TableName,
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
    if incremental && config.live && config.strategy == Strategy::Append && config.filter.is_none()
    {
        let message = "it would append its whole input on every refresh: add \
                       incremental_filter=WHERE _seq > {watermark}";
        file.push(
            Severity::Error,
            "live_append_needs_filter",
            message.to_owned(),
            top,
        );
    }
    let placeholders = placeholders(model);
    // A live table or ephemeral model is refused as such already.
    let has_watermark = config.live && config.materialized != Materialized::View;
    if placeholders.iter().any(is_watermark) && !has_watermark {
        let message = "{watermark} has a value in live incremental models only".to_owned();
        file.push(
            Severity::Error,
            "watermark_without_live",
            message,
            (model.sql_line, 1),
        );
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
    }
}

fn live(project: &Project, model: &Model, findings: &mut Vec<Finding>) {
    let reads = project.walk(model);
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
    let placeholders = placeholders(model);
    if !placeholders.iter().any(is_watermark) {
        let message =
            "it reads its whole input on every refresh: filter by _seq > {watermark}".to_owned();
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

fn placeholders(model: &Model) -> Vec<Placeholder> {
    // Both texts were split into tokens before: an error here was a finding there.
    let mut found = sql::placeholders(&model.sql).unwrap_or_default();
    if let Some(filter) = &model.config.filter {
        found.extend(sql::placeholders(filter).unwrap_or_default());
    }
    found
}

fn is_watermark(placeholder: &Placeholder) -> bool {
    matches!(
        placeholder,
        Placeholder::Watermark | Placeholder::WatermarkOf(_)
    )
}
