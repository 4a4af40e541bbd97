use super::*;

fn config(text: &str) -> Vec<(String, String)> {
    header(text)
        .config
        .into_iter()
        .map(|(key, value, ..)| (key, value))
        .collect()
}

#[track_caller]
fn check(text: &str, expect: &[(&str, &str)]) {
    let expect: Vec<_> = expect
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    assert_eq!(config(text), expect, "{text}");
}

#[test]
fn pairs_are_read_bare_parenthesised_and_commented() {
    check(
        "@config materialized=table, schema=gold\nSELECT 1",
        &[("materialized", "table"), ("schema", "gold")],
    );
    check(
        "@config(materialized=view, live=true)\nSELECT 1",
        &[("materialized", "view"), ("live", "true")],
    );
    check(
        "-- config: materialized=table\nSELECT 1",
        &[("materialized", "table")],
    );
}

#[test]
fn values_may_hold_commas() {
    check(
        "@config unique_key=a, b, incremental_filter=WHERE x IN (1,2) AND y > 3\nSELECT 1",
        &[
            ("unique_key", "a, b"),
            ("incremental_filter", "WHERE x IN (1,2) AND y > 3"),
        ],
    );
    check(
        "@config incremental_filter=WHERE s = 'a, b=c', unique_key=k",
        &[
            ("incremental_filter", "WHERE s = 'a, b=c'"),
            ("unique_key", "k"),
        ],
    );
}

#[test]
fn a_directive_goes_on_over_indented_lines() {
    let text = "@config live=true,\n    unique_key=a,\n  cdc_op=op\n\nSELECT a\nFROM b.c\n";
    check(
        text,
        &[("live", "true"), ("unique_key", "a"), ("cdc_op", "op")],
    );
    let header = header(text);
    assert_eq!(
        (header.sql.as_str(), header.sql_line),
        ("SELECT a\nFROM b.c", 5)
    );
    assert_eq!(
        (header.config[1].2, header.config[1].3),
        (2, 5),
        "the place of `unique_key`"
    );
    check("@config live=true\n  SELECT 1", &[("live", "true")]);
}

#[test]
fn assertions_are_read_before_and_after_the_query() {
    let header = header(
        "@assert row_count > 0\n@assert no_nulls(e), severity=warn\n@grain a, b\n\
         SELECT 1\n@assert(unique(id))\n@assert (x > 1) AND (y > 1)",
    );
    let asserts: Vec<_> = header
        .asserts
        .iter()
        .map(|a| (a.expression.as_str(), a.severity, a.line))
        .collect();
    assert_eq!(
        asserts,
        [
            ("unique(id)", Severity::Error, 5),
            ("row_count > 0", Severity::Error, 1),
            ("no_nulls(e)", Severity::Warning, 2),
            ("unique(a, b)", Severity::Error, 3),
            ("(x > 1) AND (y > 1)", Severity::Error, 6),
        ]
    );
    assert_eq!(header.sql, "SELECT 1");
}

#[test]
fn a_mistyped_directive_names_the_nearest() {
    let header = header("@confg live=true\nSELECT 1");
    assert_eq!(header.problems[0].code, "unknown_directive");
    assert!(
        header.problems[0].message.contains("@config"),
        "{}",
        header.problems[0].message
    );
}

#[test]
fn the_rest_of_the_header_is_kept() {
    let header = header(
        "@description Orders,\n  as they are.\n@col id: the key\n@owner data\n\
         @depends_on Silver.Z, bronze.a\n@depends_on bronze.a\nSELECT 1",
    );
    assert_eq!(header.description.as_deref(), Some("Orders, as they are."));
    assert_eq!(
        header.columns.get("id").map(String::as_str),
        Some("the key")
    );
    assert_eq!(header.owner.as_deref(), Some("data"));
    assert_eq!(header.depends_on, ["silver.z", "bronze.a"]);
}
