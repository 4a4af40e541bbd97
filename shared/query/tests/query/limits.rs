//! What no statement can do: write, look at the machine, or end the process.

use std::time::Duration;

use ports::{Kind, query::Statement};
use query::Settings;

use crate::world::{World, batch, ints};

#[tokio::test]
async fn nothing_but_the_catalog_can_be_read_or_changed() {
    let mut world = World::new();
    world
        .model_of("silver.t", &[batch(vec![("id", ints(0..10))])])
        .await;
    for sql in [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM \"/etc/passwd\"",
        "SELECT * FROM read_parquet('/etc/passwd')",
        "SELECT * FROM read_csv('https://example.com/x.csv')",
        "SELECT read_text('/etc/passwd')",
        "SELECT getenv('HOME')",
        "COPY silver.t TO '/tmp/x.parquet'",
        "CREATE TABLE silver.u AS SELECT 1",
        "CREATE EXTERNAL TABLE u STORED AS CSV LOCATION '/etc/passwd'",
        "INSERT INTO silver.t VALUES (1)",
        "DELETE FROM silver.t",
        "DROP TABLE silver.t",
        "SET datafusion.execution.batch_size = 1",
        "SELECT 1; SELECT 2",
        "SELECT * FROM t",
        "EXPLAIN DELETE FROM silver.t",
    ] {
        let error = world.error(sql).await;
        assert_eq!(error.kind, Kind::Invalid, "{sql}: {}", error.chain());
    }
    for sql in [
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM silver.u",
    ] {
        let error = world.error(sql).await;
        assert_eq!(error.kind, Kind::NotFound, "{sql}: {}", error.chain());
    }
    let error = world.error("SELECT * FROM silver.tt").await.chain();
    assert!(error.contains("did you mean silver.t?"), "{error}");
}

#[tokio::test]
async fn more_rows_than_asked_for_are_refused_after_the_limit() {
    let mut world = World::new();
    world
        .model_of("silver.t", &[batch(vec![("id", ints(0..10))])])
        .await;
    let mut statement = Statement::new("SELECT id FROM silver.t");
    statement.limits.rows = Some(10);
    assert_eq!(
        world.run(&statement).await.expect("just enough").num_rows(),
        10
    );
    statement.limits.rows = Some(9);
    let error = world.run(&statement).await.expect_err("one too many");
    assert_eq!(error.kind, Kind::TooLarge);
    assert!(
        error.chain().contains("more than 9 rows"),
        "{}",
        error.chain()
    );
}

#[tokio::test]
async fn an_endless_statement_ends_at_its_time_limit() {
    let world = World::new();
    let endless =
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t";
    let cross = "SELECT sum(a.value * b.value % 7) FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b";
    for sql in [endless, cross] {
        let mut statement = Statement::new(sql);
        statement.limits.time = Duration::from_millis(300);
        let error = world.run(&statement).await.expect_err("the time is over");
        assert_eq!(error.kind, Kind::Unavailable, "{}", error.chain());
        assert!(error.chain().contains("300ms"), "{}", error.chain());
    }
    assert_eq!(world.text("SELECT 1").await, "1");
}

#[tokio::test]
async fn memory_over_the_limit_is_an_error_and_the_process_lives() {
    let world = World::with(Settings {
        memory: 4 << 20,
        spill: None,
        threads: 2,
    });
    let sql =
        "SELECT value, count(*) FROM generate_series(1, 5000000) GROUP BY value ORDER BY 2, 1";
    let error = world.error(sql).await;
    assert_eq!(error.kind, Kind::TooLarge, "{}", error.chain());
    assert!(
        error.chain().contains("memory limit of 4194304 bytes"),
        "{}",
        error.chain()
    );
    assert_eq!(world.text("SELECT 1").await, "1");
}

/// Statements as deep as `domain::sql` lets through, from a thread with a stack of 2 MB.
#[test]
fn statements_just_under_the_limits_do_not_overflow() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_stack_size(2 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    let task = runtime.spawn(async {
        let mut world = World::new();
        world
            .model_of("silver.t", &[batch(vec![("c", ints(0..10))])])
            .await;
        let chain = |term: &str, by: &str| vec![term; 990].join(by);
        let ors: Vec<String> = (0..490).map(|n| format!("c = {n}")).collect();
        let sums = chain("c", " + ");
        let ands = vec!["c < 5"; 490].join(" AND ");
        let (open, close) = ("(".repeat(120), ")".repeat(120));
        let unions = vec!["SELECT c FROM silver.t"; 200].join(" UNION ALL ");
        for (sql, expected) in [
            (
                format!("SELECT count(*) FROM silver.t WHERE {}", ors.join(" OR ")),
                "10",
            ),
            (format!("SELECT count(*) FROM silver.t WHERE {ands}"), "5"),
            (format!("SELECT max({sums}) FROM silver.t"), "8910"),
            (format!("SELECT max({open}c{close}) FROM silver.t"), "9"),
            (format!("SELECT count(*) FROM ({unions}) u"), "2000"),
        ] {
            assert_eq!(world.text(&sql).await, expected);
        }
    });
    runtime.block_on(task).expect("no overflow");
}

/// Each subquery adds the column of the one inside to itself.
#[tokio::test]
async fn filters_do_not_explode() {
    let mut world = World::new();
    world
        .model_of("silver.t", &[batch(vec![("c", ints(1..4))])])
        .await;
    let nested = |levels: usize| {
        let inside = (0..levels).fold(String::from("silver.t"), |inside, n| {
            format!("(SELECT c + c AS c FROM {inside} AS q{n})")
        });
        format!("SELECT max(c) FROM {inside} AS z WHERE c > 0")
    };
    assert_eq!(world.text(&nested(8)).await, "768");
    world.refused(&nested(40), "written out").await;
    world.view("gold.v", &nested(20).replace("WHERE c > 0", ""));
    assert_eq!(world.text("SELECT * FROM gold.v").await, "3145728");
}

/// A column of a long constant is made a few rows at a time.
#[tokio::test]
async fn long_constants_come_in_small_batches() {
    use futures::TryStreamExt;

    let world = World::new();
    let long = "SELECT repeat('x', 1000000) AS a FROM generate_series(1, 300)";
    let rows = world
        .query
        .run(&Statement::new(long), &world.catalog)
        .await
        .expect("runs");
    let (mut count, mut stream) = (0, rows.stream);
    while let Some(batch) = stream.try_next().await.expect("a batch") {
        let bytes = batch.get_array_memory_size();
        assert!(bytes <= 80 << 20, "{bytes} bytes");
        count += batch.num_rows();
    }
    assert_eq!(count, 300);
    // What gathers it is refused when it has gathered too much.
    for gathered in ["length(string_agg(a, ''))", "array_length(array_agg(a))"] {
        let sql = format!(
            "SELECT {gathered} FROM (SELECT repeat('x', 1000000) AS a FROM generate_series(1, 1500))"
        );
        let error = world.error(&sql).await;
        assert_eq!(error.kind, Kind::TooLarge, "{sql}: {}", error.chain());
    }
}

#[tokio::test]
async fn functions_cannot_make_more_than_memory_holds() {
    let world = World::new();
    for sql in [
        "SELECT repeat('x', 2000000000)",
        "SELECT repeat('x', value * 1000000) FROM generate_series(1, 1000)",
        "SELECT length(lpad('x', 2000000000))",
        "SELECT array_repeat('x', 2000000000)",
        "SELECT array_to_string(array_repeat('x', 100000000), ',') = 'a'",
        "SELECT array_length(range(0, 9000000000))",
        "SELECT array_length(generate_series(9000000000, 0, -1))",
        "SELECT array_length(array_resize([1], 2000000000, 0))",
    ] {
        let error = world.error(sql).await;
        assert_eq!(error.kind, Kind::Invalid, "{sql}: {}", error.chain());
        assert!(
            error.chain().contains("limit is 268435456"),
            "{sql}: {}",
            error.chain()
        );
    }
    assert_eq!(
        world
            .text("SELECT repeat('ab', 2) || lpad('7', 3, '0')")
            .await,
        "abab007"
    );
    assert_eq!(
        world
            .text("SELECT range(3), generate_series(2, 6, 2)")
            .await,
        "[0, 1, 2]|[2, 4, 6]"
    );
    let days = "SELECT array_length(range(DATE '2026-01-01', DATE '2026-02-01', INTERVAL '1 day'))";
    assert_eq!(world.text(days).await, "31");
}
