//! Samples of durations, and the projects they are taken from.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tests::case::ModelText;

/// Milliseconds with two decimals, as JSON.
pub(crate) fn summary(mut samples: Vec<Duration>) -> Value {
    samples.sort();
    let ms = |at: f64| {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let index = (at * (samples.len().saturating_sub(1)) as f64).round() as usize;
        let micros = samples.get(index).map_or(0, Duration::as_micros);
        (u32::try_from(micros / 10).map_or(f64::MAX, f64::from)) / 100.0
    };
    json!({ "n": samples.len(), "min": ms(0.0), "p50": ms(0.5), "p95": ms(0.95), "max": ms(1.0), "unit": "ms" })
}

/// Per second, rounded.
pub(crate) fn rate(count: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(count) * 1_000_000 / time.as_micros().max(1)).unwrap_or(u64::MAX)
}

fn model(name: &str, keys: &[(&str, &str)], sql: &str) -> ModelText {
    let mut config: BTreeMap<String, String> = keys
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    config.insert("materialized".into(), "incremental".into());
    config.insert("live".into(), "true".into());
    ModelText {
        name: name.to_owned(),
        config,
        sql: sql.to_owned(),
        asserts: Vec::new(),
    }
}

/// `silver.orders` by merge over the given columns of `landing.orders`, and `gold.revenue` per region over it.
fn chain(columns: &str) -> Vec<ModelText> {
    let merge = [
        ("incremental_strategy", "merge"),
        ("unique_key", "order_id"),
        ("incremental_filter", "WHERE _seq > {watermark}"),
    ];
    let silver = model(
        "silver.orders",
        &merge,
        &format!("SELECT {columns}, _seq FROM landing.orders"),
    );
    let gold = model(
        "gold.revenue",
        &[
            ("incremental_strategy", "delete+insert"),
            ("unique_key", "region"),
        ],
        "SELECT region, COUNT(*) AS orders, SUM(amount) AS revenue FROM silver.orders \
         WHERE region IN (SELECT region FROM silver.orders WHERE _seq > {watermark}) GROUP BY region",
    );
    vec![silver, gold]
}

/// The chain over webhook events.
pub(crate) fn json_chain() -> Vec<ModelText> {
    chain(
        "CAST(payload->>'order_id' AS BIGINT) AS order_id, CAST(payload->>'amount' AS DOUBLE) AS amount, \
         payload->>'region' AS region",
    )
}

/// The chain over typed rows.
pub(crate) fn typed_chain() -> Vec<ModelText> {
    chain("order_id, amount, region")
}
