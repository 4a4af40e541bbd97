//! Compaction: other files, the same rows, and nothing that a reader would notice.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use domain::items::{self, HEAD, Head};
use ports::{
    State, Tables,
    feed::{Between, Changes, Since},
    state::Key,
    tables::Apply,
    upkeep::Compacted,
};

use super::world::{World, tight};

fn orders(ids: std::ops::Range<i64>, note: &str) -> RecordBatch {
    let notes: ArrayRef = Arc::new(StringArray::from_iter_values(
        ids.clone()
            .map(|id| format!("{note} {}", id * 7_919 % 10_007)),
    ));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_from_iter([("id", ids), ("note", notes)]).expect("a batch")
}

async fn head(world: &World) -> Head {
    let key = Key::new(items::table(&world.table), HEAD);
    let item = world.state.get(&key).await.expect("answers");
    item.expect("is there").decode().expect("a head")
}

#[tokio::test]
async fn a_file_with_many_deleted_rows_is_written_anew_and_nobody_notices() {
    let key = vec!["id".to_owned()];
    let merge = || Apply::Merge { key: key.clone() };
    let mut world = World::new(tight());
    let _ = world.apply(merge(), vec![orders(0..500, "first")]).await;
    let _ = world.apply(merge(), vec![orders(0..200, "second")]).await;
    let (rows, before) = (world.rows().await, head(&world).await);
    let base = before.snapshot.clone().expect("a snapshot");
    let deleted = |table: &super::super::Table| -> u64 {
        table
            .files
            .iter()
            .map(super::super::table::Data::deleted_rows)
            .sum()
    };
    let table = world
        .lake
        .table(&world.table, &base)
        .await
        .expect("a table");
    assert_eq!(deleted(&table), 200, "merge-on-read");

    let done = world
        .lake
        .compact(&world.table, &key, 1 << 20)
        .await
        .expect("compacts");
    assert_eq!((done.files, done.conflict), (1, false));
    let after = head(&world).await;
    let snapshot = after.snapshot.clone().expect("a snapshot");
    assert_ne!(snapshot, base);
    assert_eq!(
        Head {
            snapshot: before.snapshot.clone(),
            ..after
        },
        before,
        "no reader is woken"
    );
    assert_eq!(world.rows().await, rows);
    let table = world
        .cold()
        .table(&world.table, &snapshot)
        .await
        .expect("a table");
    assert_eq!((deleted(&table), table.deletes.len()), (0, 0));
    let summary = &table
        .metadata
        .snapshot_by_id(snapshot.id)
        .expect("listed")
        .summary()
        .additional_properties;
    assert_eq!(
        summary.get("headwater.watermark").map(String::as_str),
        Some("7")
    );

    let between = Between {
        since: Since::Snapshot(base),
        to: world.pin(&snapshot),
        key: key.clone(),
    };
    match world.lake.changes(&between).await.expect("answers") {
        Changes::Told(feed) => assert!(feed.parts.is_empty(), "rows that are the same cancel out"),
        Changes::Lost(why) => panic!("lost: {why:?}"),
    }
    let again = world
        .lake
        .compact(&world.table, &key, 1 << 20)
        .await
        .expect("compacts");
    assert_eq!(again, Compacted::default(), "once");

    world.snapshot = Some(snapshot);
    let _ = world.apply(merge(), vec![orders(0..1, "third")]).await;
    assert_eq!(world.rows().await.len(), 500);
}
