use std::collections::BTreeMap;

use super::*;
use crate::{Config, Model, TableName};

fn name(text: &str) -> TableName {
    text.parse().expect("a table name")
}

fn check_fails(sql: &str, part: &str) {
    let error = parse(sql).expect_err(&sql[..sql.len().min(60)]).to_string();
    assert!(error.contains(part), "{error}");
}

/// Runs on a thread with the 2 MB stack of a server's worker.
fn on_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run)
        .expect("a thread");
    thread.join().expect("no overflow");
}

#[test]
fn set_operations_that_would_not_count_rows_are_refused() {
    for sql in [
        "SELECT 1 EXCEPT ALL SELECT 1",
        "SELECT x FROM a.b WHERE x IN (SELECT 1 INTERSECT ALL SELECT 2)",
        "SELECT 1 UNION ALL (SELECT 1 EXCEPT ALL SELECT 1)",
    ] {
        check_fails(sql, "EXCEPT ALL and INTERSECT ALL are not available");
    }
    for sql in ["SELECT 1 EXCEPT SELECT 1", "SELECT 1 UNION ALL SELECT 1"] {
        parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
}

#[test]
fn joins_that_would_lose_the_key_of_the_right_side_are_refused() {
    for sql in [
        "SELECT x FROM a.l FULL JOIN a.r USING (x)",
        "SELECT x FROM a.l RIGHT OUTER JOIN a.r USING (x)",
        "SELECT x FROM a.l NATURAL FULL JOIN a.r",
        "SELECT 1 FROM a.z, (a.l RIGHT JOIN a.r USING (x))",
        "SELECT 1 WHERE EXISTS (SELECT x FROM a.l JOIN a.m USING (x) FULL JOIN a.r USING (x))",
    ] {
        check_fails(sql, "coalesce(a.x, b.x)");
    }
    for sql in [
        "SELECT l.x FROM a.l FULL JOIN a.r ON l.x = r.x",
        "SELECT x FROM a.l LEFT JOIN a.r USING (x)",
        "SELECT x FROM a.l NATURAL JOIN a.r",
    ] {
        parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
}

#[test]
fn joins_that_nothing_plans_are_refused_with_another_way() {
    for (sql, says) in [
        ("SELECT 1 FROM a.l SEMI JOIN a.r ON l.x = r.x", "EXISTS"),
        ("SELECT 1 FROM a.z, (a.l SEMI JOIN a.r USING (x))", " IN ("),
        ("SELECT 1 FROM a.l ANTI JOIN a.r ON l.x = r.x", "NOT EXISTS"),
        ("SELECT 1 FROM a.l CROSS APPLY a.r", "JOIN"),
    ] {
        check_fails(sql, says);
        check_fails(sql, "not available");
    }
    for sql in [
        "SELECT 1 FROM a.l LEFT SEMI JOIN a.r ON l.x = r.x",
        "SELECT 1 FROM a.l CROSS JOIN a.r",
    ] {
        parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
}

#[test]
fn distinct_from_ends_where_and_begins() {
    for (sql, wanted) in [
        (
            "a IS NOT DISTINCT FROM b AND c",
            "(a IS NOT DISTINCT FROM b) AND c",
        ),
        ("a IS DISTINCT FROM b OR c", "(a IS DISTINCT FROM b) OR c"),
        ("a IS DISTINCT FROM b + 1", "a IS DISTINCT FROM (b + 1)"),
        ("NOT a IS DISTINCT FROM b", "NOT (a IS DISTINCT FROM b)"),
        ("a IS DISTINCT FROM b = c", "a IS DISTINCT FROM (b = c)"),
    ] {
        let tree = |sql: &str| {
            let parsed = parse(&format!("SELECT {sql}")).expect(sql);
            let Statement::Query(query) = parsed else {
                panic!("a query");
            };
            let sqlparser::ast::SetExpr::Select(select) = *query.body else {
                panic!("a select");
            };
            shape(&select.projection[0])
        };
        assert_eq!(tree(sql), tree(wanted), "{sql}");
    }
}

/// An expression with every operation in brackets, whether or not there were any.
fn shape(item: &sqlparser::ast::SelectItem) -> String {
    use sqlparser::ast::{Expr, SelectItem};

    fn of(expr: &Expr) -> String {
        match expr {
            Expr::Nested(inner) => of(inner),
            Expr::BinaryOp { left, op, right } => format!("({} {op} {})", of(left), of(right)),
            Expr::UnaryOp { op, expr } => format!("({op} {})", of(expr)),
            Expr::IsDistinctFrom(left, right) => format!("({} <> {})", of(left), of(right)),
            Expr::IsNotDistinctFrom(left, right) => format!("({} == {})", of(left), of(right)),
            other => other.to_string(),
        }
    }
    let SelectItem::UnnamedExpr(expr) = item else {
        panic!("an expression");
    };
    of(expr)
}

#[test]
fn json_operators_bind_tighter_than_comparisons() {
    for sql in [
        "SELECT * FROM a.b WHERE j->>'n' = '5'",
        "SELECT * FROM a.b WHERE j->>'n' IN ('5', '6') AND j->'x'->>'y' LIKE 'a%'",
        "SELECT * FROM a.b WHERE (j->>'n')::bigint BETWEEN 1 AND 5",
        "SELECT * EXCLUDE (x) FROM a.b",
        "FROM a.b",
        "SELECT x, count(*) FROM a.b GROUP BY ALL ORDER BY ALL",
        "SELECT {'a': 1}, MAP {'x': 1}",
        "SELECT count(*) FILTER (WHERE x > 1) FROM a.b",
    ] {
        parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
    let tree = parse("SELECT j->>'n' = '5'").expect("parses").to_string();
    assert_eq!(tree, "SELECT j ->> 'n' = '5'");
    let Statement::Query(query) = parse("SELECT j->>'n' = '5'").expect("parses") else {
        panic!("a query")
    };
    assert!(
        format!("{:?}", query.body).contains("op: Eq, right"),
        "the comparison is outermost"
    );
}

#[test]
fn only_reads_pass() {
    for sql in [
        "INSERT INTO a.b VALUES (1)",
        "DROP TABLE a.b",
        "CREATE TABLE a.b (x INT)",
        "COPY a.b TO '/tmp/x'",
        "SET x = 1",
        "DELETE FROM a.b",
        "SELECT 1; SELECT 2",
        "SELECT * INTO a.c FROM a.b",
        "SELECT * FROM a.b TABLESAMPLE (10)",
        "WITH x AS (DELETE FROM a.b RETURNING *) SELECT * FROM x",
        "EXPLAIN INSERT INTO a.b VALUES (1)",
        "",
    ] {
        assert!(parse(sql).is_err(), "{sql}");
    }
    parse("EXPLAIN SELECT 1").expect("explains");
    parse("VALUES (1), (2)").expect("values");
}

#[test]
fn an_error_says_where() {
    let error = parse("SELECT a\nFROM b.c WHERE").expect_err("cut short");
    assert!(error.line == 2 || error.line == 0, "{error}");
    let error = parse("SELECT a\nFROM b.c WHERE )").expect_err("no condition");
    assert_eq!(error.line, 2, "{error}");
}

/// bugs.md 45.
#[test]
fn deep_or_long_statements_are_refused_before_recursion() {
    on_small_stack(|| {
        check_fails(&format!("SELECT 1{}", "+1".repeat(2_000)), "limit is 1000");
        let terms: Vec<String> = (0..20_000).map(|n| format!("c={n}")).collect();
        check_fails(
            &format!("SELECT 1 FROM a.b WHERE {}", terms.join(" OR ")),
            "limit is 1000",
        );
        check_fails(
            &format!("SELECT {}1{}", "(".repeat(500), ")".repeat(500)),
            "limit is 128",
        );
        check_fails(&vec!["SELECT 1"; 3_000].join(" UNION ALL "), "limit is 200");
        check_fails(&format!("SELECT {}", "NOT ".repeat(5_000)), "limit is 1000");
        check_fails(&" ".repeat(STATEMENT_BYTES_MAX + 1), "limit is 1048576");
    });
}

#[test]
fn statements_just_under_the_limits_parse_on_a_small_stack() {
    on_small_stack(|| {
        let ok = |sql: String| drop(parse(&sql).unwrap_or_else(|e| panic!("{}: {e}", &sql[..40])));
        ok(format!("SELECT 1{}", "+1".repeat(CHAIN_MAX)));
        ok(format!(
            "SELECT {}1{}",
            "(".repeat(NESTING_MAX),
            ")".repeat(NESTING_MAX)
        ));
        ok(vec!["SELECT 1"; SET_OPERATIONS_MAX].join(" UNION ALL "));
        let list: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
        ok(format!("SELECT 1 FROM a.b WHERE c IN ({})", list.join(",")));
    });
}

#[test]
fn tables_are_found_without_common_table_expressions() {
    let found = |sql: &str| {
        let names = tables(&parse(sql).expect("parses"))?;
        Ok::<_, SqlError>(
            names
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        )
    };
    let check = |sql, expect: &str| assert_eq!(found(sql).as_deref(), Ok(expect), "{sql}");
    check(
        "SELECT * FROM A.b JOIN c.d ON true JOIN a.B x ON true",
        "a.b c.d",
    );
    check(
        "WITH x AS (SELECT * FROM a.b) SELECT * FROM x, y.z WHERE q IN (SELECT 1 FROM d.e)",
        "a.b y.z d.e",
    );
    check("SELECT * FROM generate_series(1, 10)", "");
    check(
        "SELECT 1 FROM (SELECT * FROM a.b) s UNION ALL SELECT (SELECT max(x) FROM c.d)",
        "a.b c.d",
    );
    assert!(found("SELECT * FROM orders").is_err_and(|e| e.message.contains("needs its schema")));
    assert!(found("SELECT * FROM '/etc/passwd'").is_err());
}

#[test]
fn placeholders_are_replaced_outside_strings_and_comments_only() {
    let this = name("silver.o");
    let watermarks = BTreeMap::from([(name("landing.a"), 7)]);
    let bindings = Bindings {
        this: &this,
        watermark: Some(5),
        watermarks,
        changes: None,
    };
    let check = |sql, expect: &str| assert_eq!(substitute(sql, &bindings).as_deref(), Ok(expect));
    check(
        "x > {watermark} AND y > { watermark:landing.a }",
        "x > 5 AND y > 7",
    );
    check(
        "'{watermark}' -- {watermark}\n\"{this}\" /* {this} */ {this}",
        "'{watermark}' -- {watermark}\n\"{this}\" /* {this} */ silver.o",
    );
    check(
        "SELECT _havn_seq, \"_havn_seq\", '_havn_seq', o._HAVN_SEQ",
        "SELECT _seq, \"_havn_seq\", '_havn_seq', o._seq",
    );
    check(
        "SELECT 'é', {watermark}\n, 'ü' , {this}",
        "SELECT 'é', 5\n, 'ü' , silver.o",
    );
    check("SELECT {'a': 1}", "SELECT {'a': 1}");
    assert!(substitute("{watermark:landing.b}", &bindings).is_err());
    assert!(
        substitute("{watermrk}", &bindings).is_err_and(|e| e.message.contains("no placeholder"))
    );
}

fn built(sql: &str, filter: &str) -> String {
    let this = name("silver.o");
    let model = Model {
        name: this.clone(),
        file: String::new(),
        config: Config {
            filter: Some(filter.to_owned()),
            ..Config::default()
        },
        description: None,
        columns: BTreeMap::new(),
        asserts: Vec::new(),
        owner: None,
        source_freshness: Vec::new(),
        sql: sql.to_owned(),
        sql_line: 1,
        reads: Vec::new(),
    };
    let bindings = Bindings {
        this: &this,
        watermark: Some(5),
        watermarks: BTreeMap::new(),
        changes: None,
    };
    let text = text(&model, &bindings, true).unwrap_or_else(|e| panic!("{sql}: {e}"));
    parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_filter_joins_where_it_can_see_its_columns() {
    let filter = "WHERE _seq > {watermark}";
    let check = |sql, expect: &str| assert_eq!(built(sql, filter), expect);
    check(
        "SELECT x FROM landing.e",
        "SELECT x FROM landing.e WHERE _seq > 5",
    );
    check(
        "SELECT x FROM landing.e -- all\n",
        "SELECT x FROM landing.e -- all WHERE _seq > 5",
    );
    check(
        "SELECT x FROM landing.e WHERE a OR b ORDER BY x;",
        "SELECT x FROM landing.e WHERE (a OR b ) AND (_seq > 5 ) ORDER BY x",
    );
    check(
        "SELECT max(_seq) AS _seq, k FROM landing.e GROUP BY k",
        "SELECT * FROM ( SELECT max(_seq) AS _seq, k FROM landing.e GROUP BY k ) AS _q WHERE _seq > 5",
    );
    check(
        "SELECT k, count(*) FROM landing.e GROUP BY k",
        "SELECT k, count(*) FROM landing.e WHERE _seq > 5 GROUP BY k",
    );
    check(
        "SELECT a.x, a._seq FROM l.a a JOIN l.b b ON a.x = b.x",
        "SELECT * FROM ( SELECT a.x, a._seq FROM l.a a JOIN l.b b ON a.x = b.x ) AS _q WHERE _seq > 5",
    );
    check(
        "SELECT x, _seq FROM l.a UNION ALL SELECT x, _seq FROM l.b",
        "SELECT * FROM ( SELECT x, _seq FROM l.a UNION ALL SELECT x, _seq FROM l.b ) AS _q WHERE _seq > 5",
    );
}

#[test]
fn a_query_is_row_by_row_when_no_row_depends_on_another() {
    for sql in [
        "SELECT id, upper(name) AS name FROM landing.orders",
        "SELECT * FROM landing.orders AS o WHERE o.id > 5",
        "SELECT payload->>'select' AS choice FROM landing.orders",
    ] {
        assert!(super::is_row_by_row(sql), "{sql}");
    }
    for sql in [
        "SELECT count(*) FROM landing.orders",
        "SELECT id, row_number() OVER () AS n FROM landing.orders",
        "SELECT DISTINCT id FROM landing.orders",
        "SELECT id FROM landing.orders GROUP BY id",
        "SELECT id FROM landing.orders LIMIT 5",
        "SELECT o.id FROM landing.orders AS o JOIN landing.names AS n ON n.id = o.id",
        "SELECT id FROM landing.orders WHERE id IN (SELECT max(id) FROM landing.orders)",
        "SELECT id FROM (SELECT id FROM landing.orders) AS o",
        "WITH o AS (SELECT 1 AS id) SELECT id FROM o",
        "SELECT id FROM landing.a UNION ALL SELECT id FROM landing.b",
        "SELECT id FROM {changes}",
        "SELECT 1 AS id",
    ] {
        assert!(!super::is_row_by_row(sql), "{sql}");
    }
}
