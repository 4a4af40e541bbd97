//! What the rest of the system relies on: conflicts, isolation, re-stamping, corruption, upkeep.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use domain::items::CATALOG;
use object_store::{ObjectStoreExt, path::Path};
use ports::{
    Kind, State, Tables,
    query::{ARRIVAL, UNORDERED},
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

/// Rows of an id, a value and a sequence.
fn arrived(rows: &[(i64, i64, i64)]) -> RecordBatch {
    let column = |value: fn(&(i64, i64, i64)) -> i64| {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(value))) as ArrayRef
    };
    let columns = [
        ("id", column(|row| row.0)),
        ("v", column(|row| row.1)),
        ("_seq", column(|row| row.2)),
    ];
    RecordBatch::try_from_iter(columns).expect("fits")
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
    let rows = arrived(&[(1, 4, 8), (1, 5, 9), (1, 6, 7)]);
    let mut change = world.change(merge(), vec![rows]);
    change.restamp_from = Some(100);
    let staged = world.lake.stage(change).await.expect("stages");
    world.commit(&staged).await;
    assert_eq!(world.rows().await, [["1", "5", "101"]]);
}

#[tokio::test]
async fn several_rows_of_a_key_whose_order_nobody_knows_are_refused() {
    let mut world = World::new(tight());
    let bare = |rows: &[(i64, i64)]| {
        let rows: Vec<_> = rows.iter().map(|(id, v)| (*id, *v, 0)).collect();
        let mut rows = arrived(&rows);
        let _ = rows.remove_column(2);
        rows
    };
    let unordered = |mut change: Change| {
        let metadata = [(UNORDERED.to_owned(), String::from("null"))];
        let schema = change.rows.schema.as_ref().clone();
        change.rows.schema = Arc::new(schema.with_metadata(metadata.into()));
        change
    };
    for batches in [
        vec![bare(&[(4, 0), (7, 0), (7, 1)])],
        vec![bare(&[(7, 0), (4, 0)]), bare(&[(5, 0), (7, 1)])],
    ] {
        let refused = world
            .lake
            .stage(unordered(world.change(merge(), batches)))
            .await
            .expect_err("two of one key");
        assert_eq!(refused.kind, Kind::Invalid);
        let told = refused.chain();
        assert!(told.contains("several rows have id = 7,"), "{told}");
    }
    // Their sequences are of several tables then.
    let refused = world.lake.stage(unordered(
        world.change(merge(), vec![arrived(&[(7, 1, 5), (7, 2, 6)])]),
    ));
    let _ = refused.await.expect_err("two of one key");
    // One of each key is enough, and so are rows that are the same.
    for batches in [
        vec![bare(&[(4, 0), (7, 0)]), bare(&[(5, 0)])],
        vec![bare(&[(4, 0), (7, 1), (7, 1)]), bare(&[(7, 1), (4, 0)])],
        vec![arrived(&[(4, 0, 1), (7, 0, 2), (7, 0, 3)])],
    ] {
        let change = unordered(world.change(merge(), batches));
        let staged = world.lake.stage(change).await.expect("stages");
        world.commit(&staged).await;
    }
}

#[tokio::test]
async fn of_rows_that_tell_when_they_came_the_last_one_stays_and_of_equals_none() {
    for restamp_from in [None, Some(100)] {
        let mut world = World::new(Limits {
            held_rows: 100,
            ..tight()
        });
        let told = |rows: &[(i64, i64, i64)]| {
            let rows = arrived(rows);
            let mut columns: Vec<_> = rows.columns().to_vec();
            columns[2] = Arc::new(Int64Array::from(vec![1; rows.num_rows()]));
            let names = ["id", "v", "_seq"].into_iter().zip(columns);
            let arrival = rows.column(2).clone();
            RecordBatch::try_from_iter(names.chain([(ARRIVAL, arrival)])).expect("fits")
        };
        let change = |world: &World, batches| Change {
            restamp_from,
            ..world.change(merge(), batches)
        };
        let apart = vec![told(&[(1, 4, 8), (1, 5, 9)]), told(&[(1, 6, 7), (2, 0, 9)])];
        let staged = world
            .lake
            .stage(change(&world, apart))
            .await
            .expect("stages");
        world.commit(&staged).await;
        let sequences = restamp_from.map_or(["1", "1"], |_| ["101", "103"]);
        let expected = [["1", "5", sequences[0]], ["2", "0", sequences[1]]];
        assert_eq!(world.rows().await, expected);
        // Two that are the same are one.
        let same = vec![told(&[(1, 4, 9), (1, 4, 9)]), told(&[(3, 3, 7), (1, 4, 9)])];
        let staged = world
            .lake
            .stage(change(&world, same))
            .await
            .expect("stages");
        world.commit(&staged).await;
        assert_eq!(world.rows().await[0][..2], ["1", "4"]);
        for equals in [
            vec![told(&[(1, 4, 9), (2, 4, 9), (1, 5, 9)])],
            vec![told(&[(1, 4, 9), (2, 4, 9)]), told(&[(3, 4, 9), (1, 5, 9)])],
            // Those that are written already are looked at no more.
            vec![
                told(&(0..400).map(|n| (n, 0, 9)).collect::<Vec<_>>()),
                told(&[(1, 0, 9)]),
            ],
        ] {
            let refused = world.lake.stage(change(&world, equals)).await;
            let told = refused.expect_err("two of one key").chain();
            assert!(told.contains("several rows have id = 1,"), "{told}");
        }
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
