//! What is read: files, deletes, sequences, statistics.

use std::sync::Arc;

use datafusion::arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, StringArray},
    compute::{sort_to_indices, take_record_batch},
    datatypes::{DataType, Int64Type},
};
use ports::{
    Kind,
    query::{ARRIVAL, RowOrder, Statement, UNORDERED},
    tables::Part,
};

use crate::world::{World, batch, bounds, ints, rows, schema};

#[tokio::test]
async fn model_files_are_read_together_and_missing_columns_are_null() {
    let mut world = World::new();
    let old = world
        .file(
            &batch(vec![("id", Arc::new(Int32Array::from(vec![1, 2])))]),
            &[],
        )
        .await;
    let names: ArrayRef = Arc::new(StringArray::from(vec!["c"]));
    let new = world
        .file(&batch(vec![("name", names), ("id", ints(3..4))]), &[])
        .await;
    let columns = schema(&[("id", DataType::Int64), ("name", DataType::Utf8)]);
    world.model("silver.people", columns, vec![old, new]);
    assert_eq!(
        world.text("SELECT * FROM silver.people ORDER BY id").await,
        "1| 2| 3|c"
    );
    assert_eq!(world.text("SELECT count(*) FROM silver.people").await, "3");
    assert_eq!(
        world
            .text("SELECT id FROM silver.people WHERE name IS NULL ORDER BY 1")
            .await,
        "1 2"
    );
}

#[tokio::test]
async fn deleted_rows_are_not_read_whatever_the_plan() {
    let mut world = World::new();
    let rows = batch(vec![("id", ints(0..1000))]);
    let deleted: Vec<u64> = (0..1000).filter(|id| id % 3 == 0 || *id >= 900).collect();
    let mut file = world.file(&rows, &deleted).await;
    file.bounds
        .insert("id".to_owned(), bounds(ints(0..1), ints(999..1000)));
    world.model("silver.t", rows.schema(), vec![file]);
    let live = || (0..900_i64).filter(|id| id % 3 != 0);
    let check = async |sql: &str, expected: i64| {
        assert_eq!(world.text(sql).await, expected.to_string(), "{sql}");
    };
    check("SELECT count(*) FROM silver.t", 600).await;
    check("SELECT sum(id) FROM silver.t", live().sum()).await;
    check("SELECT min(id) FROM silver.t", 1).await;
    check("SELECT max(id) FROM silver.t", 899).await;
    check(
        "SELECT count(id) FROM silver.t WHERE id >= 250 AND id < 350",
        67,
    )
    .await;
    check("SELECT count(*) FROM silver.t WHERE id >= 950", 0).await;
    check(
        "SELECT count(*) FROM (SELECT * FROM silver.t WHERE id > -1 LIMIT 450)",
        450,
    )
    .await;
    check("SELECT id FROM silver.t ORDER BY id DESC LIMIT 1", 899).await;
    check(
        "SELECT count(*) FROM silver.t a JOIN silver.t b ON a.id = b.id",
        600,
    )
    .await;
}

#[tokio::test]
async fn files_that_cannot_match_are_not_opened() {
    let mut world = World::new();
    let rows = batch(vec![("id", ints(0..10))]);
    let mut here = world.file(&rows, &[]).await;
    here.bounds
        .insert("id".to_owned(), bounds(ints(0..1), ints(9..10)));
    let mut gone = here.clone();
    gone.path = "data/gone.parquet".to_owned();
    gone.bounds
        .insert("id".to_owned(), bounds(ints(100..101), ints(200..201)));
    world.model("silver.t", rows.schema(), vec![here, gone]);
    assert_eq!(
        world
            .text("SELECT count(*) FROM silver.t WHERE id < 5")
            .await,
        "5"
    );
    let error = world.error("SELECT sum(id) FROM silver.t").await;
    assert_eq!(error.kind, Kind::Corrupt, "{}", error.chain());
}

#[tokio::test]
async fn rows_with_nan_are_found_with_and_without_statistics() {
    let mut world = World::new();
    let column = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    let threes = batch(vec![("x", column(&[3.0, f64::NAN, 3.0]))]);
    let ones = batch(vec![("x", column(&[1.0, f64::NAN]))]);
    let mut files = Vec::new();
    for (rows, bound) in [(&threes, 3.0), (&ones, 1.0)] {
        let mut file = world.file(rows, &[]).await;
        file.bounds
            .insert("x".to_owned(), bounds(column(&[bound]), column(&[bound])));
        files.push(file);
    }
    let one = files.pop().expect("two files");
    world.model("silver.threes", threes.schema(), files.clone());
    world.model("silver.ones", ones.schema(), vec![one]);
    assert_eq!(
        world
            .text("SELECT count(*) FROM silver.threes WHERE x <> 3.0")
            .await,
        "1"
    );
    assert_eq!(
        world
            .text("SELECT count(*) FROM silver.ones WHERE x > 2.0")
            .await,
        "1"
    );
    assert_eq!(
        world
            .text("SELECT x FROM silver.ones ORDER BY x DESC LIMIT 1")
            .await,
        "NaN"
    );
    assert_eq!(world.text("SELECT max(x) FROM silver.ones").await, "NaN");
    let joined = "SELECT count(*) FROM silver.ones a JOIN silver.threes b ON a.x = b.x";
    assert_eq!(world.text(joined).await, "1");
}

/// Two parts in memory around a file, sequences 1 to 30.
async fn landing() -> World {
    let mut world = World::new();
    let memory = |from: i64, to: i64| {
        batch(vec![
            ("id", ints(from * 10..to * 10)),
            ("_seq", ints(from * 10 + 1..to * 10 + 1)),
        ])
    };
    let mut file = world.file(&batch(vec![("id", ints(10..20))]), &[]).await;
    file.first_sequence = Some(11);
    let (first, last) = (memory(0, 1), memory(2, 3));
    let parts = vec![
        Part::Memory(first.clone()),
        Part::File(Arc::new(file)),
        Part::Memory(last),
    ];
    world.landing("landing.events", first.schema(), parts, 25);
    world
}

#[tokio::test]
async fn landing_rows_come_in_sequence_order_through_the_pin() {
    let world = landing().await;
    let all = world.batch("SELECT id, _seq FROM landing.events").await;
    let sequences = all.column(1).as_primitive::<Int64Type>();
    assert_eq!(sequences, &Int64Array::from_iter_values(1..=25));
    assert_eq!(all.column(0).as_ref(), ints(0..25).as_ref() as &dyn Array);
    assert_eq!(
        world.text("SELECT count(*) FROM landing.events").await,
        "25"
    );
    assert_eq!(
        world
            .text("SELECT max(_havn_seq) FROM landing.events")
            .await,
        "25"
    );
    assert_eq!(
        rows(
            &world
                .batch("SELECT _seq FROM landing.events WHERE id % 7 = 3")
                .await
        ),
        ["4", "11", "18", "25"]
    );
}

#[tokio::test]
async fn a_filter_on_the_sequence_reads_only_what_is_new() {
    let world = landing().await;
    let check = async |filter: &str, after: u64, expected: &str| {
        let sql =
            format!("SELECT min(_seq), max(_seq), count(*) FROM landing.events WHERE {filter}");
        assert_eq!(world.text(&sql).await, expected, "{filter}");
        assert_eq!(
            world.tables.asked.lock().expect("lock").pop(),
            Some(after),
            "{filter}"
        );
    };
    check("_seq > 12", 12, "13|25|13").await;
    check("_havn_seq >= 13 AND id > 0", 12, "13|25|13").await;
    check("_seq > 3 AND _seq <= 14", 3, "4|14|11").await;
    check("_seq = 15", 14, "15|15|1").await;
    check("_seq > 20 OR _seq > 22", 20, "21|25|5").await;
    assert_eq!(
        world
            .text("SELECT count(*) FROM landing.events WHERE _seq > 25")
            .await,
        "0"
    );
    assert!(world.tables.asked.lock().expect("lock").is_empty());
}

#[tokio::test]
async fn rows_of_a_model_come_in_sequence_when_that_is_asked() {
    let mut world = World::new();
    let sequences = |from: i64| -> Vec<(&str, ArrayRef)> {
        vec![
            ("id", ints(from..from + 100)),
            ("_seq", ints(from..from + 100)),
        ]
    };
    let batches: Vec<_> = [300, 100, 200, 0]
        .into_iter()
        .map(|from| batch(sequences(from)))
        .collect();
    world.model_of("silver.t", &batches).await;
    world.view("silver.v", "SELECT id AS a FROM silver.t");
    let mut statement = Statement {
        order: RowOrder::Sequence,
        ..Statement::new("SELECT id, _seq FROM silver.t WHERE id >= 50")
    };
    let sorted = world.run(&statement).await.expect("it runs");
    let expected = Int64Array::from_iter_values(50..400);
    assert_eq!(sorted.column(1).as_primitive::<Int64Type>(), &expected);
    // What yields none is in the order of what it is made of, and shows what was asked for.
    for sql in [
        "SELECT id FROM silver.t WHERE id >= 50",
        "SELECT t.id AS id FROM silver.t AS t WHERE id >= 50",
        "SELECT a FROM (SELECT id AS a FROM silver.t) AS q WHERE a >= 50",
        "WITH q AS (SELECT id + 0 AS a FROM silver.t) SELECT a FROM q WHERE a >= 50",
        "SELECT a FROM silver.v WHERE a >= 50",
        "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY id) AS n FROM silver.t) WHERE n = 1 AND id >= 50",
        "SELECT id FROM silver.t WHERE id >= 50 ORDER BY id DESC",
        "SELECT id FROM silver.t ORDER BY id DESC LIMIT 350",
        "SELECT id FROM (SELECT DISTINCT id FROM silver.t) AS q WHERE id >= 50",
        "WITH q AS (SELECT DISTINCT id FROM silver.t) SELECT id FROM q WHERE id >= 50",
        "SELECT a FROM (SELECT DISTINCT a FROM silver.v) AS q WHERE a >= 50",
        "SELECT id FROM (SELECT id, CAST(_seq AS DECIMAL(20, 0)) AS _seq FROM silver.t) AS q WHERE id >= 50",
        "SELECT id + 0 AS n FROM silver.t WHERE id >= 50 ORDER BY id DESC",
        "SELECT id, _seq + 1 AS after FROM silver.t WHERE id >= 50",
        "SELECT DISTINCT id FROM (SELECT id, _seq FROM (SELECT id, _seq FROM silver.t UNION ALL SELECT id, _seq FROM silver.t))
           WHERE id >= 50",
        "SELECT id, id AS again FROM silver.t WHERE id IN (SELECT id FROM silver.t WHERE _seq >= 50)",
    ] {
        statement.sql = sql.into();
        for order in [RowOrder::Sequence, RowOrder::Known, RowOrder::Told] {
            statement.order = order;
            let mut rows = world.run(&statement).await.expect(sql);
            assert!(!rows.schema().metadata().contains_key(UNORDERED), "{sql}");
            assert_eq!(rows.schema().column_with_name("_seq"), None, "{sql}");
            let (arrival, _) = rows.schema().column_with_name(ARRIVAL).expect(sql);
            if order == RowOrder::Told {
                let order = sort_to_indices(rows.column(arrival), None, None).expect(sql);
                rows = take_record_batch(&rows, &order).expect(sql);
            }
            let ids = rows.column(0).as_primitive::<Int64Type>();
            assert_eq!(ids, &expected, "{sql}");
            // Whoever looks at the columns is shown those that were asked for.
            let described = world.query.describe(&statement, &world.catalog).await;
            assert_eq!(described.expect(sql).fields().len(), arrival, "{sql}");
        }
    }
}

#[tokio::test]
async fn rows_whose_order_nobody_knows_are_refused_when_it_is_asked() {
    let mut world = landing().await;
    let nine = batch(vec![("id", ints(0..9)), ("_seq", ints(0..9))]);
    world.model_of("silver.t", &[nine]).await;
    world
        .model_of("silver.bare", &[batch(vec![("id", ints(0..9))])])
        .await;
    for sql in [
        "SELECT count(*) FROM silver.t",
        "SELECT id, count(*) AS n FROM landing.events GROUP BY id",
        "SELECT DISTINCT id FROM silver.bare",
        "SELECT unnest([id, id + 1]) AS id FROM silver.t",
        "SELECT id FROM silver.bare",
        "SELECT id FROM silver.t UNION ALL SELECT id FROM landing.events",
        "SELECT t.id FROM silver.t AS t JOIN landing.events AS e ON e.id = t.id",
        "SELECT 1 AS id",
        "SELECT b.id FROM silver.bare AS b JOIN silver.t AS t ON t.id = b.id",
        "SELECT q.id FROM (SELECT id FROM silver.t) AS q LEFT JOIN landing.events AS e ON e.id = q.id",
        "SELECT DISTINCT q.id FROM (SELECT id FROM silver.t) AS q, landing.events AS e",
        "SELECT id FROM (SELECT id, CAST(_seq AS VARCHAR) AS _seq FROM silver.t) AS q",
        "SELECT id, CAST(_seq AS VARCHAR) AS _seq FROM silver.t",
        "SELECT id FROM (SELECT id, _seq FROM silver.t UNION ALL SELECT id, _seq FROM landing.events)",
    ] {
        let statement = Statement {
            order: RowOrder::Sequence,
            ..Statement::new(sql)
        };
        let refused = world.run(&statement).await.expect_err(sql);
        assert_eq!(refused.kind, ports::Kind::Invalid, "{sql}");
        let told = refused.chain();
        assert!(told.contains("yield a column _seq"), "{sql}: {told}");
        let described = world.query.describe(&statement, &world.catalog).await;
        let described = described.expect_err(sql);
        assert_eq!(described.kind, ports::Kind::Invalid, "{sql}");
    }
    // Whoever can do without it is given the rows as they come, and told what no two of them share.
    for (sql, unique) in [
        ("SELECT count(*) FROM silver.t", "[]"),
        (
            "SELECT k AS key, n FROM (SELECT id % 2 AS k, count(*) AS n FROM silver.t GROUP BY k)",
            r#"["key"]"#,
        ),
        ("SELECT DISTINCT id FROM silver.bare", r#"["id"]"#),
        ("SELECT id FROM silver.bare", "null"),
        (
            "SELECT a.k FROM (SELECT id AS k FROM silver.bare) AS a, (SELECT id AS k FROM silver.bare) AS b GROUP BY a.k, b.k",
            "null",
        ),
        (
            "SELECT id, CAST(_seq AS VARCHAR) AS _seq FROM silver.t",
            "null",
        ),
        ("SELECT id, CAST(_seq AS DOUBLE) AS _seq FROM silver.t", ""),
        (
            "SELECT n FROM (SELECT id % 2 AS k, count(*) AS n FROM silver.t GROUP BY k)",
            "null",
        ),
        (
            "SELECT id FROM silver.t UNION ALL SELECT id FROM landing.events",
            "null",
        ),
        (
            "SELECT id FROM landing.events WHERE id IN (SELECT id FROM silver.bare)",
            "",
        ),
        ("SELECT unnest([id, id + 1]) AS id FROM landing.events", ""),
        (
            "SELECT unnest([id, id + 1]) AS id, _seq FROM landing.events",
            "",
        ),
        // Sequences of two tables, and what is no sequence, tell nothing.
        (
            "SELECT id, _seq FROM silver.t UNION ALL SELECT id, _seq FROM landing.events",
            "null",
        ),
        (
            "SELECT t.id, greatest(t._seq, e._seq) AS _seq FROM silver.t AS t JOIN landing.events AS e ON e.id = t.id",
            "null",
        ),
        ("SELECT id, 1 AS _seq FROM silver.bare", "null"),
        (
            "SELECT id, (SELECT max(_seq) FROM silver.t) AS _seq FROM silver.bare",
            "null",
        ),
        (
            "SELECT id, max(id) AS _seq FROM landing.events GROUP BY id",
            r#"["id"]"#,
        ),
        (
            "SELECT unnest([id, id + 1]) AS id, 1 AS _seq FROM landing.events",
            "null",
        ),
    ] {
        let statement = Statement {
            order: RowOrder::Told,
            ..Statement::new(sql)
        };
        let described = world.query.describe(&statement, &world.catalog).await;
        for schema in [
            described.expect(sql),
            world.run(&statement).await.expect(sql).schema(),
        ] {
            let said = schema.metadata().get(UNORDERED).map_or("", String::as_str);
            assert_eq!(said, unique, "{sql}");
        }
    }
    // Whose column tells, or the table's, has it beside; rows as they lie in a landing table need none.
    for (sql, is_told) in [
        ("SELECT id, _seq FROM silver.t", true),
        ("SELECT id, id AS _seq FROM silver.t", true),
        ("SELECT id, 1 AS _seq FROM landing.events", true),
        (
            "SELECT e.id, e._seq FROM silver.bare AS b JOIN landing.events AS e ON e.id = b.id",
            true,
        ),
        (
            "SELECT b.id, e._seq FROM silver.bare AS b LEFT JOIN landing.events AS e ON e.id = b.id",
            true,
        ),
        (
            "SELECT b.id, e._seq FROM landing.events AS e RIGHT JOIN silver.bare AS b ON e.id = b.id",
            true,
        ),
        (
            "SELECT * FROM landing.events AS e WHERE NOT EXISTS (SELECT 1 FROM silver.t AS t WHERE t.id = e.id)",
            true,
        ),
        (
            "SELECT id, _seq FROM silver.t UNION ALL SELECT -id, _seq FROM silver.t",
            true,
        ),
        (
            "SELECT DISTINCT ON (id) id, _seq FROM silver.t ORDER BY id, _seq DESC",
            true,
        ),
        (
            "SELECT id, max(_seq) OVER (PARTITION BY id) AS _seq FROM silver.t",
            true,
        ),
        ("SELECT id, _seq FROM landing.events", false),
        (
            "SELECT unnest([id, id + 1]) AS id, _seq FROM landing.events",
            false,
        ),
        ("SELECT id FROM landing.events WHERE id > 3", false),
    ] {
        for order in [RowOrder::Told, RowOrder::Known] {
            let statement = Statement {
                order,
                ..Statement::new(sql)
            };
            let rows = world.run(&statement).await.expect(sql);
            let schema = rows.schema();
            let last = schema.fields().last().map(|field| field.name().as_str());
            assert_eq!(last == Some(ARRIVAL), is_told, "{sql}");
            assert!(!schema.metadata().contains_key(UNORDERED), "{sql}");
        }
    }
    // One that does not rise as they came is passed by.
    for sql in [
        "SELECT id, -_seq AS _seq FROM silver.t",
        "SELECT id, 100 - _seq AS _seq FROM silver.t",
        "SELECT id, _seq % 4 AS _seq FROM silver.t",
        "SELECT id, _seq + id % 4 AS _seq FROM silver.t",
        "SELECT id, abs(5 - _seq) AS _seq FROM silver.t",
        "SELECT id, row_number() OVER (ORDER BY _seq DESC) AS _seq FROM silver.t",
        "SELECT id, count(_seq) OVER () AS _seq FROM silver.t",
        "SELECT id, CASE WHEN id < 4 THEN _seq ELSE -_seq END AS _seq FROM silver.t",
        "SELECT id, _seq + 1 AS _seq FROM silver.t",
        "SELECT id, CAST(coalesce(_seq, 0) AS INT) AS _seq FROM silver.t",
    ] {
        let statement = Statement {
            order: RowOrder::Told,
            ..Statement::new(sql)
        };
        let rows = world.run(&statement).await.expect(sql);
        let order = sort_to_indices(rows.column(2), None, None).expect(sql);
        let rows = take_record_batch(&rows, &order).expect(sql);
        let expected = Int64Array::from_iter_values(0..9);
        assert_eq!(
            rows.column(0).as_primitive::<Int64Type>(),
            &expected,
            "{sql}"
        );
    }
    // One that is yielded is taken, wherever it comes from.
    let statement = Statement {
        order: RowOrder::Sequence,
        ..Statement::new("SELECT id % 3 AS k, max(_seq) AS _seq FROM silver.t GROUP BY k")
    };
    let read = world.run(&statement).await.expect("it runs");
    let expected = Int64Array::from_iter_values(6..9);
    assert_eq!(read.column(1).as_primitive::<Int64Type>(), &expected);
}

#[tokio::test]
async fn rows_of_a_view_over_landing_tables_come_in_sequence_when_that_is_asked() {
    let mut world = landing().await;
    let twice =
        "SELECT id, _seq FROM landing.events UNION ALL SELECT -id, _seq FROM landing.events";
    world.view("silver.twice", twice);
    let statement = Statement {
        order: RowOrder::Sequence,
        ..Statement::new("SELECT id, _seq FROM silver.twice WHERE id <> 0")
    };
    let read = world.run(&statement).await.expect("it runs");
    let expected = Int64Array::from_iter_values((2..=25).flat_map(|sequence| [sequence; 2]));
    assert_eq!(read.column(1).as_primitive::<Int64Type>(), &expected);
}
