//! Models that find out by themselves what changed.

use super::codes::{check, check_place};

const AUTO: &str = "@config materialized=incremental, live=true, incremental_strategy=auto";
const ORDERS: (&str, &str) = (
    "silver.orders",
    "@config materialized=incremental, live=true, unique_key=x\nSELECT x, y FROM landing.ev WHERE _seq > {watermark}",
);

fn auto(sql: &str) -> String {
    format!("{AUTO}\n{sql}")
}

#[test]
fn what_can_be_traced_is_no_finding() {
    let model = auto("SELECT x, count(*) AS n FROM silver.orders GROUP BY x");
    check(&[ORDERS, ("gold.g", &model)], &[]);
}

#[test]
fn what_cannot_be_traced_is_told_with_its_input() {
    let model = auto("SELECT count(*) AS n FROM silver.orders");
    check(&[ORDERS, ("gold.g", &model)], &["gold.g auto_untraceable?"]);
    check_place(
        &auto("SELECT x FROM landing.ev LIMIT 3"),
        "auto_untraceable",
        1,
        1,
        "`landing.ev`",
    );
    let table = (
        "silver.t",
        "@config materialized=table\nSELECT x FROM landing.ev",
    );
    let model = auto("SELECT x, count(*) AS n FROM landing.ev JOIN silver.t USING (x) GROUP BY x");
    check(
        &[table, ("gold.g", &model)],
        &["gold.g auto_untraceable?", "gold.g live_reads_batch_model?"],
    );
}

#[test]
fn it_says_nothing_of_what_changed() {
    let model = auto("SELECT x, count(*) AS n FROM {changes:landing.ev} GROUP BY x");
    check_place(&model, "auto_with_placeholder", 2, 30, "auto finds out");
    let model = format!(
        "{AUTO}, incremental_filter=WHERE _seq > {{watermark}}\nSELECT x, count(*) AS n FROM landing.ev GROUP BY x"
    );
    check(&[("gold.g", &model)], &["gold.g auto_ignores_filter?"]);
}
