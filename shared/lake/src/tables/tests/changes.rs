//! The change feed, against what the rows were before and after.

use std::{collections::BTreeSet, sync::Arc};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use domain::{OnSchemaChange, items::Snapshot};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ports::{
    Objects, Tables,
    feed::{Between, Changes, Feed, Lost, RowChange, Since},
    tables::{Apply, Part},
};
use testkit::CountedObjects;

use super::{
    histories::{Dice, Row, batch, in_text, schema},
    world::{World, text, tight},
};
use crate::tables::{Lake, limits::Limits};

async fn ask(world: &World, lake: &Lake, since: Since, to: &Snapshot, key: &[String]) -> Changes {
    let between = Between {
        since,
        to: world.pin(to),
        key: key.to_vec(),
    };
    lake.changes(&between).await.expect("answers")
}

fn told(changes: Changes) -> Feed {
    match changes {
        Changes::Told(feed) => feed,
        Changes::Lost(why) => panic!("lost: {why:?}"),
    }
}

/// Rows of a feed in text, by a reader that knows nothing of the lake's insides.
async fn rows_of(feed: &Feed, objects: &Objects) -> Vec<(RowChange, Row)> {
    let mut rows = Vec::new();
    for (change, picked) in &feed.parts {
        let file = match &picked.part {
            Part::Memory(batch) => {
                assert_eq!(batch.schema(), feed.schema);
                assert!(picked.rows.is_none() && batch.num_rows() > 0);
                rows.extend(in_text(batch).into_iter().map(|row| (*change, row)));
                continue;
            }
            Part::File(file) => file,
        };
        let path = Path::from(file.path.as_str());
        let bytes = objects
            .get(&path)
            .await
            .expect("is there")
            .bytes()
            .await
            .expect("reads");
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("parquet");
        let (mut number, mut chosen) = (0, 0);
        for batch in reader.build().expect("reads") {
            let batch = batch.expect("decodes");
            for row in 0..batch.num_rows() {
                let deleted = file.deleted.as_ref().is_some_and(|d| d.contains(number));
                let is_in = picked
                    .rows
                    .as_ref()
                    .map_or(!deleted, |rows| rows.contains(number));
                number += 1;
                if is_in {
                    chosen += 1;
                    let value = |name: &str| text(batch.column_by_name(name), row);
                    let fields = feed.schema.fields().iter();
                    rows.push((*change, fields.map(|field| value(field.name())).collect()));
                }
            }
        }
        assert!(chosen > 0, "a part without rows");
        if let Some(rows) = &picked.rows {
            assert_eq!(rows.len(), chosen);
        }
    }
    rows
}

fn is_removed(change: RowChange) -> bool {
    matches!(change, RowChange::Delete | RowChange::UpdateBefore)
}

/// A key in text, as merges compare it.
fn key_of(row: &Row, key: &[String]) -> Vec<String> {
    let value = |name: &String| {
        let at = schema().index_of(&name.to_lowercase()).expect("a column");
        if row[at] == "-0.0" {
            "0.0".to_owned()
        } else {
            row[at].clone()
        }
    };
    key.iter().map(value).collect()
}

/// The feed applied to the old rows gives the new ones, nothing in it cancels out, and kinds are what they should be.
fn check_feed(old: &[Row], new: &[Row], feed: &[(RowChange, Row)], key: &[String], at: &str) {
    let mut rows = old.to_vec();
    for (_, row) in feed.iter().filter(|(change, _)| is_removed(*change)) {
        let place = rows.iter().position(|old| old == row);
        rows.remove(place.unwrap_or_else(|| panic!("{at}: {row:?} went and was not there")));
    }
    rows.extend(
        feed.iter()
            .filter(|(change, _)| !is_removed(*change))
            .map(|(_, row)| row.clone()),
    );
    rows.sort();
    assert_eq!(rows, new, "{at}");
    let side = |removed: bool| -> Vec<&Row> {
        let rows = feed
            .iter()
            .filter(|(change, _)| is_removed(*change) == removed);
        rows.map(|(_, row)| row).collect()
    };
    let (went, came) = (side(true), side(false));
    for row in &went {
        // Two NaNs of different bits look the same in text.
        assert!(
            !came.contains(row) || row[2] == "NaN",
            "{at}: {row:?} went and came"
        );
    }
    let keys = |rows: &[&Row]| {
        rows.iter()
            .map(|row| key_of(row, key))
            .collect::<BTreeSet<_>>()
    };
    let (went, came) = (keys(&went), keys(&came));
    for (change, row) in feed {
        let key_of_row = key_of(row, key);
        let both = !key.is_empty() && went.contains(&key_of_row) && came.contains(&key_of_row);
        let update = matches!(change, RowChange::UpdateBefore | RowChange::UpdateAfter);
        assert_eq!(update, both, "{at}: {change:?} {row:?}");
    }
}

async fn check(seed: u64, limits: Limits) {
    let mut dice = Dice(seed);
    let keys: &[&[&str]] = &[&["k"], &["name"], &["ratio"], &["K", "name"]];
    let key: Vec<String> = dice
        .pick(keys)
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let (mut world, mut next) = (World::new(limits), 0);
    let mut sent: Vec<Vec<RecordBatch>> = Vec::new();
    let mut past: Vec<(Snapshot, Vec<Row>)> = Vec::new();
    for step in 0..20 {
        let apply = match dice.below(12) {
            0 => Apply::Append,
            1 if dice.below(3) == 0 => Apply::Overwrite { key: Vec::new() },
            2..6 => Apply::DeleteInsert { key: key.clone() },
            _ => Apply::Merge { key: key.clone() },
        };
        // What was sent before changes less than it touches, or nothing.
        let again = !sent.is_empty() && dice.below(3) == 0;
        let batches = match again {
            true => sent[usize::try_from(dice.below(sent.len() as u64)).expect("small")].clone(),
            false => {
                let rows = dice.below(9);
                vec![batch(&mut dice, &mut next, rows)]
            }
        };
        sent.push(batches.clone());
        let staged = world.apply(apply, batches).await;
        let (to, new) = (staged.snapshot.clone(), world.rows().await);
        let lake = if dice.below(2) == 0 {
            &world.cold()
        } else {
            &world.lake
        };
        let asked: &[String] = if dice.below(4) == 0 { &[] } else { &key };
        let all = told(ask(&world, lake, Since::Beginning, &to, asked).await);
        check_feed(
            &[],
            &new,
            &rows_of(&all, &world.objects).await,
            asked,
            "from nothing",
        );
        let mut ids = BTreeSet::new();
        for (back, (from, old)) in past.iter().rev().enumerate() {
            ids.insert(from.id);
            // The last ones always, those of long ago now and then.
            if back > 3 && dice.below(4) > 0 {
                continue;
            }
            let at = format!("seed {seed}, step {step}, {back} back");
            match ask(&world, lake, Since::Snapshot(from.clone()), &to, asked).await {
                Changes::Told(feed) => {
                    let rows = rows_of(&feed, &world.objects).await;
                    check_feed(old, &new, &rows, asked, &at);
                }
                Changes::Lost(why) => {
                    assert_eq!(why, Lost::Expired, "{at}");
                    assert!(ids.len() >= limits.snapshots - 1, "{at}");
                }
            }
        }
        past.push((to, new));
    }
}

#[tokio::test]
async fn any_history_is_told_by_its_feed() {
    for seed in 0..24 {
        check(seed, tight()).await;
    }
}

#[tokio::test]
async fn small_tables_written_anew_are_told_by_what_changed_in_them() {
    for seed in 100..112 {
        check(seed, Limits::default()).await;
    }
}

#[tokio::test]
async fn rows_that_are_too_many_to_keep_are_told_the_same() {
    let limits = Limits {
        feed_bytes: 0,
        feed_rows: 3,
        ..tight()
    };
    for seed in 200..208 {
        check(seed, limits).await;
    }
}

fn orders(ids: &[i64], value: &str) -> RecordBatch {
    let values = StringArray::from(vec![value; ids.len()]);
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from(ids.to_vec()))),
        ("v", Arc::new(values)),
    ];
    RecordBatch::try_from_iter(columns).expect("fits")
}

fn merge() -> Apply {
    let key = vec!["id".to_owned()];
    Apply::Merge { key }
}

#[tokio::test]
async fn a_row_merged_with_itself_is_no_change() {
    for limits in [tight(), Limits::default()] {
        let mut world = World::new(limits);
        let before = world
            .apply(merge(), vec![orders(&[1, 2, 3], "a")])
            .await
            .snapshot;
        let _ = world.apply(merge(), vec![orders(&[2], "b")]).await;
        let after = world
            .apply(merge(), vec![orders(&[1, 2], "a")])
            .await
            .snapshot;
        let feed = told(ask(&world, &world.lake, Since::Snapshot(before), &after, &[]).await);
        assert!(feed.parts.is_empty(), "{feed:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_told_is_not_made_up() {
    let mut world = World::new(Limits {
        snapshots: 3,
        ..tight()
    });
    let first = world
        .apply(merge(), vec![orders(&[1, 2], "a")])
        .await
        .snapshot;
    let mut last = first.clone();
    for id in 3..7 {
        last = world
            .apply(merge(), vec![orders(&[id], "a")])
            .await
            .snapshot;
    }
    let lost = async |world: &World, since: Since, to: &Snapshot| match ask(
        world,
        &world.lake,
        since,
        to,
        &[],
    )
    .await
    {
        Changes::Lost(why) => why,
        Changes::Told(feed) => panic!("{feed:?}"),
    };
    assert_eq!(
        lost(&world, Since::Snapshot(first), &last).await,
        Lost::Expired
    );
    assert_eq!(lost(&world, Since::Sequence(7), &last).await, Lost::Expired);
    // A column that goes: rows of before cannot be compared.
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![9]));
    let narrow = RecordBatch::try_from_iter([("id", ids)]).expect("fits");
    let mut change = world.change(merge(), vec![narrow]);
    change.on_schema_change = OnSchemaChange::SyncAllColumns;
    let staged = world.lake.stage(change).await.expect("stages");
    world.commit(&staged).await;
    let (narrowed, back) = (staged.snapshot, orders(&[9], "z"));
    assert_eq!(
        lost(&world, Since::Snapshot(last), &narrowed).await,
        Lost::Columns
    );
    // And one that comes back under a name that files still hold other values of.
    let mut change = world.change(merge(), vec![back]);
    change.on_schema_change = OnSchemaChange::SyncAllColumns;
    let staged = world.lake.stage(change).await.expect("stages");
    world.commit(&staged).await;
    let revived = staged.snapshot;
    assert_eq!(
        lost(&world, Since::Snapshot(narrowed), &revived).await,
        Lost::Columns
    );
}

#[tokio::test]
async fn a_column_that_came_is_null_in_rows_of_before() {
    let mut world = World::new(Limits::default());
    let before = world
        .apply(merge(), vec![orders(&[1, 2], "a")])
        .await
        .snapshot;
    let wide = RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(vec![2])) as ArrayRef),
        ("v", Arc::new(StringArray::from(vec!["b"])) as ArrayRef),
        ("w", Arc::new(Int64Array::from(vec![5])) as ArrayRef),
    ])
    .expect("fits");
    let after = world.apply(merge(), vec![wide]).await.snapshot;
    let key = ["id".to_owned()];
    let feed = told(ask(&world, &world.lake, Since::Snapshot(before), &after, &key).await);
    let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
    assert_eq!(
        rows_of(&feed, &world.objects).await,
        [
            (RowChange::UpdateBefore, row(["2", "a", "NULL"])),
            (RowChange::UpdateAfter, row(["2", "b", "5"])),
        ]
    );
}

/// Requests and bytes of the feed of one merged row, in a table of so many rows in many files.
async fn cost(rows: i64) -> (u64, u64) {
    let counted = Arc::new(CountedObjects::new(Arc::new(InMemory::new())));
    let limits = Limits {
        small_bytes: 0,
        file_bytes: 4_000,
        ..tight()
    };
    let mut world = World::over(counted.clone(), "memory:///lake", limits);
    for start in (0..rows).step_by(250) {
        let ids: Vec<i64> = (start..start + 250).collect();
        let _ = world.apply(Apply::Append, vec![orders(&ids, "a")]).await;
    }
    let before = world.snapshot.clone().expect("published");
    let after = world.apply(merge(), vec![orders(&[7], "b")]).await.snapshot;
    counted.take();
    let feed = told(
        ask(
            &world,
            &world.lake,
            Since::Snapshot(before),
            &after,
            &["id".to_owned()],
        )
        .await,
    );
    let counts = counted.take();
    assert_eq!(rows_of(&feed, &world.objects).await.len(), 2);
    (counts.requests(), counts.bytes_got)
}

#[tokio::test]
async fn a_feed_costs_what_changed_and_not_what_is_there() {
    let (small, large) = (cost(1_000).await, cost(20_000).await);
    assert_eq!(small.0, large.0, "{small:?} {large:?}");
    assert!(
        small.0 <= 8 && large.1 <= small.1 + 1_000,
        "{small:?} {large:?}"
    );
}
