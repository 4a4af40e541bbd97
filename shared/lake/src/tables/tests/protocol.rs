//! What the rest of the system relies on: conflicts, isolation, re-stamping, corruption, upkeep.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use domain::items::CATALOG;
use object_store::{ObjectStoreExt, path::Path};
use ports::{
    Kind, State, Tables,
    query::UNORDERED,
    state::{Key, Outcome},
    tables::{Apply, Change, Part},
};

use super::world::{World, read, tight};
use crate::tables::limits::Limits;

fn rows(ids: &[i64]) -> RecordBatch {
    let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let sequences = (1..=ids.len())
        .map(|n| i64::try_from(n).expect("small"))
        .collect();
    RecordBatch::try_from_iter([("id", column(ids.to_vec())), ("_seq", column(sequences))])
        .expect("fits")
}

fn merge() -> Apply {
    Apply::Merge {
        key: vec!["id".into()],
    }
}

#[tokio::test]
async fn a_change_of_a_stale_base_is_a_conflict() {
    let mut world = World::new(tight());
    let _ = world.apply(merge(), vec![rows(&[1])]).await;
    let first = world
        .lake
        .stage(world.change(merge(), vec![rows(&[2])]))
        .await
        .expect("stages");
    let second = world
        .lake
        .stage(world.change(merge(), vec![rows(&[3])]))
        .await
        .expect("stages");
    let stale = world.change(merge(), vec![rows(&[4])]);
    world.commit(&first).await;
    let outcome = world.state.transact(second.writes).await.expect("answers");
    assert!(matches!(outcome, Outcome::Conflict(_)), "{outcome:?}");
    let error = world.lake.stage(stale).await.expect_err("stale");
    assert_eq!(error.kind, Kind::Conflict);
    let mut create = world.change(merge(), vec![rows(&[4])]);
    create.base = None;
    assert_eq!(
        world.lake.stage(create).await.expect_err("it exists").kind,
        Kind::Conflict
    );
}

#[tokio::test]
async fn what_is_staged_can_be_read_and_is_not_the_table() {
    let mut world = World::new(tight());
    let _ = world.apply(merge(), vec![rows(&[1])]).await;
    let staged = world
        .lake
        .stage(world.change(merge(), vec![rows(&[1, 2])]))
        .await
        .expect("stages");
    let pin = world.pin(&staged.snapshot);
    assert_eq!(read(&world.cold(), &world.objects, &pin).await.len(), 2);
    assert_eq!(world.rows().await.len(), 1);
}

#[tokio::test]
async fn no_rows_change_nothing() {
    let mut world = World::new(tight());
    let created = world.apply(merge(), vec![rows(&[])]).await;
    assert!(created.changed && created.rows == 0 && world.rows().await.is_empty());
    for apply in [
        merge(),
        Apply::Append,
        Apply::Overwrite { key: Vec::new() },
        Apply::DeleteInsert {
            key: vec!["id".into()],
        },
    ] {
        let staged = world.apply(apply, vec![rows(&[])]).await;
        assert!(!staged.changed && staged.writes.is_empty());
        assert_eq!(staged.snapshot, created.snapshot);
    }
    let _ = world.apply(merge(), vec![rows(&[1])]).await;
    let emptied = world
        .apply(Apply::Overwrite { key: Vec::new() }, vec![rows(&[])])
        .await;
    assert!(emptied.changed && emptied.deleted == 1 && world.rows().await.is_empty());
}

#[tokio::test]
async fn re_stamped_rows_are_numbered_as_delivered() {
    let mut world = World::new(tight());
    let mut change = world.change(Apply::Append, vec![rows(&[7, 8]), rows(&[9])]);
    change.restamp_from = Some(100);
    let staged = world.lake.stage(change).await.expect("stages");
    world.commit(&staged).await;
    assert_eq!(staged.sequence_max, Some(102));
    let expected = [["7", "100"], ["8", "101"], ["9", "102"]];
    assert_eq!(world.rows().await, expected);
}

#[tokio::test]
async fn of_rows_that_are_numbered_anew_the_one_stays_that_the_query_gave_the_highest_sequence() {
    let mut world = World::new(tight());
    let column = |values: [i64; 3]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let columns = [
        ("id", column([1, 1, 1])),
        ("v", column([4, 5, 6])),
        ("_seq", column([8, 9, 7])),
    ];
    let rows = RecordBatch::try_from_iter(columns).expect("fits");
    let mut change = world.change(merge(), vec![rows]);
    change.restamp_from = Some(100);
    let staged = world.lake.stage(change).await.expect("stages");
    world.commit(&staged).await;
    assert_eq!(world.rows().await, [["1", "5", "101"]]);
}

#[tokio::test]
async fn several_rows_of_a_key_whose_order_nobody_knows_are_refused() {
    let mut world = World::new(tight());
    let bare = |ids: &[i64]| {
        let column = Arc::new(Int64Array::from(ids.to_vec())) as ArrayRef;
        RecordBatch::try_from_iter([("id", column)]).expect("fits")
    };
    let unordered = |mut change: Change| {
        let metadata = [(UNORDERED.to_owned(), String::from("null"))];
        let schema = change.rows.schema.as_ref().clone();
        change.rows.schema = Arc::new(schema.with_metadata(metadata.into()));
        change
    };
    for batches in [vec![bare(&[4, 7, 7])], vec![bare(&[7, 4]), bare(&[5, 7])]] {
        let refused = world
            .lake
            .stage(unordered(world.change(merge(), batches)))
            .await
            .expect_err("two of one key");
        assert_eq!(refused.kind, Kind::Invalid);
        let told = refused.chain();
        assert!(told.contains("several rows have id = 7,"), "{told}");
    }
    // One of each key is enough, and so is a sequence.
    for batches in [vec![bare(&[4, 7]), bare(&[5])], vec![rows(&[4, 7, 7])]] {
        let change = unordered(world.change(merge(), batches));
        let staged = world.lake.stage(change).await.expect("stages");
        world.commit(&staged).await;
    }
}

#[tokio::test]
async fn files_stay_few_and_metadata_short() {
    let mut world = World::new(Limits {
        small_bytes: 0,
        ..tight()
    });
    let _ = world
        .apply(merge(), vec![rows(&(0..400).collect::<Vec<_>>())])
        .await;
    for step in 0..40 {
        let ids: Vec<i64> = (0..5).map(|n| (step * 37 + n * 61) % 400).collect();
        let _ = world.apply(merge(), vec![rows(&ids)]).await;
        let snapshot = world.snapshot.clone().expect("published");
        let table = world
            .lake
            .table(&world.table, &snapshot)
            .await
            .expect("kept");
        assert!(
            table.deletes.len() <= 3,
            "{} delete files",
            table.deletes.len()
        );
        assert!(
            table.manifests.len() <= 6,
            "{} manifests",
            table.manifests.len()
        );
        assert!(table.metadata.snapshots().len() <= 6);
        assert_eq!(table.rows(), 400);
        assert_eq!(world.rows().await.len(), 400);
    }
    let summary = {
        let snapshot = world.snapshot.clone().expect("published");
        let table = world
            .lake
            .table(&world.table, &snapshot)
            .await
            .expect("kept");
        table
            .metadata
            .current_snapshot()
            .expect("one")
            .summary()
            .clone()
    };
    assert_eq!(summary.additional_properties["headwater.watermark"], "7");
    assert_eq!(summary.operation.as_str(), "overwrite");
}

#[tokio::test]
async fn a_tiny_table_stays_one_file_without_deletes() {
    let mut world = World::new(Limits::default());
    for step in 0..12 {
        let _ = world.apply(merge(), vec![rows(&[step % 3, 7])]).await;
        let pin = world.pin(&world.snapshot.clone().expect("published"));
        let scan = world.lake.scan(&pin, 0).await.expect("scans");
        let [Part::File(file)] = scan.parts.as_slice() else {
            panic!("{} parts", scan.parts.len())
        };
        assert!(file.deleted.is_none());
    }
}

#[tokio::test]
async fn broken_metadata_is_corrupt() {
    let mut world = World::new(tight());
    let _ = world.apply(merge(), vec![rows(&[1])]).await;
    let snapshot = world.snapshot.clone().expect("published");
    let path = Path::from(snapshot.metadata.as_str());
    world.objects.put(&path, "{".into()).await.expect("puts");
    let pin = world.pin(&snapshot);
    assert_eq!(
        world.cold().scan(&pin, 0).await.expect_err("no JSON").kind,
        Kind::Corrupt
    );
    world.objects.delete(&path).await.expect("deletes");
    assert_eq!(
        world.cold().scan(&pin, 0).await.expect_err("gone").kind,
        Kind::Corrupt
    );
}

#[tokio::test]
async fn the_catalog_pointer_reads_as_pyiceberg_expects() {
    let mut world = World::new(tight());
    let first = world.apply(merge(), vec![rows(&[1])]).await;
    let second = world.apply(merge(), vec![rows(&[2])]).await;
    let item = world
        .state
        .get(&Key::new(CATALOG, "silver.orders"))
        .await
        .expect("answers")
        .expect("put");
    let value: serde_json::Value = item.decode().expect("JSON");
    let location = |path: &str| format!("memory:///lake/{path}");
    assert_eq!(
        value["metadata_location"],
        location(&second.snapshot.metadata)
    );
    assert_eq!(
        value["previous_metadata_location"],
        location(&first.snapshot.metadata)
    );
}
