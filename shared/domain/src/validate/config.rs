//! The `@config` keys, from words to types.

use super::File;
use crate::{
    Config, Materialized, OnSchemaChange, Severity, Strategy,
    duration::parse_duration,
    model::Cdc,
    name::nearest,
    parse::{CONFIG_KEYS, list},
};

/// Reads every key, with a finding for each that cannot be.
pub(super) fn read(file: &mut File<'_>) -> Config {
    keys(file);
    let text = |key: &str| {
        let pair = file.header.config.iter().rfind(|(k, ..)| k == key);
        pair.map(|(_, value, ..)| value.clone())
    };
    let words = [
        "materialized",
        "incremental_strategy",
        "on_schema_change",
        "live",
        "live_interval",
    ];
    let [materialized, strategy, on_schema_change, live, interval] = words.map(text);
    let [op, seq, deletes, bad_row] = ["cdc_op", "cdc_seq", "cdc_deletes", "on_bad_row"].map(text);
    let [key, partition, tags] = ["unique_key", "partition_by", "tags"]
        .map(|key| text(key).map(|text| list(&text)).unwrap_or_default());
    let filter = text("incremental_filter");
    let live = live_flag(live, file);
    let mut config = Config {
        materialized: materialization(materialized, live, file),
        live,
        unique_key: key,
        strategy: strategy_word(strategy, file),
        filter: filter.filter(|text| starts_with_where(text, file)),
        partition_by: partition,
        on_schema_change: schema_change(on_schema_change, file),
        quarantine: bad_row_word(bad_row, file),
        tags,
        ..Config::default()
    };
    if let Some(text) = interval {
        match parse_duration(&text) {
            Ok(span) => config.live_interval = Some(span),
            Err(error) => {
                file.error_at_key("live_interval_invalid", "live_interval", error.to_string())
            }
        }
    }
    config.cdc = cdc(op, seq, deletes, &config, file);
    config
}

fn keys(file: &mut File<'_>) {
    let header = file.header;
    for (index, (key, _, line, column)) in header.config.iter().enumerate() {
        if !CONFIG_KEYS.contains(&key.as_str()) {
            let hint = nearest(key, CONFIG_KEYS.iter().copied())
                .map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
            let message = format!("there is no config key `{key}`{hint}");
            file.push(
                Severity::Error,
                "unknown_config_key",
                message,
                (*line, *column),
            );
        } else if header.config[..index]
            .iter()
            .any(|(earlier, ..)| earlier == key)
        {
            let message = format!("`{key}` is set twice; the last one would win");
            file.push(
                Severity::Error,
                "duplicate_config_key",
                message,
                (*line, *column),
            );
        }
    }
}

fn live_flag(text: Option<String>, file: &mut File<'_>) -> bool {
    match text.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let message = format!("`live={other}` is neither true nor false");
            file.error_at_key("live_flag_not_boolean", "live", message);
            false
        }
    }
}

fn materialization(text: Option<String>, live: bool, file: &mut File<'_>) -> Materialized {
    const WORDS: [&str; 4] = ["view", "table", "incremental", "ephemeral"];
    let Some(word) = text.map(|text| text.to_ascii_lowercase()) else {
        return Materialized::View;
    };
    let read = match word.as_str() {
        "view" => return Materialized::View,
        "incremental" => return Materialized::Incremental,
        "table" => Materialized::Table,
        "ephemeral" => Materialized::Ephemeral,
        "snapshot" if live => Materialized::Table,
        "snapshot" => {
            let message = "snapshots are not available: use an incremental model".to_owned();
            file.error_at_key("snapshot_unsupported", "materialized", message);
            return Materialized::Table;
        }
        _ => {
            let hint = nearest(&word, WORDS)
                .map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
            let message = format!("`{word}` is none of view, table, incremental, ephemeral{hint}");
            file.error_at_key("unknown_materialization", "materialized", message);
            return Materialized::View;
        }
    };
    if live {
        let message = format!("a live model is incremental or a view, not `{word}`");
        file.error_at_key("live_materialization", "materialized", message);
    }
    read
}

fn strategy_word(text: Option<String>, file: &mut File<'_>) -> Strategy {
    match text.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("merge") => Strategy::Merge,
        Some("delete+insert") => Strategy::DeleteInsert,
        Some("append") => Strategy::Append,
        Some("auto") => {
            let message =
                "strategy auto is not available yet: use merge or delete+insert".to_owned();
            file.error_at_key("strategy_not_available", "incremental_strategy", message);
            Strategy::Auto
        }
        Some(other) => {
            let hint = nearest(other, ["merge", "delete+insert", "append"])
                .map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
            let message = format!("`{other}` is none of merge, delete+insert, append{hint}");
            file.error_at_key("unknown_strategy", "incremental_strategy", message);
            Strategy::Merge
        }
    }
}

fn schema_change(text: Option<String>, file: &mut File<'_>) -> OnSchemaChange {
    match text.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("append_new_columns") => OnSchemaChange::AppendNewColumns,
        Some("ignore") => OnSchemaChange::Ignore,
        Some("fail") => OnSchemaChange::Fail,
        Some("sync_all_columns") => OnSchemaChange::SyncAllColumns,
        Some(other) => {
            let message =
                format!("`{other}` is none of append_new_columns, ignore, fail, sync_all_columns");
            file.error_at_key("unknown_on_schema_change", "on_schema_change", message);
            OnSchemaChange::AppendNewColumns
        }
    }
}

fn bad_row_word(text: Option<String>, file: &mut File<'_>) -> bool {
    match text.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("fail") => false,
        Some("quarantine") => true,
        Some(other) => {
            let message = format!("`{other}` is none of fail, quarantine");
            file.error_at_key("unknown_on_bad_row", "on_bad_row", message);
            false
        }
    }
}

fn starts_with_where(text: &str, file: &mut File<'_>) -> bool {
    let word = text.trim_start().get(..5).unwrap_or_default();
    let good = word.eq_ignore_ascii_case("where");
    if !good {
        let message = "incremental_filter starts with WHERE".to_owned();
        file.error_at_key("filter_without_where", "incremental_filter", message);
    }
    good
}

fn cdc(
    op: Option<String>,
    seq: Option<String>,
    deletes: Option<String>,
    config: &Config,
    file: &mut File<'_>,
) -> Option<Cdc> {
    let soft_deletes = match deletes.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("hard") => false,
        Some("soft") => true,
        Some(other) => {
            let message = format!("`cdc_deletes={other}` is none of hard, soft");
            file.error_at_key("cdc_deletes_unknown", "cdc_deletes", message);
            false
        }
    };
    if op.is_none() && seq.is_none() {
        if deletes.is_some() {
            let message = "cdc_deletes does nothing without cdc_op and cdc_seq".to_owned();
            file.at_key(
                Severity::Warning,
                "cdc_deletes_without_cdc",
                "cdc_deletes",
                message,
            );
        }
        return None;
    }
    let key = if op.is_some() { "cdc_op" } else { "cdc_seq" };
    if op.is_none() || seq.is_none() {
        file.error_at_key(
            "cdc_op_seq_pair",
            key,
            "cdc_op and cdc_seq go together".to_owned(),
        );
    }
    if !matches!(config.strategy, Strategy::Merge | Strategy::DeleteInsert)
        || config.materialized != Materialized::Incremental
    {
        let message =
            "change events need an incremental model with merge or delete+insert".to_owned();
        file.error_at_key("cdc_strategy", key, message);
    }
    if config.unique_key.is_empty() {
        file.error_at_key(
            "cdc_needs_key",
            key,
            "change events need a unique_key".to_owned(),
        );
    }
    Some(Cdc {
        op: op?,
        seq: seq?,
        soft_deletes,
    })
}
