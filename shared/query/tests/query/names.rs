//! Columns with upper-case letters, named without quotes.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};

use crate::world::{World, batch, ints, rows};

#[tokio::test]
async fn unquoted_names_find_columns_whatever_their_case() {
    let mut world = World::new();
    let text = |value: &str| -> ArrayRef { Arc::new(StringArray::from(vec![value.to_owned()])) };
    let event = batch(vec![
        ("userId", ints(1..2)),
        ("A", text("x")),
        ("B", text("y")),
        ("b", text("z")),
    ]);
    world.model_of("silver.e", &[event]).await;
    world.view(
        "gold.v",
        "SELECT userId, A AS a, count(*) AS n FROM silver.e GROUP BY userId, A",
    );
    for (sql, expected) in [
        ("SELECT userId, A FROM silver.e", "userId|A = 1|x"),
        ("SELECT b, \"B\" FROM silver.e", "b|B = z|y"),
        (
            "SELECT e.USERID FROM silver.e e WHERE e.a = 'x' ORDER BY userid",
            "userId = 1",
        ),
        ("SELECT silver.e.userId FROM silver.e", "userId = 1"),
        ("SELECT userId::double FROM silver.e", "userId = 1.0"),
        (
            "SELECT userId AS userid FROM silver.e GROUP BY userId ORDER BY userId",
            "userid = 1",
        ),
        (
            "SELECT max(userId) AS m FROM silver.e HAVING max(userId) > 0",
            "m = 1",
        ),
        (
            "SELECT * EXCLUDE (USERID, \"B\") FROM silver.e",
            "A|b = x|z",
        ),
        (
            "WITH c AS (SELECT userId AS userId, A FROM silver.e) SELECT userId, a FROM c",
            "userid|A = 1|x",
        ),
        (
            "WITH c(UserId) AS (SELECT userId FROM silver.e) SELECT userId FROM c",
            "userid = 1",
        ),
        (
            "SELECT x.userId FROM (SELECT userId FROM silver.e) x JOIN silver.e y USING (userId)",
            "userId = 1",
        ),
        (
            "SELECT (SELECT max(i.A) FROM silver.e i WHERE i.userId = o.userId) AS v FROM silver.e o",
            "v = x",
        ),
        ("SELECT userId, a, n FROM gold.v", "userId|a|n = 1|x|1"),
        (
            "SELECT userId FROM silver.e UNION ALL SELECT 2 ORDER BY userId",
            "userId = 1 2",
        ),
        (
            "SELECT row_number() OVER (PARTITION BY A ORDER BY userId) AS r FROM silver.e",
            "r = 1",
        ),
    ] {
        let batch = world.batch(sql).await;
        let names: Vec<_> = batch
            .schema()
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        let found = format!("{} = {}", names.join("|"), rows(&batch).join(" "));
        assert_eq!(found, expected, "{sql}");
    }
    let hint = "column 8: column B is ambiguous, write \"B\" or \"b\"";
    world.refused("SELECT B FROM silver.e", hint).await;
}

/// The planner would take the inner column `c` for a struct.
#[tokio::test]
async fn a_name_before_a_dot_is_a_relation_first() {
    let mut world = World::new();
    let parents = batch(vec![("id", ints(0..3))]);
    let children = batch(vec![("id", ints(10..14)), ("c", ints(0..4))]);
    world.model_of("silver.c", &[parents]).await;
    world.model_of("silver.o", &[children]).await;
    for (sql, expected) in [
        (
            "SELECT id, (SELECT count(*) FROM silver.o AS o WHERE o.c = c.id) AS k \
             FROM silver.c AS c ORDER BY id",
            "0|1 1|1 2|1",
        ),
        (
            "SELECT id FROM silver.c WHERE EXISTS \
             (SELECT 1 FROM silver.o WHERE o.c = c.id + 1 AND o.id > 12)",
            "2",
        ),
        (
            "WITH c AS (SELECT id FROM silver.c) SELECT id FROM c WHERE (SELECT max(q.n) FROM \
             (SELECT c AS c, id AS n FROM silver.o) AS q WHERE q.c = c.id) = 11",
            "1",
        ),
        (
            "SELECT s.c.id FROM (SELECT named_struct('id', 5) AS c) AS s",
            "5",
        ),
    ] {
        assert_eq!(world.text(sql).await, expected, "{sql}");
    }
}
