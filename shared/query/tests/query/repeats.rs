//! What is written twice: columns of later arms of a UNION, terms of an ORDER BY.

use crate::world::{World, batch, ints};

async fn world() -> World {
    let mut world = World::new();
    let rows = batch(vec![("k", ints(0..3)), ("n", ints(10..13))]);
    world.model_of("silver.t", &[rows]).await;
    world
}

#[tokio::test]
async fn later_arms_are_named_by_the_first() {
    let world = world().await;
    let check = async |sql: &str, expected: &str| {
        let read = world.batch(sql).await;
        let schema = read.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["n", "v"], "{sql}");
        assert_eq!(world.text(sql).await, expected, "{sql}");
    };
    let first = "SELECT k AS n, n AS v FROM silver.t WHERE k = 0";
    let of = "FROM silver.t WHERE k = 1";
    check(
        &format!("{first} UNION ALL SELECT k, k {of} ORDER BY n, v"),
        "0|10 1|1",
    )
    .await;
    check(
        &format!("{first} UNION SELECT t.k, k FROM silver.t AS t WHERE k = 1 ORDER BY n"),
        "0|10 1|1",
    )
    .await;
    check(
        &format!("{first} UNION ALL SELECT 7, 7 ORDER BY n"),
        "0|10 7|7",
    )
    .await;
    check(
        &format!("{first} UNION ALL SELECT n AS x, n AS x {of} ORDER BY n"),
        "0|10 11|11",
    )
    .await;
    check(
        &format!(
            "{first} UNION ALL SELECT count(*), count(*) {of} HAVING count(*) > 0 ORDER BY n, v"
        ),
        "0|10 1|1",
    )
    .await;
    // Nested, in brackets, in an order of their own.
    check(
        &format!(
            "({first}) UNION ALL ((SELECT k, k {of} ORDER BY k LIMIT 1) UNION ALL SELECT 5, 5) ORDER BY n"
        ),
        "0|10 1|1 5|5",
    )
    .await;
    check(
        &format!("SELECT * FROM (SELECT k, k {of}) AS q (n, v) EXCEPT {first} EXCEPT SELECT 9, 9"),
        "1|1",
    )
    .await;
    check(
        &format!(
            "WITH q (n, v) AS (SELECT k, k {of}) {first} UNION ALL SELECT * FROM q ORDER BY n"
        ),
        "0|10 1|1",
    )
    .await;
    // A cast has the name of its column.
    let text = world
        .text("SELECT k AS n, 'a' AS v FROM silver.t WHERE k = 0 UNION ALL SELECT n, cast(n AS varchar) FROM silver.t WHERE k = 1 ORDER BY n")
        .await;
    assert_eq!(text, "0|a 11|11");
    let wide = "SELECT k, n, 1 AS x FROM silver.t WHERE k = 0 UNION ALL SELECT *, k FROM silver.t WHERE k = 1 ORDER BY k";
    assert_eq!(world.text(wide).await, "0|10|1 1|11|1");
    // The first arm's names are the result's, and those of BY NAME are read.
    let by_name = "SELECT 1 AS a, 2 AS b UNION ALL BY NAME SELECT 3 AS b, 4 AS a ORDER BY a";
    assert_eq!(world.text(by_name).await, "1|2 4|3");
}

#[tokio::test]
async fn a_term_that_comes_again_orders_nothing() {
    let world = world().await;
    let from = "FROM (SELECT k % 2 AS k, n AS id, n * 2 AS v FROM silver.t) AS q";
    for order in ["k, id, k", "k, id, q.k, 1, id DESC", "k, k, id"] {
        let sql = format!("SELECT DISTINCT ON (k) k, id, v {from} ORDER BY {order}");
        assert_eq!(world.text(&sql).await, "0|10|20 1|11|22", "{order}");
    }
    let aggregates = format!(
        "SELECT k, first_value(id ORDER BY v, id, v) AS a, last_value(id ORDER BY v, v DESC) AS b, \
         array_agg(id ORDER BY v DESC, v) AS c {from} GROUP BY k ORDER BY k"
    );
    assert_eq!(
        world.text(&aggregates).await,
        "0|10|12|[12, 10] 1|11|11|[11]"
    );
}
