//! Columns that come, go and change.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, NullArray, RecordBatch,
        StringArray, UInt64Array,
    },
    datatypes::DataType,
};
use domain::OnSchemaChange::{self, AppendNewColumns, Fail, Ignore, SyncAllColumns};
use ports::{Kind, Tables, tables::Apply};

use super::world::{World, tight};

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter(columns.iter().cloned()).expect("fits")
}

fn longs(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn merge() -> Apply {
    Apply::Merge {
        key: vec!["ID".into()],
    }
}

async fn world() -> World {
    let mut world = World::new(tight());
    let _ = world
        .apply(
            merge(),
            vec![batch(&[("id", longs(&[1, 2])), ("v", texts(&["a", "b"]))])],
        )
        .await;
    world
}

/// Stages and commits; the sentence of a refusal.
async fn change(
    world: &mut World,
    policy: OnSchemaChange,
    rows: RecordBatch,
) -> Result<(), String> {
    let mut change = world.change(merge(), vec![rows]);
    change.on_schema_change = policy;
    match world.lake.stage(change).await {
        Ok(staged) => {
            world.commit(&staged).await;
            Ok(())
        }
        Err(error) => {
            assert_eq!(error.kind, Kind::Invalid);
            Err(error.chain())
        }
    }
}

fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
    rows.iter()
        .map(|row| row.iter().map(|v| (*v).to_owned()).collect())
        .collect()
}

#[tokio::test]
async fn a_number_that_loses_digits_is_refused_and_no_key_becomes_another() {
    let mut world = world().await;
    let doubles = |values: &[f64]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    let decimals = |values: &[i128]| {
        let values = Decimal128Array::from(values.to_vec());
        Arc::new(values.with_precision_and_scale(10, 2).expect("fits")) as ArrayRef
    };
    for (cut, whole) in [
        (doubles(&[1.2, 1.4]), doubles(&[4.0, 5.0])),
        (decimals(&[120, 140]), decimals(&[400, 500])),
    ] {
        let cut = batch(&[("id", cut), ("v", texts(&["c", "d"]))]);
        let told = change(&mut world, Ignore, cut).await.expect_err("cut");
        assert!(
            told.contains("1.2") && told.contains("is no BIGINT"),
            "{told}"
        );
        let whole = batch(&[("id", whole), ("v", texts(&["c", "d"]))]);
        change(&mut world, Ignore, whole).await.expect("whole");
    }
    let expected = [["1", "a"], ["2", "b"], ["4", "c"], ["5", "d"]];
    assert_eq!(world.rows().await, expected);
}

#[tokio::test]
async fn a_new_column_is_null_in_old_rows() {
    let mut world = world().await;
    let new = batch(&[
        ("id", longs(&[2, 3])),
        ("w", longs(&[20, 30])),
        ("V", texts(&["B", "C"])),
    ]);
    change(&mut world, AppendNewColumns, new)
        .await
        .expect("added");
    assert_eq!(
        world.rows().await,
        rows(&[&["1", "a", "NULL"], &["2", "B", "20"], &["3", "C", "30"]])
    );
}

#[tokio::test]
async fn a_missing_or_retyped_column_is_refused_by_default() {
    let mut world = world().await;
    let missing = change(&mut world, AppendNewColumns, batch(&[("id", longs(&[3]))])).await;
    let text = missing.expect_err("refused");
    assert!(
        text.contains("column `v` is missing") && text.contains("sync_all_columns"),
        "{text}"
    );
    let retyped = batch(&[("id", texts(&["3"])), ("v", texts(&["c"]))]);
    let text = change(&mut world, AppendNewColumns, retyped)
        .await
        .expect_err("refused");
    assert!(
        text.contains("column `id` is BIGINT in the table and VARCHAR in the query"),
        "{text}"
    );
    let only_null = batch(&[("id", longs(&[3])), ("v", Arc::new(NullArray::new(1)))]);
    change(&mut world, AppendNewColumns, only_null)
        .await
        .expect("NULL suits every type");
}

#[tokio::test]
async fn fail_refuses_a_new_column_and_takes_another_order() {
    let mut world = world().await;
    let more = batch(&[
        ("id", longs(&[3])),
        ("v", texts(&["c"])),
        ("w", longs(&[1])),
    ]);
    let text = change(&mut world, Fail, more).await.expect_err("refused");
    assert!(text.contains("column `w` is new"), "{text}");
    let turned = batch(&[("v", texts(&["c"])), ("id", longs(&[3]))]);
    change(&mut world, Fail, turned)
        .await
        .expect("the same columns");
}

#[tokio::test]
async fn ignore_keeps_the_columns_of_the_table() {
    let mut world = world().await;
    let other = batch(&[
        ("w", longs(&[9])),
        ("id", Arc::new(Int32Array::from(vec![2])) as ArrayRef),
    ]);
    change(&mut world, Ignore, other).await.expect("taken");
    assert_eq!(world.rows().await, rows(&[&["1", "a"], &["2", "NULL"]]));
}

#[tokio::test]
async fn sync_drops_adds_and_retypes() {
    let mut world = world().await;
    let narrow = batch(&[("id", longs(&[3]))]);
    change(&mut world, SyncAllColumns, narrow)
        .await
        .expect("dropped");
    assert_eq!(world.rows().await, rows(&[&["1"], &["2"], &["3"]]));
    // The column that comes back is another one: what it held before does not.
    let back = batch(&[("id", longs(&[4])), ("v", longs(&[40]))]);
    change(&mut world, SyncAllColumns, back)
        .await
        .expect("added");
    let expected = rows(&[&["1", "NULL"], &["2", "NULL"], &["3", "NULL"], &["4", "40"]]);
    assert_eq!(world.rows().await, expected);
    let retyped = batch(&[("id", longs(&[4])), ("v", texts(&["x"]))]);
    change(&mut world, SyncAllColumns, retyped)
        .await
        .expect("retyped");
    let expected = rows(&[&["1", "NULL"], &["2", "NULL"], &["3", "NULL"], &["4", "x"]]);
    assert_eq!(world.rows().await, expected);
}

#[tokio::test]
async fn a_key_column_that_came_later_is_null_in_old_rows() {
    let mut world = world().await;
    let part: ArrayRef = Arc::new(StringArray::from(vec![None, Some("eu")]));
    let new = batch(&[
        ("id", longs(&[1, 1])),
        ("v", texts(&["A", "E"])),
        ("part", part),
    ]);
    let mut change = world.change(
        Apply::Merge {
            key: vec!["id".into(), "part".into()],
        },
        vec![new],
    );
    change.on_schema_change = AppendNewColumns;
    let staged = world.lake.stage(change).await.expect("stages");
    world.commit(&staged).await;
    let expected = rows(&[&["1", "A", "NULL"], &["1", "E", "eu"], &["2", "b", "NULL"]]);
    assert_eq!((world.rows().await, staged.deleted), (expected, 1));
}

#[tokio::test]
async fn rows_that_replace_all_bring_their_own_columns() {
    let mut world = world().await;
    let other = batch(&[(
        "total",
        Arc::new(UInt64Array::from(vec![u64::MAX])) as ArrayRef,
    )]);
    let staged = world
        .apply(Apply::Overwrite { key: Vec::new() }, vec![other])
        .await;
    assert_eq!(world.rows().await, rows(&[&["18446744073709551615"]]));
    assert_eq!(
        staged.schema.field(0).data_type(),
        &DataType::Decimal128(20, 0)
    );
}

#[tokio::test]
async fn what_cannot_be_a_table_is_refused() {
    let mut world = World::new(tight());
    let twice = batch(&[("id", longs(&[1])), ("Id", longs(&[2]))]);
    let text = change(&mut world, Ignore, twice)
        .await
        .expect_err("refused");
    assert!(text.contains("column `Id` twice"), "{text}");
    let keyless = batch(&[("other", longs(&[1]))]);
    let text = change(&mut world, Ignore, keyless)
        .await
        .expect_err("refused");
    assert!(
        text.contains("unique_key column `ID` is not in the query"),
        "{text}"
    );
    let spans: ArrayRef = Arc::new(arrow::array::DurationSecondArray::from(vec![1]));
    let text = change(&mut world, Ignore, batch(&[("id", spans)]))
        .await
        .expect_err("refused");
    assert!(text.contains("column `id` has type Duration"), "{text}");
}
