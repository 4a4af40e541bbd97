//! Whether everything is as fresh as was promised: lag of models, and age of what sources last sent.

use domain::{Duration, TableName, Timestamp, duration::parse_duration, rfc3339::parse_rfc3339};
use ports::{Error, Kind, Result};
use serde::Serialize;

use crate::{World, status};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The model or landing table.
    pub subject: TableName,
    /// `model`, `target` (the same model by its `target_lag`) or `source`.
    pub kind: &'static str,
    /// Whether it is as fresh as promised.
    pub ok: bool,
    /// Lag of the model, or age of the source's last advance, in seconds; none for a source that never advanced. Of a
    /// target the 95th percentile of the last hour's lags, or the lag now when that is higher.
    pub seconds: Option<f64>,
    /// What was promised, in seconds.
    pub limit_seconds: f64,
    /// What is wrong; none when nothing is.
    pub why: Option<String>,
}

/// Judges every live model by `max_lag` and by whether it fails, by its `target_lag` if it has one, and every source that a
/// model names in `@source_freshness <table> <age>`.
///
/// # Errors
/// `Invalid` for a `@source_freshness` that is no table and duration; `Unavailable` or `Corrupt` from the ports.
pub async fn check(world: &World) -> Result<Vec<Judged>> {
    let status = status::status(world, None).await?;
    let now = world.clock.now();
    let limit = world.live.max_lag.as_secs_f64();
    let mut judged: Vec<Judged> = status
        .models
        .iter()
        .map(|model| Judged {
            subject: model.model.clone(),
            kind: "model",
            ok: model.fresh && model.consecutive_failures == 0 && !model.paused,
            seconds: Some(model.behind_seconds),
            limit_seconds: limit,
            why: match (&model.last_error, model.paused, model.fresh) {
                (Some(error), _, _) => Some(format!("failing: {error}")),
                (None, true, _) => Some("paused".to_owned()),
                (None, false, false) => Some("behind for longer than `live.max_lag`".to_owned()),
                (None, false, true) => None,
            },
        })
        .collect();
    judged.extend(status.models.iter().filter_map(target_of));
    for model in world.project.models.values() {
        for promise in &model.source_freshness {
            let (table, age) = promised(&model.file, promise)?;
            let source = status.sources.iter().find(|s| s.source == table);
            let advanced: Option<Timestamp> = source
                .and_then(|s| s.advanced_at.as_ref())
                .and_then(|at| parse_rfc3339(at));
            judged.push(source_of(table, age, advanced, now));
        }
    }
    Ok(judged)
}

/// A model by its target.
fn target_of(model: &status::ModelStatus) -> Option<Judged> {
    let (limit, met) = (model.target_seconds?, model.target_met?);
    let hour = model.lag_hour.map(|hour| seconds(hour.p95_ms));
    let why = match hour {
        _ if met => None,
        Some(p95) if p95 > model.behind_seconds => {
            Some("the 95th percentile of the last hour is above its `target_lag`")
        }
        _ => Some("it is behind for longer than its `target_lag`"),
    };
    Some(Judged {
        subject: model.model.clone(),
        kind: "target",
        ok: met,
        seconds: Some(hour.unwrap_or(0.0).max(model.behind_seconds)),
        limit_seconds: limit,
        why: why.map(str::to_owned),
    })
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

/// The table and age of a `@source_freshness`.
///
/// # Errors
/// `Invalid` for what is neither.
pub(crate) fn promised(file: &str, text: &str) -> Result<(TableName, Duration)> {
    let invalid = |why: String| {
        Error::new(Kind::Invalid, "read @source_freshness of", file).because(format!(
            "{why}; write `@source_freshness landing.orders 5m`"
        ))
    };
    let (table, age) = text
        .split_once(char::is_whitespace)
        .ok_or_else(|| invalid(format!("`{text}` is not a table and a duration")))?;
    let table: TableName = table
        .parse()
        .map_err(|e| invalid(format!("`{table}`: {e}")))?;
    if !table.is_landing() {
        return Err(invalid(format!(
            "`{table}` is no landing table; how far models lag is judged by `max_lag`"
        )));
    }
    let age = age.trim();
    let age = age.strip_prefix("max_age=").unwrap_or(age);
    let age = parse_duration(age).map_err(|e| invalid(format!("`{age}`: {e}")))?;
    Ok((table, age))
}

fn source_of(
    table: TableName,
    limit: Duration,
    advanced: Option<Timestamp>,
    now: Timestamp,
) -> Judged {
    let age = advanced.map(|at| now.since(at));
    let why = match age {
        None => Some("nothing has landed in it".to_owned()),
        Some(age) if age > limit => Some("it has not advanced for longer than promised".to_owned()),
        Some(_) => None,
    };
    Judged {
        subject: table,
        kind: "source",
        ok: why.is_none(),
        seconds: age.map(|age| age.as_secs_f64()),
        limit_seconds: limit.as_secs_f64(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_a_table_and_an_age() {
        let (table, age) = promised("a.sql", "landing.orders 5m").expect("a promise");
        assert_eq!(
            (table.to_string().as_str(), age.as_secs()),
            ("landing.orders", 300)
        );
        for wrong in [
            "landing.orders",
            "landing.orders soon",
            "orders 5m extra",
            "",
        ] {
            assert!(promised("a.sql", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_source_is_judged_by_its_last_advance() {
        let table: TableName = "landing.orders".parse().expect("a table");
        let now = Timestamp(1_000_000_000);
        let judge = |advanced| source_of(table.clone(), Duration::from_secs(60), advanced, now).ok;
        assert!(judge(Some(Timestamp(960_000_000))));
        assert!(!judge(Some(Timestamp(930_000_000))));
        assert!(!judge(None));
    }
}
