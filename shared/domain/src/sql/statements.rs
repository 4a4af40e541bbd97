use std::collections::BTreeMap;

use super::*;
use crate::TableName;

fn said(sql: &str) -> String {
    parse(sql).map_or_else(|error| error.to_string(), |statement| statement.to_string())
}

/// Checks that SQL parses; `shape` is how it is put in brackets by the tree, compared as printed by [`brackets`].
fn check_tree(sql: &str, shape: &str) {
    let statement = parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let Statement::Query(query) = &statement else {
        panic!("{sql} is a query")
    };
    let selection = query
        .body
        .as_select()
        .and_then(|select| select.selection.as_ref())
        .expect("a WHERE");
    assert_eq!(brackets(selection), shape, "{sql}");
}

fn brackets(expr: &sqlparser::ast::Expr) -> String {
    use sqlparser::ast::Expr;
    match expr {
        Expr::BinaryOp { left, op, right } => {
            format!("[{} {op} {}]", brackets(left), brackets(right))
        }
        Expr::InList { expr, .. } => format!("[{} IN]", brackets(expr)),
        Expr::Like { expr, .. } => format!("[{} LIKE]", brackets(expr)),
        Expr::Between { expr, .. } => format!("[{} BETWEEN]", brackets(expr)),
        Expr::IsNull(expr) => format!("[{} IS NULL]", brackets(expr)),
        other => other.to_string(),
    }
}

#[test]
fn json_operators_bind_tighter_than_comparisons() {
    check_tree(
        "SELECT 1 FROM t.x WHERE j->>'n' = '5'",
        "[[j ->> 'n'] = '5']",
    );
    check_tree(
        "SELECT 1 FROM t.x WHERE j->'a'->>'n' > '5' AND b",
        "[[[[j -> 'a'] ->> 'n'] > '5'] AND b]",
    );
    check_tree(
        "SELECT 1 FROM t.x WHERE j->>'n' IN ('a', 'b')",
        "[[j ->> 'n'] IN]",
    );
    check_tree(
        "SELECT 1 FROM t.x WHERE j->>'n' LIKE 'a%'",
        "[[j ->> 'n'] LIKE]",
    );
    check_tree(
        "SELECT 1 FROM t.x WHERE j->>'n' BETWEEN 'a' AND 'b'",
        "[[j ->> 'n'] BETWEEN]",
    );
    check_tree(
        "SELECT 1 FROM t.x WHERE j->>'n' IS NULL",
        "[[j ->> 'n'] IS NULL]",
    );
}

#[test]
fn the_dialect_knows_what_people_write() {
    for sql in [
        "SELECT * EXCLUDE (a) FROM t.x",
        "SELECT {'a': 1, 'b': 2} AS s, MAP {'k': 1} AS m, [1, 2, 3] AS l",
        "FROM t.x SELECT a",
        "FROM t.x",
        "SELECT a, count(*) FROM t.x GROUP BY ALL ORDER BY ALL",
        "SELECT a, FROM t.x",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT * FROM n",
        "VALUES (1, 'a'), (2, 'b')",
        "SELECT a FROM t.x QUALIFY row_number() OVER (PARTITION BY a ORDER BY b DESC) = 1",
        "EXPLAIN SELECT 1",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT CASE WHEN a THEN CASE b WHEN 1 THEN 2 END ELSE 3 END FROM t.x;",
        "SELECT TIMESTAMP '2026-01-01' - INTERVAL '1 day', (j->>'n')::BIGINT FROM t.x",
        "SELECT extract(year FROM d), trim(BOTH ' ' FROM s), percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t.x",
    ] {
        assert!(parse(sql).is_ok(), "{sql}: {}", said(sql));
    }
}

#[test]
fn only_one_statement_that_reads_is_taken() {
    for (sql, part) in [
        ("DROP TABLE silver.o", "only SELECT"),
        ("CREATE TABLE t.x (a INT)", "only SELECT"),
        (
            "CREATE EXTERNAL TABLE t.x STORED AS CSV LOCATION '/etc/passwd'",
            "line 1",
        ),
        ("INSERT INTO t.x VALUES (1)", "only SELECT"),
        ("UPDATE t.x SET a = 1", "only SELECT"),
        ("DELETE FROM t.x", "only SELECT"),
        ("COPY (SELECT 1) TO '/tmp/x.csv'", "only SELECT"),
        ("SET a = 1", "only SELECT"),
        ("SHOW TABLES", "`headwater tables` lists tables"),
        ("SHOW COLUMNS FROM t.x", "the columns of one"),
        ("DESCRIBE t.x", "the columns of one"),
        ("EXPLAIN DROP TABLE t.x", "only SELECT"),
        (
            "SELECT 1; SELECT 2",
            "line 1, column 11: one statement at a time",
        ),
        ("SELECT 1 INTO t.x", "SELECT INTO"),
        ("SELECT * FROM t.x TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        (
            "SELECT * FROM t.x FOR SYSTEM_TIME AS OF '2026-01-01'",
            "line 1, column ",
        ),
        ("SELECT * FROM t.x FOR UPDATE", "FOR UPDATE"),
        ("WITH d AS (DELETE FROM t.x) SELECT 1", "line 1"),
        ("SELECT 1 UNION TABLE t", "line 1"),
        ("", "there is no statement"),
        (" -- nothing\n", "there is no statement"),
        ("SELECT", "line 1"),
        ("SELECT 'a", "line 1, column 8"),
        (
            "SELECT a\nFROM t.x\nWHERE (a = 1",
            "line 3, column 13: Expected",
        ),
        (
            "SELECT a FROM t.x WHERE a = )",
            "line 1, column 29: Expected",
        ),
    ] {
        let error = said(sql);
        assert!(
            parse(sql).is_err() && error.contains(part),
            "{sql}: {error}"
        );
    }
}

/// Checks the tables a statement names, or the error.
fn check_tables(sql: &str, expect: &str) {
    let names = parse(sql).and_then(|statement| tables(&statement));
    let names = names.map(|names| {
        names
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    });
    assert_eq!(
        names.unwrap_or_else(|error| error.to_string()),
        expect,
        "{sql}"
    );
}

#[test]
fn tables_are_named_once_in_order_wherever_they_stand() {
    check_tables(
        "SELECT * FROM b.y JOIN A.X USING (i) WHERE i IN (SELECT i FROM c.z) OR EXISTS (SELECT 1 FROM b.y)",
        "b.y a.x c.z",
    );
    check_tables(
        "SELECT (SELECT max(i) FROM a.x) FROM (SELECT * FROM b.y) AS q, LATERAL (SELECT 1 FROM c.z)",
        "a.x b.y c.z",
    );
    check_tables(
        "SELECT 1 FROM a.x UNION ALL SELECT 1 FROM b.y EXCEPT SELECT 1 FROM c.z",
        "a.x b.y c.z",
    );
    check_tables(
        "SELECT * FROM generate_series(1, 3) AS g, unnest([1, 2]) AS u, a.x",
        "a.x",
    );
    check_tables("SELECT 1 FROM (a.x JOIN b.y USING (i))", "a.x b.y");
    check_tables("FROM a.x", "a.x");
}

#[test]
fn ctes_are_left_out_where_they_are_in_scope() {
    check_tables(
        "WITH q AS (SELECT * FROM a.x), r AS (SELECT * FROM q) SELECT * FROM r, Q",
        "a.x",
    );
    check_tables(
        "WITH q AS (SELECT * FROM q) SELECT * FROM q",
        "line 1, column 26: `q` needs its schema: write `schema.q`",
    );
    check_tables(
        "WITH r AS (SELECT * FROM q), q AS (SELECT 1) SELECT * FROM r",
        "line 1, column 26: `q` needs its schema: write `schema.q`",
    );
    check_tables(
        "WITH RECURSIVE q AS (SELECT 1 UNION ALL SELECT * FROM q) SELECT * FROM q",
        "",
    );
    check_tables(
        "SELECT * FROM (WITH q AS (SELECT * FROM a.x) SELECT * FROM q) AS s, q",
        "line 1, column 69: `q` needs its schema: write `schema.q`",
    );
    check_tables(
        "WITH q AS (SELECT 1) SELECT * FROM s.q WHERE EXISTS (SELECT 1 FROM q)",
        "s.q",
    );
    check_tables(
        "SELECT * FROM orders",
        "line 1, column 15: `orders` needs its schema: write `schema.orders`",
    );
    check_tables(
        "SELECT * FROM 'a.parquet'",
        "`'a.parquet'` is a file; only tables of the lake can be read",
    );
    check_tables(
        "SELECT * FROM a.b.c",
        "line 1, column 15: `a.b.c` is not of the form `schema.name`",
    );
}

fn bindings(this: &TableName) -> Bindings<'_> {
    let watermarks = BTreeMap::from([("landing.a".parse().expect("a name"), 7)]);
    Bindings {
        this,
        watermark: Some(5),
        watermarks,
        changes: None,
    }
}

/// Checks a substitution, or its error.
fn check_substitute(sql: &str, expect: &str) {
    let this = "gold.t".parse().expect("a name");
    let text = substitute(sql, &bindings(&this)).unwrap_or_else(|error| error.to_string());
    assert_eq!(text, expect, "{sql}");
}

#[test]
fn placeholders_and_alias_names_are_replaced_as_tokens() {
    check_substitute(
        "WHERE _seq > {watermark} AND b > {watermark:landing.a}",
        "WHERE _seq > 5 AND b > 7",
    );
    check_substitute(
        "SELECT { this }.a, _havn_seq, t._HAVN_SEQ, _havn_deleted FROM {this}",
        "SELECT gold.t.a, _seq, t._seq, _deleted FROM gold.t",
    );
    check_substitute(
        "é '{this}' -- {this}\n\"{this}\" /* {this}\n*/ {this}",
        "é '{this}' -- {this}\n\"{this}\" /* {this}\n*/ gold.t",
    );
    check_substitute(
        "'_havn_seq' \"_havn_seq\" _havn_sequence",
        "'_havn_seq' \"_havn_seq\" _havn_sequence",
    );
    check_substitute(
        "{'this': 1} {this: 1} MAP {'a': {this}.b}",
        "{'this': 1} {this: 1} MAP {'a': gold.t.b}",
    );
    check_substitute(
        "a\n > {watermark:landing.b}",
        "line 2, column 4: `landing.b` is no live input of this model",
    );
    check_substitute(
        "{watermark:b}",
        "line 1, column 1: `{watermark:..}` needs a table: {watermark:schema.table}",
    );
    check_substitute(
        "{tihs}",
        "line 1, column 1: `{tihs}` is no placeholder: there are {watermark}, {changes}, both also with `:schema.table`, and {this}",
    );
    check_substitute(
        "{changes}",
        "line 1, column 1: {changes} needs exactly one live input: name it, {changes:schema.table}",
    );
    check_substitute(
        "FROM {changes:landing.a} AS c",
        "FROM \"_changes_landing\".\"_changes_a\" AS c",
    );
    check_substitute(
        "FROM\n {changes:landing.b}",
        "line 2, column 2: `landing.b` is no live input of this model",
    );
    check_substitute(
        "'{changes}' \"{changes:landing.a}\" -- {changes}\n/* {changes} */ 1",
        "'{changes}' \"{changes:landing.a}\" -- {changes}\n/* {changes} */ 1",
    );
    let this = "gold.t".parse().expect("a name");
    let unbound = Bindings {
        this: &this,
        watermark: None,
        watermarks: BTreeMap::new(),
        changes: None,
    };
    assert!(substitute("{watermark}", &unbound).is_err());
    assert_eq!(
        placeholders("{watermark} '{this}' {this} {changes:a.b} {watermark:a.b}")
            .expect("placeholders"),
        [
            Placeholder::Watermark,
            Placeholder::This,
            Placeholder::ChangesOf("a.b".parse().expect("a name")),
            Placeholder::WatermarkOf("a.b".parse().expect("a name")),
        ]
    );
}

#[test]
fn a_feed_has_a_name_of_its_own() {
    let input: TableName = "silver.orders".parse().expect("a name");
    let name = super::feed(&input).expect("short enough");
    assert_eq!(name.to_string(), "_changes_silver._changes_orders");
    assert_eq!(super::fed_by(&name), Some(input.clone()));
    assert_eq!(super::fed_by(&input), None);
    let this = "gold.t".parse().expect("a name");
    let bound = Bindings {
        changes: Some(&input),
        ..bindings(&this)
    };
    assert_eq!(
        substitute("FROM {changes}", &bound).expect("bound"),
        "FROM \"_changes_silver\".\"_changes_orders\""
    );
    let long: TableName = format!("silver.{}", "x".repeat(125))
        .parse()
        .expect("a name");
    assert_eq!(super::feed(&long), None);
}
