use super::*;

fn role(table: &TableName) -> Role {
    match table.schema() {
        "view" => Role::View(format!(
            "SELECT id, region AS place FROM silver.{}",
            table.name()
        )),
        "batch" => Role::Untold("it is built by batch runs only".to_owned()),
        _ => Role::Input,
    }
}

/// Checks the queries of keys, without the names of the rows they read.
fn check(sql: &str, key: &[&str], expect: &[&str]) {
    let key: Vec<String> = key.iter().map(|name| (*name).to_owned()).collect();
    let said: Vec<String> = match trace(sql, &key, &role) {
        Ok(trace) => trace
            .keys
            .into_iter()
            .map(|(input, text)| {
                let text = text
                    .replace("\"_changes_silver\".\"_changed_", "+")
                    .replace("\"_changes_silver\".\"_prior_", "*")
                    .replace('"', "");
                format!("{input}: {text}")
            })
            .collect(),
        Err(error) => vec![error.to_string()],
    };
    assert_eq!(said, expect, "{sql}");
}

#[test]
fn one_input() {
    check(
        "SELECT region, sum(amount) AS total FROM silver.orders WHERE amount > 0 GROUP BY region HAVING count(*) > 1",
        &[],
        &[
            "silver.orders: SELECT region FROM (SELECT region FROM +orders AS orders WHERE (amount > 0)) AS _c",
        ],
    );
    check(
        "SELECT upper(o.region) AS r, o.day::DATE, count(*) FROM silver.orders o GROUP BY 1, o.day",
        &[],
        &[
            "silver.orders: SELECT r, day FROM (SELECT upper(o.region) AS r, o.day::DATE FROM +orders AS o) AS _c",
        ],
    );
    check(
        "SELECT silver.orders.region, count(*) FROM silver.orders GROUP BY silver.orders.region",
        &[],
        &["silver.orders: SELECT region FROM (SELECT orders.region FROM +orders AS orders) AS _c"],
    );
    check(
        "SELECT * FROM silver.orders",
        &["id"],
        &["silver.orders: SELECT id FROM (SELECT * FROM +orders AS orders) AS _c"],
    );
    check(
        "SELECT DISTINCT a, b FROM silver.x",
        &[],
        &["silver.x: SELECT a, b FROM (SELECT a, b FROM +x AS x) AS _c"],
    );
}

#[test]
fn joins_put_changed_rows_in_the_place_of_one_input_at_a_time() {
    check(
        "SELECT c.segment, count(*) AS n FROM silver.orders o JOIN silver.customers c ON o.customer = c.id WHERE amount > 1 GROUP BY 1",
        &[],
        &[
            "silver.orders: SELECT segment FROM (SELECT c.segment FROM +orders AS o JOIN *customers AS c ON o.customer = c.id \
             WHERE (amount > 1)) AS _c",
            "silver.customers: SELECT segment FROM (SELECT c.segment FROM *orders AS o JOIN +customers AS c ON o.customer = c.id \
             WHERE (amount > 1)) AS _c",
        ],
    );
    // What is optional is left out, but where its rows change; so are conditions on it.
    check(
        "SELECT o.id, c.segment, b.name FROM silver.orders AS o LEFT JOIN silver.customers AS c ON o.customer = c.id \
         LEFT JOIN silver.bosses AS b ON c.boss = b.id WHERE o.amount > 1 AND b.name IS NULL",
        &["id"],
        &[
            "silver.orders: SELECT id FROM (SELECT o.id FROM +orders AS o WHERE (o.amount > 1)) AS _c",
            "silver.customers: SELECT id FROM (SELECT o.id FROM *orders AS o JOIN +customers AS c ON (o.customer = c.id) \
             WHERE (o.amount > 1)) AS _c",
            "silver.bosses: SELECT id FROM (SELECT o.id FROM *orders AS o JOIN *customers AS c ON (o.customer = c.id) \
             JOIN +bosses AS b ON (c.boss = b.id) WHERE (o.amount > 1)) AS _c",
        ],
    );
}

#[test]
fn views_ctes_and_set_operations_are_looked_through() {
    check(
        "SELECT place, count(*) AS n FROM view.orders GROUP BY place",
        &[],
        &[
            "silver.orders: SELECT place FROM (SELECT place FROM (SELECT id, region AS place FROM +orders AS orders) AS orders) AS _c",
        ],
    );
    check(
        "WITH per (who, total) AS (SELECT customer, sum(amount) FROM silver.orders GROUP BY 1) \
         SELECT who, total FROM per WHERE total > 5",
        &["who"],
        &[
            "silver.orders: SELECT who FROM (SELECT who FROM (SELECT * FROM (SELECT customer FROM +orders AS orders) AS _n (who)) AS per) AS _c",
        ],
    );
    check(
        "SELECT id, 1 AS n FROM silver.a UNION ALL SELECT x, count(*) FROM silver.b GROUP BY x",
        &["id"],
        &[
            "silver.a: SELECT id FROM (SELECT id FROM (SELECT id, 1 AS n FROM +a AS a) AS _o) AS _c",
            "silver.b: SELECT id FROM (SELECT * FROM (SELECT x FROM (SELECT x FROM +b AS b) AS _o) AS _u (id)) AS _c",
        ],
    );
    check(
        "SELECT id FROM silver.a WHERE x IN (SELECT x FROM silver.b WHERE y)",
        &["id"],
        &[
            "silver.a: SELECT id FROM (SELECT id FROM +a AS a WHERE (x IN (SELECT x FROM *b AS b WHERE (y)))) AS _c",
            "silver.b: SELECT id FROM (SELECT id FROM *a AS a WHERE (x IN (SELECT x FROM +b AS b WHERE (y)))) AS _c",
        ],
    );
}

#[test]
fn subqueries_take_what_queries_of_changes_have() {
    let of = |condition: &str| {
        format!("SELECT a.id FROM silver.a a LEFT JOIN silver.b b ON a.x = b.x WHERE {condition}")
    };
    // A relation of its own, by the name of the optional one.
    let own = "EXISTS (SELECT 1 FROM silver.c AS b WHERE b.y = a.y)";
    check(
        &of(own),
        &["id"],
        &[
            "silver.a: SELECT id FROM (SELECT a.id FROM +a AS a WHERE (EXISTS (SELECT 1 FROM *c AS b WHERE (b.y = a.y)))) AS _c",
            "silver.b: SELECT id FROM (SELECT a.id FROM *a AS a JOIN +b AS b ON (a.x = b.x) \
             WHERE (EXISTS (SELECT 1 FROM *c AS b WHERE (b.y = a.y)))) AS _c",
            "silver.c: SELECT id FROM (SELECT a.id FROM *a AS a WHERE (EXISTS (SELECT 1 FROM +c AS b WHERE (b.y = a.y)))) AS _c",
        ],
    );
    // One that reads nothing decides over nothing: it is left out.
    check(
        &of("(SELECT b.y) > 1"),
        &["id"],
        &[
            "silver.a: SELECT id FROM (SELECT a.id FROM +a AS a) AS _c",
            "silver.b: SELECT id FROM (SELECT a.id FROM *a AS a JOIN +b AS b ON (a.x = b.x)) AS _c",
        ],
    );
}

#[test]
fn windows_keep_to_what_they_are_partitioned_by() {
    let latest = "silver.o: SELECT id FROM (SELECT upper(k) AS id FROM +o AS o) AS _c";
    check(
        "SELECT upper(k) AS id, v FROM silver.o QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1",
        &["id"],
        &[latest],
    );
    // Another key than the wanted one, when rows of that do not belong together.
    check(
        "SELECT id, customer FROM silver.o QUALIFY row_number() OVER (PARTITION BY customer ORDER BY id) <= 3",
        &["id"],
        &["silver.o: SELECT customer FROM (SELECT customer FROM +o AS o) AS _c"],
    );
    check(
        "SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS place FROM silver.o) AS p WHERE place = 1",
        &["k"],
        &["silver.o: SELECT k FROM (SELECT k FROM (SELECT k FROM +o AS o) AS p) AS _c"],
    );
}

#[test]
fn what_cannot_be_traced_says_why() {
    for (sql, part) in [
        (
            "SELECT count(*) AS n FROM silver.o",
            "`silver.o` cannot be traced to its keys, because one aggregate over all rows",
        ),
        (
            "SELECT id FROM silver.o ORDER BY id LIMIT 3",
            "`silver.o` cannot be traced to its keys, because LIMIT",
        ),
        (
            "SELECT id, now() AS at FROM silver.o",
            "`now` gives something else each time",
        ),
        (
            "SELECT b.id FROM silver.a a RIGHT JOIN silver.b b ON a.id = b.id",
            "`silver.b` cannot be traced to its keys, because a RIGHT JOIN",
        ),
        (
            "SELECT b.id FROM silver.a a LEFT JOIN silver.b b ON a.id = b.id",
            "comes from the right side of a LEFT JOIN",
        ),
        (
            "SELECT id FROM silver.a a LEFT JOIN silver.b b ON a.x = b.y",
            "could be a column of several relations",
        ),
        (
            "SELECT id FROM silver.a WHERE x NOT IN (SELECT x FROM silver.b)",
            "`silver.b` cannot be traced to its keys, because a subquery",
        ),
        (
            "SELECT a.id FROM silver.a a LEFT JOIN silver.b b ON a.x = b.x WHERE EXISTS (SELECT 1 FROM silver.c c WHERE c.y = b.y)",
            "a subquery takes `b.y`, which comes from the right side of a LEFT JOIN",
        ),
        (
            "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY id ORDER BY v) AS place FROM silver.a) AS p \
             WHERE id IN (SELECT x FROM silver.b b WHERE b.place = p.place)",
            "a subquery takes `p.place`, which is a window function",
        ),
        (
            "SELECT id FROM silver.a WHERE x > (SELECT max(x) FROM silver.b)",
            "`silver.b` cannot be traced to its keys, because a subquery",
        ),
        (
            "SELECT id, (SELECT max(x) FROM silver.b) AS m FROM silver.a",
            "`silver.b` cannot be traced to its keys, because a subquery",
        ),
        (
            "SELECT sum(x) AS id FROM silver.a GROUP BY y",
            "is an aggregate",
        ),
        (
            "SELECT a.id, row_number() OVER (ORDER BY a.id) AS n FROM silver.a",
            "is not what its windows are partitioned by",
        ),
        (
            "SELECT id FROM silver.a JOIN batch.b USING (id)",
            "`batch.b` cannot be traced to its keys, because it is built by batch runs only",
        ),
        (
            "SELECT id, sum(x) AS s FROM silver.a GROUP BY ROLLUP (id)",
            "totals over groups",
        ),
        (
            "WITH c AS (SELECT x FROM silver.b) SELECT id FROM silver.a WHERE x NOT IN (SELECT x FROM c)",
            "a subquery",
        ),
    ] {
        let said = trace(sql, &["id".to_owned()], &role)
            .map_or_else(|error| error.to_string(), |trace| format!("{trace:?}"));
        assert!(said.contains(part), "{sql}: {said}");
    }
    let said = trace("SELECT a FROM silver.x", &[], &role).expect_err("no key");
    assert!(said.why.contains("neither a unique_key"), "{said}");
}

#[test]
fn sums_follow_from_changes() {
    let of = |sql: &str| {
        let trace = trace(sql, &[], &role).expect("is traced");
        trace
            .sums
            .into_iter()
            .map(|sums| sums.input.to_string())
            .collect::<Vec<_>>()
    };
    let one = ["silver.o"];
    assert_eq!(
        of(
            "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m, count(v) AS c FROM silver.o GROUP BY k"
        ),
        one
    );
    assert_eq!(
        of("SELECT upper(k) AS u, count(*) AS n FROM silver.o GROUP BY u"),
        one
    );
    assert_eq!(
        of("SELECT c.k, count(*) AS n FROM silver.o JOIN silver.c ON o.c = c.id GROUP BY 1"),
        ["silver.o", "silver.c"]
    );
    assert_eq!(
        of("SELECT o.k, count(*) AS n FROM silver.o LEFT JOIN silver.c ON o.c = c.id GROUP BY 1"),
        one
    );
    assert_eq!(
        of("SELECT c.k, count(*) AS n FROM silver.o JOIN silver.c ON o.c = c.id GROUP BY k"),
        ["silver.o", "silver.c"]
    );
    for none in [
        "SELECT k, sum(v) AS s FROM silver.o GROUP BY k",
        // Several groups may have one key.
        "SELECT o.k, count(*) AS n FROM silver.o JOIN silver.c ON o.c = c.id GROUP BY o.k, c.k",
        "SELECT upper(k) AS r, k, count(*) AS n FROM silver.o GROUP BY r, k",
        "SELECT k, count(*) AS n, avg(v) AS s FROM silver.o GROUP BY k",
        "SELECT k, count(*) AS n, sum(DISTINCT v) AS s FROM silver.o GROUP BY k",
        "SELECT k, count(*) AS n FROM silver.o GROUP BY k HAVING count(*) > 1",
        "SELECT k, count(*) AS n FROM silver.o GROUP BY k, j",
        "SELECT upper(k) AS k, count(*) AS n FROM silver.o GROUP BY k",
        "SELECT a.k, count(*) AS n FROM silver.o AS a JOIN silver.o AS b ON a.id = b.id GROUP BY a.k",
    ] {
        assert_eq!(of(none), [""; 0], "{none}");
    }
}
