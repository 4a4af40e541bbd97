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
