//! Metrics as lines of the log, in the embedded metric format of CloudWatch: no call is made for them.
//!
//! Source: "CloudWatch embedded metric format specification", version 0.

use std::{
    io::{self, Write},
    time::SystemTime,
};

use serde_json::{Map, Value, json};

/// The namespace that dashboards and alarms look in.
const NAMESPACE: &str = "Headwater";

/// One value: its name, its unit in CloudWatch's words, and how much.
pub(crate) type Metric = (&'static str, &'static str, f64);

/// Writes a line with metrics of one dimension, such as `("function", "ingest")`.
pub(crate) fn emit(dimension: (&str, &str), metrics: &[Metric]) {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    // Work does not fail for want of a figure.
    let _ = writeln!(io::stdout().lock(), "{}", line(millis, dimension, metrics));
}

fn line(millis: u64, (dimension, of): (&str, &str), metrics: &[Metric]) -> Value {
    let described: Vec<Value> = metrics
        .iter()
        .map(|(name, unit, _)| json!({ "Name": name, "Unit": unit }))
        .collect();
    let mut line = Map::new();
    line.insert(
        "_aws".into(),
        json!({ "Timestamp": millis, "CloudWatchMetrics": [{
            "Namespace": NAMESPACE, "Dimensions": [[dimension]], "Metrics": described,
        }] }),
    );
    line.insert(dimension.into(), json!(of));
    for (name, _, value) in metrics {
        line.insert((*name).into(), json!(value));
    }
    Value::Object(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_what_it_describes() {
        let line = line(
            1_767_225_600_000,
            ("model", "gold.revenue"),
            &[("lag", "Milliseconds", 412.0), ("added", "Count", 3.0)],
        );
        let described = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(described["Dimensions"], json!([["model"]]));
        assert_eq!(
            described["Metrics"][1],
            json!({ "Name": "added", "Unit": "Count" })
        );
        assert_eq!(
            (&line["model"], &line["lag"]),
            (&json!("gold.revenue"), &json!(412.0))
        );
    }
}
