use std::collections::BTreeMap;

use super::text;
use crate::{Project, sql::Bindings};

/// Checks the text of an incremental build of a model; white space is made one space.
fn check(filter: &str, sql: &str, expect: &str) {
    let file = format!(
        "@config materialized=incremental, live=true, unique_key=id, incremental_filter={filter}\n{sql}"
    );
    let (project, findings) = Project::load(&[("transform/silver/o.sql".to_owned(), file)], None);
    let model = project
        .models
        .values()
        .next()
        .unwrap_or_else(|| panic!("{findings:?}"));
    let watermarks = BTreeMap::from([("landing.a".parse().expect("a name"), 7)]);
    let bindings = Bindings {
        this: &model.name,
        watermark: Some(5),
        watermarks,
        changes: None,
    };
    let flat = |text: &str| {
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace("( ", "(")
            .replace(" )", ")")
    };
    let whole = text(model, &bindings, true).unwrap_or_else(|error| error.to_string());
    assert_eq!(flat(&whole), flat(expect), "{sql}");
    assert!(super::parse(&whole).is_ok(), "{whole}");
    let unfiltered = text(model, &bindings, false).expect("the query alone");
    assert!(!unfiltered.contains("_seq > 5"), "{unfiltered}");
}

const MARK: &str = "WHERE _seq > {watermark}";

#[test]
fn the_filter_joins_a_plain_select() {
    check(
        MARK,
        "SELECT id FROM landing.o",
        "SELECT id FROM landing.o WHERE _seq > 5",
    );
    check(
        MARK,
        "SELECT id FROM landing.o;",
        "SELECT id FROM landing.o WHERE _seq > 5",
    );
    check(
        MARK,
        "SELECT id FROM landing.o WHERE a OR b -- why",
        "SELECT id FROM landing.o WHERE ( a OR b -- why ) AND (_seq > 5 )",
    );
    check(
        MARK,
        "SELECT id FROM landing.o ORDER BY id",
        "SELECT id FROM landing.o WHERE _seq > 5 ORDER BY id",
    );
    check(
        MARK,
        "SELECT id FROM landing.o WHERE a ORDER BY id",
        "SELECT id FROM landing.o WHERE ( a ) AND (_seq > 5 ) ORDER BY id",
    );
    check(
        MARK,
        "SELECT * EXCLUDE (_seq) FROM landing.o",
        "SELECT * EXCLUDE (_seq) FROM landing.o WHERE _seq > 5",
    );
    check(
        MARK,
        "WITH q AS (SELECT id, _seq FROM landing.o WHERE a) SELECT id FROM q",
        "WITH q AS (SELECT id, _seq FROM landing.o WHERE a) SELECT id FROM q WHERE _seq > 5",
    );
    check(
        MARK,
        "SELECT id, o._seq AS _seq FROM landing.o AS o",
        "SELECT id, o._seq AS _seq FROM landing.o AS o WHERE _seq > 5",
    );
    check(
        "WHERE at > (SELECT max(at) FROM {this})",
        "SELECT id, at FROM landing.o",
        "SELECT id, at FROM landing.o WHERE at > (SELECT max(at) FROM silver.o)",
    );
    check(
        MARK,
        "FROM landing.o SELECT id",
        "FROM landing.o SELECT id WHERE _seq > 5",
    );
    check(
        MARK,
        "FROM landing.o",
        "SELECT * FROM (FROM landing.o ) AS _q WHERE _seq > 5",
    );
}

#[test]
fn a_qualified_filter_joins_a_join() {
    check(
        "WHERE a._seq > {watermark:landing.a}",
        "SELECT a.id FROM landing.a AS a JOIN landing.b AS b ON a.id = b.id",
        "SELECT a.id FROM landing.a AS a JOIN landing.b AS b ON a.id = b.id WHERE a._seq > 7",
    );
    check(
        "WHERE _seq > {watermark:landing.a}",
        "SELECT a.id, a._seq FROM landing.a AS a, landing.b AS b",
        "SELECT * FROM (SELECT a.id, a._seq FROM landing.a AS a, landing.b AS b ) AS _q WHERE _seq > 7",
    );
}

#[test]
fn anything_else_is_wrapped() {
    for sql in [
        "SELECT id, max(_seq) AS _seq FROM landing.o GROUP BY id",
        "SELECT max(_seq) AS _seq FROM landing.o",
        "SELECT DISTINCT _seq FROM landing.o",
        "SELECT id, _seq FROM landing.o LIMIT 5",
        "SELECT _seq, row_number() OVER (ORDER BY id) AS n FROM landing.o",
        "SELECT _seq FROM landing.o UNION ALL SELECT _seq FROM landing.p",
        "SELECT id, coalesce(_seq, 0) AS _seq FROM landing.o",
        "SELECT 1 AS _seq",
    ] {
        check(
            MARK,
            sql,
            &format!("SELECT * FROM ({sql} ) AS _q WHERE _seq > 5"),
        );
    }
    check(
        MARK,
        "SELECT 1 AS _seq -- why",
        "SELECT * FROM (SELECT 1 AS _seq -- why ) AS _q WHERE _seq > 5",
    );
}
