//! What statements mean: names, casts, JSON, views, parameters.

use std::sync::Arc;

use datafusion::arrow::{array::StringArray, datatypes::DataType};
use ports::{
    Kind,
    query::{Parameter, Statement},
};

use crate::world::{World, batch, ints, rows};

const BIG: &str = r#"{"id":9007199254740993,"u":18446744073709551615,"n":-9223372036854775808,"big":123456789012345678901234567890,"d":0.1000000000000000055,"s":"5.7","f":5.7,"z":null,"o":{"k":[1,"x"]}}"#;

#[tokio::test]
async fn numbers_in_json_stay_exact() {
    let mut world = World::new();
    world.payloads("landing.e", &[BIG]);
    let check = async |expr: &str, expected: &str| {
        let sql = format!("SELECT {expr} AS v FROM landing.e");
        assert_eq!(world.text(&sql).await, expected, "{expr}");
    };
    check("(payload->>'id')::bigint", "9007199254740993").await;
    check("(payload->'id')::bigint", "9007199254740993").await;
    check(
        "CAST(payload->>'u' AS DECIMAL(38,0))",
        "18446744073709551615",
    )
    .await;
    check(
        "CAST(payload->'u' AS DECIMAL(38,0))",
        "18446744073709551615",
    )
    .await;
    check("(payload->>'n')::BIGINT", "-9223372036854775808").await;
    check(
        "CAST(payload->>'big' AS DECIMAL(38,0))",
        "123456789012345678901234567890",
    )
    .await;
    check("payload->>'big'", "123456789012345678901234567890").await;
    check("payload->>'d'", "0.1000000000000000055").await;
    check("payload->'o'->>'k'", r#"[1,"x"]"#).await;
    check("payload->'o'->'k'->>1", "x").await;
    check("payload->>'missing'", "").await;
    check("(payload->>'z')::DOUBLE", "").await;
    check("TRY_CAST(payload->>'s' AS BIGINT)", "").await;
    world
        .refused("SELECT (payload->>'s')::bigint FROM landing.e", "5.7")
        .await;
    world
        .refused("SELECT (payload->'f')::bigint FROM landing.e", "5.7")
        .await;
    world.refused("SELECT '5.7'::bigint", "5.7").await;
}

#[tokio::test]
async fn json_operators_bind_tighter_than_comparisons() {
    let mut world = World::new();
    world.payloads(
        "landing.e",
        &[r#"{"n":"5","k":"a"}"#, r#"{"n":"6","k":"b"}"#],
    );
    let count = async |filter: &str| {
        world
            .text(&format!("SELECT count(*) FROM landing.e WHERE {filter}"))
            .await
    };
    assert_eq!(count("payload->>'n' = '5'").await, "1");
    assert_eq!(
        count("payload->>'n' IN ('5', '6') AND payload->>'k' LIKE 'b%'").await,
        "1"
    );
    assert_eq!(count("payload->>'k' BETWEEN 'a' AND 'a'").await, "1");
}

#[tokio::test]
async fn text_becomes_a_moment_in_utc() {
    let world = World::new();
    let check = async |text: &str, expected: &str| {
        let sql = format!("SELECT CAST('{text}' AS TIMESTAMP) AS v");
        assert_eq!(world.text(&sql).await, expected, "{text}");
    };
    check("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.999999").await;
    check("2016-12-31T15:59:60-08:00", "2016-12-31T23:59:59.999999").await;
    check("2026-11-29t16:44:49z", "2026-11-29T16:44:49").await;
    check("2026-11-29T16:44:49+02:00", "2026-11-29T14:44:49").await;
    check("2026-11-29 16:44:49.123456", "2026-11-29T16:44:49.123456").await;
    check("2026-11-29", "2026-11-29T00:00:00").await;
    let now = |sql: &'static str| world.text(sql);
    assert_eq!(now("SELECT TRY_CAST('soon' AS TIMESTAMP) AS v").await, "");
    assert_eq!(now("SELECT '2026-11-29'::date AS v").await, "2026-11-29");
    assert_eq!(
        now("SELECT '2026-11-29T16:44:49Z'::timestamptz AS v").await,
        "2026-11-29T16:44:49Z"
    );
    assert_eq!(
        now("SELECT TIMESTAMP '2016-12-31T23:59:60Z' > '2016-12-31T23:59:59.9Z' AS v").await,
        "true"
    );
    world
        .refused(
            "SELECT CAST('2023-12-11T11:31:60Z' AS TIMESTAMP)",
            "2023-12-11T11:31:60Z",
        )
        .await;
    world.refused("SELECT 'soon'::timestamp", "'soon'").await;
    let kind = world
        .batch("SELECT CAST('2026-11-29' AS TIMESTAMP) AS v")
        .await;
    let micros = datafusion::arrow::datatypes::TimeUnit::Microsecond;
    assert_eq!(
        kind.schema().field(0).data_type(),
        &DataType::Timestamp(micros, None)
    );
}

#[tokio::test]
async fn a_cast_keeps_its_columns_name_and_reads_columns() {
    let mut world = World::new();
    let texts = StringArray::from(vec![Some("2026-11-29T16:44:49+02:00"), None]);
    world
        .model_of("silver.t", &[batch(vec![("at", Arc::new(texts))])])
        .await;
    let read = world
        .batch("SELECT at::timestamp, TRY_CAST(at AS DATE) AS day FROM silver.t")
        .await;
    assert_eq!(rows(&read), ["2026-11-29T14:44:49|2026-11-29", "|"]);
    let names: Vec<_> = read
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    assert_eq!(names, ["at", "day"]);
}

#[tokio::test]
async fn views_are_planned_through_each_other_and_cycles_are_refused() {
    let mut world = World::new();
    world
        .model_of("silver.t", &[batch(vec![("id", ints(0..10))])])
        .await;
    world.view("gold.doubled", "SELECT id * 2 AS id FROM gold.even");
    world.view("gold.even", "SELECT id FROM silver.t WHERE id % 2 = 0");
    world.view("gold.a", "SELECT * FROM gold.b");
    world.view("gold.b", "SELECT * FROM gold.a");
    assert_eq!(world.text("SELECT max(id) FROM gold.doubled").await, "16");
    assert_eq!(
        world
            .text("SELECT count(*) FROM gold.doubled d JOIN gold.even e ON d.id = e.id")
            .await,
        "3"
    );
    world.refused("SELECT * FROM gold.a", "reads itself").await;
}

#[tokio::test]
async fn parameters_are_bound_as_values() {
    let mut world = World::new();
    world
        .model_of("silver.t", &[batch(vec![("id", ints(0..10))])])
        .await;
    let mut statement =
        Statement::new("SELECT count(*) FROM silver.t WHERE id > $1 AND $2 = 'it''s'");
    statement.parameters = vec![Parameter::Integer(6), Parameter::Text(String::from("it's"))];
    assert_eq!(rows(&world.run(&statement).await.expect("runs")), ["3"]);
    statement.parameters.pop();
    assert_eq!(
        world
            .run(&statement)
            .await
            .expect_err("one is missing")
            .kind,
        Kind::Invalid
    );
}

#[tokio::test]
async fn describe_answers_with_the_columns_of_run() {
    let mut world = World::new();
    world.payloads("landing.e", &[BIG]);
    let statement =
        Statement::new("SELECT _seq, (payload->>'id')::bigint AS id, payload FROM landing.e");
    let described = world
        .query
        .describe(&statement, &world.catalog)
        .await
        .expect("described");
    let run = world.run(&statement).await.expect("runs").schema();
    let columns = |schema: &datafusion::arrow::datatypes::Schema| {
        let fields = schema.fields().iter();
        fields
            .map(|f| (f.name().clone(), f.data_type().clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(columns(&described), columns(&run));
    assert_eq!(described.field(2).data_type(), &DataType::Utf8);
}

#[tokio::test]
async fn functions_of_other_engines_are_written_out() {
    let mut world = World::new();
    world
        .model_of("silver.t", &[batch(vec![("id", ints(0..10))])])
        .await;
    for (expr, expected) in [
        ("if(max(id) > 5, 'big', 'small')", "big"),
        ("iff(count(*) = 0, 1, 2)", "2"),
        ("max_by(id, -id)", "0"),
        ("arg_min(id, abs(id - 4))", "4"),
        (
            "datediff('day', TIMESTAMP '2026-01-01 23:59:00', TIMESTAMP '2026-01-03 00:01:00')",
            "2",
        ),
        (
            "date_diff('month', DATE '2025-11-30', DATE '2026-02-01')",
            "3",
        ),
        (
            "datediff('hour', TIMESTAMP '2026-01-01 01:59:00', TIMESTAMP '2026-01-01 00:01:00')",
            "-1",
        ),
    ] {
        let sql = format!("SELECT DISTINCT {expr} AS v FROM silver.t");
        assert_eq!(world.text(&sql).await, expected, "{expr}");
    }
}

/// What `->` answers with, as text.
async fn got(world: &World, value: &str) -> String {
    use datafusion::arrow::{
        array::{Array, AsArray},
        util::display::{ArrayFormatter, FormatOptions},
    };
    let read = world
        .batch(&format!("SELECT {value} AS v FROM landing.e"))
        .await;
    let union = read.column(0).as_union();
    let values = (0..union.len()).map(|row| {
        let value = union.value(row);
        let shown = ArrayFormatter::try_new(&value, &FormatOptions::default());
        shown.expect("a formatter").value(0).to_string()
    });
    values.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn numbers_that_no_type_holds_are_told_as_they_are() {
    let mut world = World::new();
    let payloads = [
        r#"{"n":12345678901234567890123,"o":{"k":-98765432109876543210987}}"#,
        r#"{"n":1e400,"o":{"k":-1e400}}"#,
        r#"{"n":7,"o":{"k":0.5}}"#,
        r#"{"n":null,"o":{"k":[9223372036854775808]}}"#,
        r#"{"m":1}"#,
    ];
    world.payloads("landing.e", &payloads);
    let told = got(&world, "payload->'n'").await;
    assert_eq!(told, "12345678901234567890123 1e400 7  ");
    let told = got(&world, "payload->'o'->'k'").await;
    assert_eq!(
        told,
        "-98765432109876543210987 -1e400 0.5 [9223372036854775808] "
    );
    let constant = got(&world, r#"'{"a":1e400}'->'a'"#).await;
    assert_eq!(constant, "1e400 1e400 1e400 1e400 1e400");
}

#[tokio::test]
async fn decimals_that_are_written_are_exact() {
    let world = World::new();
    for (written, expected) in [
        (
            "12345678901234567.89::DECIMAL(20,2)",
            "12345678901234567.89",
        ),
        (
            "99999999999999999999::DECIMAL(20,0)",
            "99999999999999999999",
        ),
        ("CAST(-0.1 AS DECIMAL(20,18))", "-0.100000000000000000"),
        (
            "-(12345678901234567.89)::NUMERIC(20,2)",
            "-12345678901234567.89",
        ),
        (
            "TRY_CAST(12345678901234567.89 AS DECIMAL(20,2))",
            "12345678901234567.89",
        ),
        ("1e3::DECIMAL(10,1)", "1000.0"),
        ("5::DECIMAL(10,1)", "5.0"),
    ] {
        let sql = format!("SELECT {written} AS v");
        assert_eq!(world.text(&sql).await, expected, "{written}");
    }
}

#[tokio::test]
async fn integers_never_wrap_around() {
    let mut world = World::new();
    world
        .model_of("silver.t", &[batch(vec![("id", ints(0..10))])])
        .await;
    let most = "9223372036854775807";
    for sql in [
        format!("SELECT {most} + 1"),
        format!("SELECT -{most} - 2"),
        String::from("SELECT 3037000500 * 3037000500"),
        format!("SELECT id + {most} FROM silver.t"),
        format!("SELECT {most} - (0 - id) FROM silver.t"),
        format!("SELECT id FROM silver.t WHERE id * {most} > 0"),
    ] {
        world.refused(&sql, "verflow").await;
    }
    let from = format!("FROM (VALUES ('a', {most}), ('a', 1), ('b', 2)) AS t (k, n)");
    for sql in [
        format!("SELECT sum(n) {from}"),
        format!("SELECT k, sum(n) {from} GROUP BY k"),
        format!("SELECT sum(DISTINCT n) {from}"),
        format!("SELECT sum(n) OVER (ORDER BY n DESC) {from}"),
        format!(
            "SELECT sum(n) OVER (ORDER BY n DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) {from}"
        ),
    ] {
        world
            .refused(&sql, "a sum is beyond what its type holds, BIGINT")
            .await;
    }
    // What fits is told, in any order and of the same type.
    let fits = format!("SELECT sum(n) AS s FROM (VALUES ({most}), (1), (-1)) AS t (n)");
    let told = world.batch(&fits).await;
    assert_eq!(rows(&told), [most]);
    assert_eq!(told.schema().field(0).data_type(), &DataType::Int64);
    let all = "SELECT sum(id), sum(id + 1), sum(DISTINCT id % 3), sum(id) FILTER (WHERE id < 0), \
               2 * max(id) - 1 FROM silver.t";
    assert_eq!(world.text(all).await, "45|55|3||17");
    let grouped = "SELECT id + 1 - id % 2 AS g, sum(id * 2) FROM silver.t \
                   WHERE id + 1 > 5 GROUP BY id + 1 - id % 2 ORDER BY id + 1 - id % 2";
    assert_eq!(world.text(grouped).await, "5|10 7|26 9|34");
    let sets =
        "SELECT id % 2 + 1 AS g, sum(id) FROM silver.t GROUP BY ROLLUP (id % 2 + 1) ORDER BY 2";
    assert_eq!(world.text(sets).await, "1|20 2|25 |45");
}
