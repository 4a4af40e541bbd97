use super::*;

/// Checks what a file says, as lines: `key=value @line:column`, `assert[!|?] ..`, `depends ..`, `problem code @line:column`.
fn check(text: &str, expect: &[&str], sql: &str, sql_line: usize) {
    let header = header(text);
    let mut said: Vec<String> = header
        .config
        .iter()
        .map(|(key, value, line, column)| format!("{key}={value} @{line}:{column}"))
        .collect();
    said.extend(header.asserts.iter().map(|assert| match assert.severity {
        Severity::Error => format!("assert! {}", assert.expression),
        Severity::Warning => format!("assert? {}", assert.expression),
    }));
    said.extend(
        header
            .depends_on
            .iter()
            .map(|name| format!("depends {name}")),
    );
    said.extend(
        header
            .problems
            .iter()
            .map(|p| format!("problem {} @{}:{}", p.code, p.line, p.column)),
    );
    assert_eq!(said, expect, "{text}");
    assert_eq!(
        (header.sql.as_str(), header.sql_line),
        (sql, sql_line),
        "{text}"
    );
}

#[test]
fn config_is_bare_parenthesised_or_a_comment() {
    check(
        "@config materialized=view, schema=gold\nSELECT 2",
        &["materialized=view @1:9", "schema=gold @1:28"],
        "SELECT 2",
        2,
    );
    check(
        "@config(live=true, tags=a)\nSELECT 2",
        &["live=true @1:9", "tags=a @1:20"],
        "SELECT 2",
        2,
    );
    check(
        "@config: live=true\nSELECT 2",
        &["live=true @1:10"],
        "SELECT 2",
        2,
    );
    check(
        "-- config: live=true\n-- assert: row_count > 1\nSELECT 2",
        &["live=true @1:12", "assert! row_count > 1"],
        "SELECT 2",
        3,
    );
    check(
        "--@config live=true\nSELECT 2",
        &["live=true @1:11"],
        "SELECT 2",
        2,
    );
    check(
        "\u{feff}@CONFIG Live=true\r\nSELECT 2\r\n",
        &["live=true @1:9"],
        "SELECT 2",
        2,
    );
}

#[test]
fn values_may_hold_commas_quotes_and_parentheses() {
    check(
        "@config unique_key=a, b, incremental_filter=WHERE s IN ('x, y=z', \"q\") AND f(n, m) > 1, live=true\nSELECT 2",
        &[
            "unique_key=a, b @1:9",
            "incremental_filter=WHERE s IN ('x, y=z', \"q\") AND f(n, m) > 1 @1:26",
            "live=true @1:89",
        ],
        "SELECT 2",
        2,
    );
    check(
        "@config incremental_strategy=delete+insert, unique_key=k,\nSELECT 2",
        &[
            "incremental_strategy=delete+insert @1:9",
            "unique_key=k @1:45",
        ],
        "SELECT 2",
        2,
    );
    check(
        "@config incremental_filter=\"WHERE a >= 1, b = 2\"\nSELECT 2",
        &["incremental_filter=WHERE a >= 1, b = 2 @1:9"],
        "SELECT 2",
        2,
    );
    check(
        "@config tags=it's, live=true\nSELECT 2",
        &["tags=it's @1:9", "live=true @1:20"],
        "SELECT 2",
        2,
    );
    check(
        "@config incremental_filter=WHERE a == 1, b == 2\nSELECT 2",
        &["incremental_filter=WHERE a == 1, b == 2 @1:9"],
        "SELECT 2",
        2,
    );
}

#[test]
fn a_directive_continues_on_indented_lines() {
    check(
        "@config materialized=incremental, live=true,\n        unique_key=id, incremental_filter=WHERE _seq > {watermark}\n\nSELECT id",
        &[
            "materialized=incremental @1:9",
            "live=true @1:35",
            "unique_key=id @2:9",
            "incremental_filter=WHERE _seq > {watermark} @2:24",
        ],
        "SELECT id",
        4,
    );
    check(
        "@config live=true\n  unique_key=id\nSELECT 2",
        &["live=true @1:9", "unique_key=id @2:3"],
        "SELECT 2",
        3,
    );
    check(
        "@config(\n  live=true,\n\n  tags=a\n)\nSELECT 2",
        &["live=true @2:3", "tags=a @4:3"],
        "SELECT 2",
        6,
    );
    check(
        "@config incremental_filter=WHERE a IN (\n  SELECT b FROM {this}\n)\nSELECT 2",
        &["incremental_filter=WHERE a IN (\nSELECT b FROM {this}\n) @1:9"],
        "SELECT 2",
        4,
    );
    check(
        "@config live=true\n  SELECT 2\n  FROM t.x",
        &["live=true @1:9"],
        "  SELECT 2\n  FROM t.x",
        2,
    );
    check(
        "-- config: live=true,\n--   tags=a\n-- prose\nSELECT 2",
        &["live=true @1:12", "tags=a @2:6"],
        "-- prose\nSELECT 2",
        3,
    );
}

#[test]
fn assertions_may_stand_anywhere_and_parenthesised_ones_come_first() {
    check(
        "@assert row_count > 3\n@assert no_nulls(a), severity=warn\n@grain a, b\nSELECT 2\n\n@assert(unique(k))\n@assert accepted_values(s, ['x', 'y'])",
        &[
            "assert! unique(k)",
            "assert! row_count > 3",
            "assert? no_nulls(a)",
            "assert! unique(a, b)",
            "assert! accepted_values(s, ['x', 'y'])",
        ],
        "SELECT 2",
        4,
    );
    check(
        "@assert(unique(k)), severity=warn\n@assert (a > 1) OR (b > 1)\nSELECT 2",
        &["assert? unique(k)", "assert! (a > 1) OR (b > 1)"],
        "SELECT 2",
        3,
    );
}

#[test]
fn what_looks_like_a_directive_inside_a_string_or_comment_is_none() {
    let sql = "SELECT '\n@config live=true\n' AS a /* \n@assert x\n*/ -- note: fine\nFROM t.x";
    check(sql, &[], sql, 1);
    check(
        "SELECT 1\n@assert x > 0\nFROM t.x",
        &["assert! x > 0"],
        "SELECT 1\n\nFROM t.x",
        1,
    );
}

#[test]
fn dependencies_are_lower_case_without_repeats() {
    check(
        "@depends_on Silver.Z, bronze.a\n@depends_on bronze.a, gold.q\nSELECT 2",
        &["depends silver.z", "depends bronze.a", "depends gold.q"],
        "SELECT 2",
        3,
    );
}

#[test]
fn what_cannot_be_read_has_a_position() {
    check(
        "@conifg live=true\nSELECT 2",
        &["problem unknown_directive @1:1"],
        "SELECT 2",
        2,
    );
    check(
        "@config live\nSELECT 2",
        &["problem config_invalid @1:9"],
        "SELECT 2",
        2,
    );
    check(
        "@config\nSELECT 2",
        &["problem config_invalid @1:1"],
        "SELECT 2",
        2,
    );
    check(
        "@assert x > 1, severity=loud\nSELECT 2",
        &["problem assert_invalid @1:1"],
        "SELECT 2",
        2,
    );
    check(
        "@assert x > 1 severity=warn\nSELECT 2",
        &["problem assert_invalid @1:1"],
        "SELECT 2",
        2,
    );
    check(
        "@config live=true,\nunique_key=id\nSELECT 2",
        &["live=true @1:9", "problem config_invalid @2:1"],
        "unique_key=id\nSELECT 2",
        2,
    );
    check(
        "SELECT 2\n  @assert",
        &["problem assert_invalid @2:3"],
        "SELECT 2",
        1,
    );
    check(
        "@depends_on orders\nSELECT 2",
        &["problem name_invalid @1:1"],
        "SELECT 2",
        2,
    );
    assert!(
        header("@conifg x=y").problems[0]
            .message
            .contains("did you mean `@config`?")
    );
}

#[test]
fn prose_directives_keep_their_words() {
    let header = header(
        "@description Orders (all of them,\n   with their customers)\n@col id: the order's id\n@owner data team\n@source_freshness landing.orders 5m\nSELECT 2",
    );
    assert_eq!(
        header.description.as_deref(),
        Some("Orders (all of them, with their customers)")
    );
    assert_eq!(
        header.columns.get("id").map(String::as_str),
        Some("the order's id")
    );
    assert_eq!(header.owner.as_deref(), Some("data team"));
    assert_eq!(header.source_freshness, ["landing.orders 5m"]);
    assert_eq!(header.sql_line, 6);
}
