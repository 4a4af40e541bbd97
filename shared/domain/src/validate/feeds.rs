//! Change feeds: of what, where, and for whom.

use super::codes::{check, check_place, load_all};

const LIVE: &str = "@config materialized=incremental, live=true, unique_key=x";
const ORDERS: (&str, &str) = (
    "silver.orders",
    "@config materialized=incremental, live=true, unique_key=x\nSELECT x FROM landing.ev WHERE _seq > {watermark}",
);

fn live(sql: &str) -> String {
    format!("{LIVE}\n{sql}")
}

#[test]
fn a_feed_is_an_input() {
    let model = live("SELECT x, count(*) AS n FROM {changes:silver.orders} GROUP BY x");
    let files = [ORDERS, ("gold.g", model.as_str())];
    check(&files, &[]);
    let (project, _) = load_all(&files);
    let input = "silver.orders".parse().expect("a name");
    assert_eq!(project.inputs[&"gold.g".parse().expect("a name")], [input]);
    let filtered = format!(
        "{LIVE}, incremental_filter=WHERE x IN (SELECT x FROM {{changes:silver.orders}})\n\
         SELECT x, count(*) AS n FROM silver.orders GROUP BY x"
    );
    check(&[ORDERS, ("gold.g", &filtered)], &[]);
}

#[test]
fn a_feed_without_a_name_is_of_the_only_live_input() {
    check(
        &[(
            "gold.g",
            &live("SELECT x FROM landing.ev WHERE x IN (SELECT x FROM {changes})"),
        )],
        &[],
    );
    check(
        &[(
            "gold.g",
            &live("@depends_on landing.ev\nSELECT x FROM {changes}"),
        )],
        &[],
    );
    let join = live(
        "SELECT a.x\nFROM landing.a AS a JOIN landing.b AS b ON a.x = b.x\n\
         WHERE a.x IN (SELECT x FROM {changes})",
    );
    check(&[("gold.g", &join)], &["gold.g changes_ambiguous!"]);
    check_place(&join, "changes_ambiguous", 4, 29, "{changes:landing.a}");
    check_place(
        &live("SELECT x FROM {changes}"),
        "changes_ambiguous",
        2,
        15,
        "name the input",
    );
}

#[test]
fn what_never_refreshes_has_no_feed() {
    let table = (
        "silver.t",
        "@config materialized=table\nSELECT x FROM landing.ev",
    );
    let of_table = live("SELECT x FROM {changes:silver.t}");
    check(
        &[table, ("gold.g", &of_table)],
        &[
            "gold.g changes_unknown_input!",
            "gold.g live_no_live_input?",
            "gold.g live_reads_batch_model?",
        ],
    );
    check(
        &[("gold.g", "SELECT x FROM {changes:landing.ev}")],
        &["gold.g changes_without_live!"],
    );
    let own = live("SELECT x FROM landing.ev JOIN {changes:gold.g} AS c USING (x)");
    check(&[("gold.g", &own)], &["gold.g changes_unknown_input!"]);
    let nobodys = live("SELECT x FROM landing.ev JOIN {changes:silver.zzz} AS c USING (x)");
    check(&[("gold.g", &nobodys)], &["gold.g missing_input!"]);
}

#[test]
fn a_feed_is_a_table() {
    let compared = live("SELECT x FROM landing.ev\nWHERE _seq > {changes}");
    check(&[("gold.g", &compared)], &["gold.g changes_no_table!"]);
    check_place(&compared, "changes_no_table", 3, 14, "FROM or JOIN");
    let quoted = live("SELECT '{changes}' AS x FROM landing.ev -- {changes}");
    check(
        &[("gold.g", &quoted)],
        &["gold.g live_not_incremental_read?"],
    );
}

#[test]
fn an_append_of_changes_needs_no_filter() {
    let log = "@config materialized=incremental, live=true, incremental_strategy=append\n\
               SELECT * FROM {changes:landing.ev}";
    check(&[("gold.log", log)], &[]);
}

#[test]
fn schemas_of_feeds_are_taken() {
    check(
        &[("_changes_silver.x", "SELECT 1 AS x")],
        &["_changes_silver.x name_reserved!"],
    );
}
