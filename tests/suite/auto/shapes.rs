//! Queries of every shape that is traced, and of some that are not.

use tests::case::ModelText;

/// A model over `silver.orders (id, customer, region, amount, score)` and `silver.customers (id, segment, boss)`.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) sql: &'static str,
    /// Whether its changes can be traced.
    pub(super) traced: bool,
}

const fn traced(name: &'static str, key: &'static str, sql: &'static str) -> Shape {
    Shape {
        name,
        key,
        sql,
        traced: true,
    }
}

const fn untraced(name: &'static str, key: &'static str, sql: &'static str) -> Shape {
    Shape {
        name,
        key,
        sql,
        traced: false,
    }
}

/// A view that some of them read.
pub(super) fn view() -> ModelText {
    ModelText {
        name: "silver.large".to_owned(),
        config: [("materialized".to_owned(), "view".to_owned())].into(),
        sql: "SELECT id, customer AS who, region, amount FROM silver.orders WHERE amount > 2"
            .to_owned(),
        asserts: Vec::new(),
    }
}

pub(super) fn all() -> Vec<Shape> {
    vec![
        traced(
            "gold.plain",
            "id",
            "SELECT id, upper(region) AS region, amount + 1 AS more FROM silver.orders WHERE amount > 1",
        ),
        traced(
            "gold.grouped",
            "",
            "SELECT region, count(*) AS n, count(amount) AS known, sum(amount) AS total, min(amount) AS least, \
             max(amount) AS most FROM silver.orders GROUP BY region",
        ),
        traced(
            "gold.summed",
            "",
            "SELECT customer, region, count(*) AS n, sum(amount) AS total FROM silver.orders WHERE customer <> 2 GROUP BY 1, 2",
        ),
        traced(
            "gold.having",
            "region",
            "SELECT region, avg(amount) AS mean, count(DISTINCT customer) AS customers FROM silver.orders \
             WHERE amount > 0 GROUP BY region HAVING count(*) > 1",
        ),
        traced(
            "gold.expressions",
            "",
            "SELECT upper(coalesce(region, 'none')) AS r, id % 3 AS rest, sum(amount) AS total FROM silver.orders GROUP BY 1, 2",
        ),
        traced(
            "gold.joined",
            "",
            "SELECT c.segment, count(*) AS n, sum(o.amount) AS total FROM silver.orders AS o \
             JOIN silver.customers AS c ON o.customer = c.id GROUP BY c.segment",
        ),
        traced(
            "gold.listed",
            "id",
            "SELECT o.id, o.amount, segment, boss FROM silver.orders o, silver.customers c WHERE customer = c.id AND amount >= 1",
        ),
        traced(
            "gold.optional",
            "id",
            "SELECT o.id, o.amount, c.segment FROM silver.orders AS o LEFT JOIN silver.customers AS c ON o.customer = c.id",
        ),
        traced(
            "gold.without",
            "",
            "SELECT o.region, count(*) AS n FROM silver.orders AS o LEFT JOIN silver.customers AS c ON o.customer = c.id \
             WHERE c.segment IS NULL GROUP BY o.region",
        ),
        traced(
            "gold.bosses",
            "id",
            "SELECT o.id, c.segment, b.segment AS above FROM silver.orders AS o \
             LEFT JOIN silver.customers AS c ON o.customer = c.id LEFT JOIN silver.customers AS b ON c.boss = b.id",
        ),
        traced(
            "gold.pairs",
            "id",
            "SELECT a.id, count(*) AS n FROM silver.orders AS a JOIN silver.orders AS b ON a.region = b.region \
             AND b.amount > a.amount GROUP BY a.id",
        ),
        traced(
            "gold.both",
            "k",
            "SELECT id AS k, amount AS v FROM silver.orders UNION ALL SELECT id, 100 FROM silver.customers WHERE segment = 'a'",
        ),
        traced(
            "gold.groups",
            "place",
            "SELECT region AS place, count(*) AS n FROM silver.orders GROUP BY region \
             UNION ALL SELECT segment, -count(*) FROM silver.customers GROUP BY segment",
        ),
        traced(
            "gold.less",
            "id",
            "SELECT customer AS id FROM silver.orders EXCEPT SELECT id FROM silver.customers WHERE segment = 'b'",
        ),
        traced(
            "gold.distinct",
            "",
            "SELECT DISTINCT customer, region FROM silver.orders",
        ),
        traced(
            "gold.top",
            "id",
            "SELECT id, customer, amount FROM silver.orders \
             QUALIFY row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) <= 2",
        ),
        traced(
            "gold.first",
            "customer",
            "SELECT id, customer, region FROM (SELECT *, row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) \
             AS rank FROM silver.orders) AS ranked WHERE rank = 1",
        ),
        traced(
            "gold.shares",
            "region, customer",
            "SELECT region, customer, sum(amount) AS total, \
             (rank() OVER (PARTITION BY region ORDER BY sum(amount) DESC, customer))::BIGINT AS place FROM silver.orders GROUP BY region, customer",
        ),
        traced(
            "gold.nested",
            "customer",
            "WITH per AS (SELECT customer, sum(amount) AS total FROM silver.orders GROUP BY customer HAVING sum(amount) > 3) \
             SELECT p.customer, p.total, c.segment FROM per AS p JOIN silver.customers AS c ON c.id = p.customer WHERE p.total < 20",
        ),
        traced(
            "gold.reached",
            "",
            "WITH per (who, total) AS (SELECT customer, sum(amount) FROM silver.orders GROUP BY customer) \
             SELECT c.segment, count(*) AS n, sum(p.total) AS total FROM silver.customers AS c JOIN per AS p ON p.who = c.id \
             GROUP BY c.segment",
        ),
        traced(
            "gold.among",
            "",
            "SELECT region, sum(amount) AS total FROM silver.orders WHERE customer IN (SELECT id FROM silver.customers \
             WHERE segment = 'a') GROUP BY region",
        ),
        traced(
            "gold.some",
            "id",
            "SELECT id, region FROM silver.orders AS o WHERE EXISTS (SELECT 1 FROM silver.customers AS c WHERE c.id = o.customer \
             AND c.boss > 1)",
        ),
        traced(
            "gold.viewed",
            "",
            "SELECT who, max(amount) AS most FROM silver.large GROUP BY who",
        ),
        traced(
            "gold.second",
            "",
            "SELECT n > 2 AS many, count(*) AS groups, sum(total) AS total FROM gold.grouped GROUP BY n > 2",
        ),
        untraced(
            "gold.bossed",
            "id",
            "SELECT o.id, c.segment FROM silver.orders AS o LEFT JOIN silver.customers AS c ON o.customer = c.id \
             WHERE EXISTS (SELECT 1 FROM silver.customers AS b WHERE b.id = c.boss AND b.segment = 'a')",
        ),
        untraced(
            "gold.all",
            "",
            "SELECT count(*) AS n, sum(amount) AS total FROM silver.orders",
        ),
        untraced(
            "gold.full",
            "id",
            "SELECT coalesce(o.customer, c.id) AS id, count(*) AS n FROM silver.orders AS o \
             FULL JOIN silver.customers AS c ON o.customer = c.id GROUP BY 1",
        ),
        untraced(
            "gold.last",
            "id",
            "SELECT id, region FROM silver.orders ORDER BY id DESC LIMIT 3",
        ),
        untraced(
            "gold.above",
            "id",
            "SELECT id, amount FROM silver.orders WHERE amount > (SELECT avg(amount) FROM silver.orders)",
        ),
        untraced(
            "gold.right",
            "segment",
            "SELECT c.segment, count(*) AS n FROM silver.orders AS o LEFT JOIN silver.customers AS c ON o.customer = c.id \
             GROUP BY c.segment",
        ),
    ]
}
