//! MIN and MAX of floating-point numbers: one answer, whatever order the rows come in.

use std::sync::Arc;

use datafusion::arrow::{
    array::{Float32Array, Float64Array},
    datatypes::DataType,
};

use crate::world::{World, batch, ints};

#[tokio::test]
async fn nan_is_greatest_in_any_order() {
    let world = World::new();
    let nan = "'NaN'::double";
    for rows in [
        ["3.0", nan, "1.0"],
        [nan, "3.0", "1.0"],
        ["1.0", "3.0", nan],
    ] {
        let rows = rows.map(|row| format!("(1, {row})")).join(", ");
        let from = format!("FROM (VALUES {rows}) AS t (n, x)");
        let grouped = format!("SELECT n, max(x), min(x) {from} GROUP BY n");
        assert_eq!(world.text(&grouped).await, "1|NaN|1.0", "{rows}");
        let all = format!("SELECT max(x), min(x) {from}");
        assert_eq!(world.text(&all).await, "NaN|1.0", "{rows}");
        let filtered = format!("SELECT n, max(x) FILTER (WHERE x < 3.0) AS m {from} GROUP BY n");
        assert_eq!(world.text(&filtered).await, "1|1.0", "{rows}");
    }
    let only = format!("SELECT min(x) FROM (VALUES ({nan}), (NULL)) AS t (x)");
    assert_eq!(world.text(&only).await, "NaN");
}

#[tokio::test]
async fn zeros_have_one_answer() {
    let world = World::new();
    for rows in ["(1, 0.0), (1, -0.0)", "(1, -0.0), (1, 0.0)"] {
        let sql = format!("SELECT n, max(x), min(x) FROM (VALUES {rows}) AS t (n, x) GROUP BY n");
        assert_eq!(world.text(&sql).await, "1|0.0|-0.0", "{rows}");
    }
}

#[tokio::test]
async fn windows_and_files_agree_with_it() {
    let mut world = World::new();
    let numbers = [Some(1.0), Some(-f64::NAN), Some(3.0), None, Some(2.0)];
    let narrow = numbers.map(|number| number.map(|number| number as f32));
    let rows = batch(vec![
        ("id", ints(0..5)),
        ("x", Arc::new(Float64Array::from(numbers.to_vec()))),
        ("y", Arc::new(Float32Array::from(narrow.to_vec()))),
    ]);
    world.model_of("silver.t", &[rows.clone(), rows]).await;
    let rows = "(SELECT DISTINCT id, x FROM silver.t) AS q";
    let sliding = format!(
        "SELECT id, max(x) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS m \
         FROM {rows} WHERE id <> 3 ORDER BY id"
    );
    assert_eq!(world.text(&sliding).await, "0|1.0 1|NaN 2|NaN 4|3.0");
    let running = format!("SELECT id, min(x) OVER (ORDER BY id) AS m FROM {rows} ORDER BY id");
    assert_eq!(world.text(&running).await, "0|1.0 1|1.0 2|1.0 3|1.0 4|1.0");
    let all = "SELECT max(x), min(x), max(y), min(y), max(DISTINCT y) FROM silver.t";
    assert_eq!(world.text(all).await, "NaN|1.0|NaN|1.0|NaN");
    let grouped =
        "SELECT id % 2 AS k, max(x), max(y), max(id), count(*) FROM silver.t GROUP BY 1 ORDER BY 1";
    assert_eq!(world.text(grouped).await, "0|3.0|3.0|4|6 1|NaN|NaN|3|4");
    // Columns have the names and types they ever had.
    let read = world.batch("SELECT max(x), max(y) FROM silver.t").await;
    let schema = read.schema();
    let name = schema.field(0).name();
    assert!(name.starts_with("max(") && name.ends_with("x)"), "{name}");
    assert_eq!(schema.field(1).data_type(), &DataType::Float32);
}
