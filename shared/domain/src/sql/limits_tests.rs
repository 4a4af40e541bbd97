use std::time::{Duration, Instant};

use super::*;
use crate::sql::{parse, tables};

/// Runs on a thread with the 2 MB stack that threads have by default, and drops the tree there too.
fn on_a_small_stack(sql: String) -> Result<(), SqlError> {
    let begin = Instant::now();
    let run = move || {
        let statement = parse(&sql)?;
        let copy = statement.clone();
        let printed = copy.to_string();
        assert!(!printed.is_empty());
        let _ = tables(&statement);
        Ok(())
    };
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run)
        .expect("a thread");
    let outcome = thread.join().expect("no panic");
    // Generous: what is guarded against takes for ever.
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "took {:?}",
        begin.elapsed()
    );
    outcome
}

fn check(name: &str, sql: String, refused: Option<&str>) {
    let outcome = on_a_small_stack(sql).map_err(|error| error.to_string());
    match (refused, outcome) {
        (None, outcome) => assert_eq!(outcome, Ok(()), "{name}"),
        (Some(part), Err(message)) => {
            assert!(
                message.contains(part) && message.starts_with("line 1, column "),
                "{name}: {message}"
            );
        }
        (Some(_), Ok(())) => panic!("{name} is refused"),
    }
}

fn chain(first: &str, rest: &str, times: usize) -> String {
    format!("SELECT a FROM t.x WHERE {first}{}", rest.repeat(times))
}

fn nested(open: &str, inside: &str, close: &str, times: usize) -> String {
    format!(
        "SELECT {}{inside}{}",
        open.repeat(times),
        close.repeat(times)
    )
}

#[test]
fn what_kills_processes_is_refused() {
    check(
        "additions",
        format!("SELECT 1{}", "+1".repeat(2_000)),
        Some("limit is 1000"),
    );
    check(
        "terms",
        chain("c=0", " OR c=1", 20_000),
        Some("limit is 1000"),
    );
    check(
        "parentheses",
        nested("(", "1", ")", 500),
        Some("limit is 128"),
    );
    check(
        "unions",
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(3_000)),
        Some("limit is 200"),
    );
    check(
        "joins",
        format!("SELECT 1 FROM t.x{}", " JOIN t.y USING (i)".repeat(300)),
        Some("limit is 200"),
    );
    check(
        "cross joins",
        format!("SELECT 1 FROM t.x{}", ", t.y AS y".repeat(3_000)),
        Some("limit is 200"),
    );
    check(
        "cases",
        nested("CASE WHEN a THEN ", "1", " END", 500),
        Some("limit is 128"),
    );
    check("minus", nested("- ", "1", "", 5_000), Some("limit is 1000"));
    check("not", nested("NOT ", "a", "", 5_000), Some("limit is 1000"));
    check(
        "interval",
        nested("INTERVAL ", "'1 day'", "", 5_000),
        Some("limit is 1000"),
    );
    check(
        "casts",
        format!("SELECT a{}", "::INT".repeat(5_000)),
        Some("limit is 1000"),
    );
    check(
        "dimensions",
        format!("SELECT CAST(a AS INT{})", "[]".repeat(5_000)),
        Some("limit is 1000"),
    );
    check(
        "types",
        format!(
            "SELECT CAST(a AS {}INT{})",
            "ARRAY<".repeat(5_000),
            ">".repeat(5_000)
        ),
        Some("limit is 32"),
    );
    check("lists", nested("[", "1", "]", 500), Some("limit is 128"));
    check(
        "subqueries",
        nested("(SELECT ", "1", ")", 500),
        Some("limit is 64"),
    );
    check(
        "explains",
        format!("{}SELECT 1", "EXPLAIN ".repeat(5_000)),
        Some("limit is 1000"),
    );
    check(
        "size",
        format!("SELECT '{}'", "x".repeat(STATEMENT_BYTES_MAX)),
        Some("limit is 1048576"),
    );
}

/// None has an operator: each is a chain or a nest all the same.
#[test]
fn chains_without_operators_are_refused() {
    for (name, part, limit) in [
        ("names", ".a", "limit is 64"),
        ("texts", ".'a'", "limit is 64"),
        ("calls", ".a()", "limit is 64"),
        ("paths", ".a[1]", "limit is 64"),
        ("brackets", "[1]", "limit is 1000"),
        ("arguments", "(1)", "limit is 1000"),
        ("indexes", "[1:2]", "limit is 1000"),
    ] {
        check(
            name,
            format!("SELECT a{}", part.repeat(12_000)),
            Some(limit),
        );
    }
    let names = format!("SELECT a{}", ".a".repeat(PATH_MAX - 1));
    check("a long name", names, None);
    let many = format!("SELECT t.a{}", ", t.a + t.b".repeat(5_000));
    check("many names", many, None);
    check(
        "tables",
        format!("SELECT 1 FROM a{}", ".a".repeat(12_000)),
        Some("limit is 64"),
    );
    check(
        "pipes",
        format!("FROM t.x{}", " |> ORDER BY a, b".repeat(5_000)),
        Some("limit is 200"),
    );
    check(
        "other joins",
        format!("SELECT 1 FROM t.x{}", " STRAIGHT_JOIN t.y".repeat(300)),
        Some("limit is 200"),
    );
    let marks = "A ".to_owned() + &"? ".repeat(20_000);
    let patterns = format!("SELECT 1 FROM t.x MATCH_RECOGNIZE (PATTERN ({marks}) DEFINE A AS 1)");
    check("patterns", patterns, Some(""));
    for (open, close) in [
        ("IF a THEN ", " END IF;"),
        ("PREPARE a AS ", ""),
        ("BEGIN ", " END;"),
    ] {
        let sql = format!("{}SELECT 1;{}", open.repeat(2_000), close.repeat(2_000));
        check(open, sql.clone(), Some("only SELECT"));
        check(open, format!("EXPLAIN {sql}"), Some(""));
    }
}

/// Each of these is written out twice inside of the next: twenty of them are a million.
#[test]
fn what_is_written_out_twice_is_not_nested_deep() {
    for (open, inside, close) in [
        ("coalesce(", "a", ", 1)"),
        ("(", "a", " BETWEEN false AND true)"),
        ("CASE WHEN ", "a", " THEN b ELSE c END"),
        ("date_diff('month', ", "a", ", b)"),
        ("if(", "a", ", b, c)"),
        ("coalesce(b, ", "a", ")"),
    ] {
        let deep = nested(open, inside, close, 60);
        check(open, deep, Some("nested too deep"));
        check(open, nested(open, inside, close, 9), None);
    }
    let flat = format!(
        "SELECT 1{}",
        ", CASE WHEN coalesce(a, b) BETWEEN 1 AND 2 THEN coalesce(c, d) ELSE e END".repeat(2_000)
    );
    check("flat", flat, None);
    check(
        "in results",
        nested("CASE WHEN a THEN ", "1", " END", 100),
        None,
    );
}

#[test]
fn rows_of_values_are_no_joins() {
    let rows = "(1, 2, 3), ".repeat(1_000) + "(4, 5, 6)";
    for sql in [
        format!("SELECT * FROM (VALUES {rows}) AS v (a, b, c)"),
        format!("SELECT * FROM t.x AS x JOIN (VALUES {rows}) AS v (a, b, c) ON x.a = v.a"),
        format!("SELECT * FROM t.x, (VALUES {rows}) AS v (a, b, c)"),
        format!("SELECT * FROM VALUES {rows}"),
        format!("SELECT * FROM ((VALUES {rows}) AS v CROSS JOIN t.x)"),
    ] {
        check("rows", sql, None);
    }
    let tables = ", t.y".repeat(300);
    for sql in [
        format!("SELECT * FROM (VALUES (1)) AS v{tables}"),
        format!("SELECT * FROM VALUES (1) AS v{tables}"),
        format!("SELECT * FROM VALUES (1){tables}"),
        format!("SELECT * FROM t.x AS values{tables}"),
        format!("SELECT * FROM t.x values{}", ", (t.y)".repeat(300)),
        format!("SELECT * FROM VALUES (1) AS v{}", ", (t.y)".repeat(300)),
        format!("SELECT * FROM VALUES (1) \"v\"(a){}", ", (t.y)".repeat(300)),
        format!(
            "SELECT * FROM VALUES (1) JOIN (t.y){}",
            ", (t.y)".repeat(300)
        ),
    ] {
        check("tables", sql, Some("limit is 200"));
    }
}

#[test]
fn words_that_look_like_clauses_hide_no_chain() {
    check(
        "then",
        format!("SELECT then{}", " + then".repeat(5_000)),
        Some("limit is 1000"),
    );
    check(
        "as",
        format!("SELECT as{}", " AND as".repeat(5_000)),
        Some("limit is 1000"),
    );
    check(
        "end",
        format!("SELECT CASE WHEN end = {}1", "CASE WHEN end = ".repeat(500)),
        Some("limit is 128"),
    );
    check(
        "distinct from",
        chain("a", " IS DISTINCT FROM b", 5_000),
        Some("limit is 1000"),
    );
    check(
        "aliases",
        format!("SELECT 1 FROM t.x{}", ", t.y AS order".repeat(3_000)),
        Some("limit is 200"),
    );
}

#[test]
fn what_is_just_within_the_limits_parses_on_a_small_stack() {
    let types = format!(
        "SELECT CAST(a AS {}INT{})",
        "ARRAY<".repeat(TYPES_MAX),
        ">".repeat(TYPES_MAX)
    );
    check("types", types, None);
    check(
        "additions",
        format!("SELECT 1{}", "+1".repeat(CHAIN_MAX)),
        None,
    );
    check("terms", chain("c", " OR c=1", CHAIN_MAX / 2), None);
    check("minus", nested("- ", "1", "", CHAIN_MAX), None);
    check("not", nested("NOT ", "a", "", CHAIN_MAX), None);
    check(
        "casts",
        format!("SELECT a{}", "::INT".repeat(CHAIN_MAX)),
        None,
    );
    check("parentheses", nested("(", "1", ")", NESTING_MAX), None);
    check(
        "cases",
        nested("CASE WHEN a THEN ", "1", " END", NESTING_MAX),
        None,
    );
    check("functions", nested("abs(", "1", ")", NESTING_MAX), None);
    check(
        "subqueries",
        nested("(SELECT ", "1", ")", QUERIES_MAX - 1),
        None,
    );
    let derived = format!(
        "{}SELECT 1{}",
        "SELECT * FROM (".repeat(QUERIES_MAX - 1),
        ") AS q".repeat(QUERIES_MAX - 1)
    );
    check("derived tables", derived, None);
    check(
        "unions",
        format!(
            "SELECT 1{}",
            " UNION ALL SELECT 1".repeat(SET_OPERATIONS_MAX)
        ),
        None,
    );
    check(
        "joins",
        format!(
            "SELECT 1 FROM t.x{}",
            " JOIN t.y USING (i)".repeat(JOINS_MAX)
        ),
        None,
    );
    check("in list", chain("a IN (-1", ", -2", 20_000) + ")", None);
    check(
        "columns",
        format!("SELECT a + 1{}", ", b * 2 + c AS d".repeat(2_000)),
        None,
    );
    let part = "1+".repeat(CHAIN_MAX / NESTING_MAX);
    let both = (0..NESTING_MAX).fold("1".to_owned(), |sql, _| format!("({part}{sql})"));
    check(
        "deep chains in deep nesting",
        format!("SELECT {both}"),
        None,
    );
}

#[test]
fn a_malformed_statement_is_refused_in_time() {
    for (open, close) in [
        ("CAST(", " AS INT)"),
        ("CASE WHEN ", " THEN 1 END"),
        ("(", ")"),
        ("EXTRACT(a FROM ", ")"),
    ] {
        check(open, nested(open, "1 1 )))", close, 100), Some(""));
    }
    for part in [
        "SELECT * FROM (",
        "SELECT * FROM ((",
        "SELECT (SELECT * FROM (",
        "SELECT a IN (SELECT * FROM (",
    ] {
        let times = NESTING_MAX / part.matches('(').count();
        check(
            part,
            format!("{}SELECT 1 1 1 !", part.repeat(times)),
            Some(""),
        );
    }
}

#[test]
fn a_short_statement_that_explodes_is_refused() {
    let mut sql = "WITH c0 AS (SELECT 1 AS a)".to_owned();
    for n in 1..40 {
        sql.push_str(&format!(
            ", c{n} AS (SELECT x.a FROM c{0} AS x, c{0} AS y)",
            n - 1
        ));
    }
    check(
        "doubling",
        format!("{sql} SELECT * FROM c39"),
        Some("limit is 2000"),
    );
    let many: Vec<String> = (0..300).map(|n| format!("c{n} AS (SELECT 1)")).collect();
    check(
        "many",
        format!("WITH {} SELECT 1", many.join(", ")),
        Some("limit is 200"),
    );
}
