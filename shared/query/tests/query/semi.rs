//! `IN` and `EXISTS` over subqueries that repeat their values.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array};

use crate::world::{World, batch, rows};

async fn world() -> World {
    let mut world = World::new();
    let column = |values: &[Option<i64>]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let orders = column(&[Some(1), Some(1), Some(2), Some(3), None]);
    let picked = column(&[Some(1), Some(1), Some(1), Some(3), None]);
    world
        .model_of("silver.orders", &[batch(vec![("region", orders)])])
        .await;
    world
        .model_of("silver.picked", &[batch(vec![("region", picked)])])
        .await;
    world
}

#[tokio::test]
async fn a_repeated_value_of_a_subquery_counts_once() {
    let world = world().await;
    for (condition, expected) in [
        ("region IN (SELECT region FROM silver.picked)", "3"),
        ("region NOT IN (SELECT region FROM silver.picked)", "0"),
        (
            "region NOT IN (SELECT region FROM silver.picked WHERE region IS NOT NULL)",
            "1",
        ),
        (
            "EXISTS (SELECT 1 FROM silver.picked AS p WHERE p.region = o.region)",
            "3",
        ),
        (
            "NOT EXISTS (SELECT 1 FROM silver.picked AS p WHERE p.region = o.region)",
            "2",
        ),
        (
            "EXISTS (SELECT 1 FROM silver.picked AS p WHERE p.region = o.region AND p.region + o.region > 2)",
            "1",
        ),
        ("region IN (SELECT DISTINCT region FROM silver.picked)", "3"),
        (
            "region IN (SELECT region FROM silver.picked GROUP BY region HAVING COUNT(*) > 1)",
            "2",
        ),
    ] {
        let sql = format!("SELECT COUNT(*) FROM silver.orders AS o WHERE {condition}");
        assert_eq!(world.text(&sql).await, expected, "{condition}");
    }
}

/// A hash join walks every equal row of its build side: of a million rows in fifty regions, twenty thousand per row.
#[tokio::test]
async fn only_distinct_values_are_joined() {
    let world = world().await;
    let sql = "EXPLAIN SELECT region FROM silver.orders WHERE region IN (SELECT region FROM silver.picked)";
    let plan = rows(&world.batch(sql).await).join("\n");
    let (_, physical) = plan.split_once("HashJoinExec").expect("a hash join");
    assert!(physical.contains("AggregateExec"), "{plan}");
}

/// An aggregate without GROUP BY has a row where nothing matches, too.
#[tokio::test]
async fn an_aggregate_in_a_subquery_is_there_for_rows_without_a_match() {
    let world = world().await;
    let picked = "FROM silver.picked AS p WHERE p.region = o.region";
    for (condition, expected) in [
        (format!("EXISTS (SELECT count(*) {picked})"), "5"),
        (
            format!("NOT EXISTS (SELECT max(p.region) + 1 {picked})"),
            "0",
        ),
        (format!("o.region - 2 IN (SELECT count(*) {picked})"), "2"),
        (
            format!("o.region - 2 NOT IN (SELECT count(*) {picked})"),
            "2",
        ),
        (
            format!("o.region - 2 = ANY (SELECT count(*) {picked})"),
            "2",
        ),
        (
            format!("o.region - 2 < ALL (SELECT count(*) {picked})"),
            "2",
        ),
        (
            format!("EXISTS (SELECT count(*) {picked} GROUP BY p.region)"),
            "3",
        ),
        (
            String::from("EXISTS (SELECT count(*) FROM silver.picked HAVING count(*) > 100)"),
            "0",
        ),
    ] {
        let sql = format!("SELECT count(*) AS n FROM silver.orders AS o WHERE {condition}");
        assert_eq!(world.text(&sql).await, expected, "{condition}");
    }
    for condition in [
        format!("EXISTS (SELECT count(*) {picked} HAVING count(*) = 0)"),
        format!("1 IN (SELECT n FROM (SELECT count(*) AS n {picked}) WHERE n > 0)"),
        format!("EXISTS (SELECT count(*) {picked} GROUP BY ROLLUP (p.region))"),
        format!("0 IN (SELECT count(*) {picked} GROUP BY GROUPING SETS ((p.region), ()))"),
    ] {
        let sql = format!("SELECT count(*) AS n FROM silver.orders AS o WHERE {condition}");
        world.refused(&sql, "scalar subquery").await;
    }
    for condition in [
        format!("NOT EXISTS (SELECT DISTINCT count(*) {picked})"),
        format!("0 IN (SELECT DISTINCT count(*) {picked})"),
        format!("o.region > ALL (SELECT DISTINCT max(p.region) {picked})"),
        format!("(SELECT DISTINCT count(*) {picked}) = 0"),
    ] {
        let sql = format!("SELECT count(*) AS n FROM silver.orders AS o WHERE {condition}");
        world.refused(&sql, "leave out DISTINCT").await;
    }
}

/// Of 1, 1, 2, 3 and NULL, with a subquery of 1 and 3 (`known`), or of NULL too.
#[tokio::test]
async fn memberships_are_null_where_sql_says_so() {
    let world = world().await;
    let all = "(SELECT region FROM silver.picked)";
    let known = "(SELECT region FROM silver.picked WHERE region IS NOT NULL)";
    let none = "(SELECT region FROM silver.picked WHERE region > 5)";
    let below = "(SELECT p.region FROM silver.picked AS p WHERE p.region < o.region)";
    let same = "(SELECT p.region FROM silver.picked AS p WHERE p.region = o.region)";
    for (condition, expected) in [
        (format!("5 NOT IN {all}"), "0"),
        (format!("5 NOT IN {known}"), "5"),
        (format!("NULL NOT IN {known}"), "0"),
        (format!("NULL NOT IN {none}"), "5"),
        (format!("1 IN {all}"), "5"),
        (format!("o.region NOT IN {none}"), "5"),
        (format!("o.region NOT IN {below}"), "5"),
        (format!("o.region NOT IN {same}"), "2"),
        (format!("NOT o.region IN {known}"), "1"),
        (format!("NOT (o.region NOT IN {known})"), "3"),
        (format!("o.region NOT IN {known} OR o.region = 77"), "1"),
        (format!("o.region NOT IN {all} OR o.region = 77"), "0"),
        (format!("o.region IN {all} OR o.region = 2"), "4"),
        (format!("(o.region IN {known}) IS NULL"), "1"),
        (format!("(o.region IN {all}) IS NULL"), "2"),
        (format!("(o.region IN {all}) IS NOT FALSE"), "5"),
        (format!("NOT (o.region IN {known} AND o.region < 10)"), "1"),
        (format!("NOT (o.region IN {all} AND o.region < 10)"), "0"),
        (
            format!("CASE WHEN o.region IN {all} THEN FALSE ELSE TRUE END"),
            "2",
        ),
        (format!("(o.region IN {all}) IS DISTINCT FROM FALSE"), "5"),
        (
            format!("o.region IN {same} AND o.region NOT IN {none}"),
            "3",
        ),
    ] {
        let sql = format!("SELECT count(*) AS n FROM silver.orders AS o WHERE {condition}");
        assert_eq!(world.text(&sql).await, expected, "{condition}");
    }
}
