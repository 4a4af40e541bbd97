//! Change feeds as tables.

use std::sync::Arc;

use datafusion::arrow::{
    array::{Int64Array, StringArray},
    datatypes::{DataType, SchemaRef},
};
use ports::{
    feed::{Feed, Picked, RowChange},
    tables::Part,
};

use crate::world::{World, batch, ints, schema};

fn columns() -> SchemaRef {
    schema(&[("id", DataType::Int64), ("v", DataType::Utf8)])
}

fn add(world: &mut World, parts: Vec<(RowChange, Picked)>, in_sequence: bool, schema: SchemaRef) {
    let name = "_changes_silver._changes_t".parse().expect("a name");
    let feed = Feed {
        schema,
        parts,
        in_sequence,
    };
    world.catalog.feeds.insert(name, Arc::new(feed));
}

async fn world() -> World {
    let mut world = World::new();
    let values = Arc::new(StringArray::from_iter_values(
        (0..300).map(|n| format!("v{n}")),
    ));
    let rows = batch(vec![("id", ints(0..300)), ("v", values)]);
    let all = Part::File(Arc::new(world.file(&rows, &[0, 299]).await));
    let file = Part::File(Arc::new(world.file(&rows, &[]).await));
    let memory = Part::Memory(batch(vec![
        ("id", ints(7..9)),
        ("v", Arc::new(StringArray::from(vec!["x", "y"]))),
    ]));
    let some = Some(Arc::new([3_u64, 4, 250].into_iter().collect()));
    let whole = |part| Picked { part, rows: None };
    let parts = vec![
        (RowChange::Insert, whole(all)),
        (
            RowChange::Delete,
            Picked {
                part: file,
                rows: some,
            },
        ),
        (RowChange::UpdateBefore, whole(memory.clone())),
        (RowChange::UpdateAfter, whole(memory)),
    ];
    add(&mut world, parts, false, columns());
    world
}

const FEED: &str = "\"_changes_silver\".\"_changes_t\"";

#[tokio::test]
async fn every_row_has_what_happened_to_it() {
    let world = world().await;
    let check = async |select: &str, rest: &str, expected: &str| {
        let sql = format!("SELECT {select} FROM {FEED} AS c {rest}");
        assert_eq!(world.text(&sql).await, expected, "{sql}");
    };
    let order = "GROUP BY _change ORDER BY _change";
    let counts = "delete|3 insert|298 update_after|2 update_before|2";
    check("_change, count(*)", order, counts).await;
    check("count(*)", "", "305").await;
    check("count(c.v)", "", "305").await;
    check(
        "*",
        "WHERE _change = 'delete' ORDER BY id",
        "3|v3|delete 4|v4|delete 250|v250|delete",
    )
    .await;
    check(
        "_change, v, id",
        "WHERE id = 7 ORDER BY 1, 2",
        "insert|v7|7 update_after|x|7 update_before|x|7",
    )
    .await;
    check(
        "v",
        "WHERE _change <> 'insert' AND id > 7 ORDER BY 1",
        "v250 y y",
    )
    .await;
    check("min(id), max(id)", "WHERE _change = 'insert'", "1|298").await;
    check("c._change", "WHERE c.id = 250 ORDER BY 1", "delete insert").await;
}

#[tokio::test]
async fn a_feed_without_rows_is_a_table_without_rows() {
    let mut world = World::new();
    add(&mut world, Vec::new(), false, columns());
    assert_eq!(world.text(&format!("SELECT * FROM {FEED}")).await, "");
    assert_eq!(
        world
            .text(&format!("SELECT count(*), max(_change) FROM {FEED}"))
            .await,
        "0|"
    );
}

#[tokio::test]
async fn rows_of_a_landing_table_come_in_sequence_order() {
    let mut world = World::new();
    let mut file = world.file(&batch(vec![("id", ints(0..5))]), &[]).await;
    file.first_sequence = Some(11);
    let later = batch(vec![
        ("id", ints(5..7)),
        ("_seq", Arc::new(Int64Array::from(vec![16, 17]))),
    ]);
    let some = Some(Arc::new([3_u64, 4].into_iter().collect()));
    let parts = vec![
        (
            RowChange::Insert,
            Picked {
                part: Part::File(Arc::new(file)),
                rows: some,
            },
        ),
        (
            RowChange::Insert,
            Picked {
                part: Part::Memory(later),
                rows: None,
            },
        ),
    ];
    let schema = schema(&[("id", DataType::Int64), ("_seq", DataType::Int64)]);
    add(&mut world, parts, true, schema);
    assert_eq!(
        world.text(&format!("SELECT * FROM {FEED}")).await,
        "3|14|insert 4|15|insert 5|16|insert 6|17|insert"
    );
    assert_eq!(
        world
            .text(&format!("SELECT sum(_seq) FROM {FEED} WHERE _seq > 14"))
            .await,
        "48"
    );
}

#[tokio::test]
async fn a_table_with_a_column_of_that_name_has_no_feed() {
    let mut world = World::new();
    add(
        &mut world,
        Vec::new(),
        false,
        schema(&[("_change", DataType::Utf8)]),
    );
    world
        .refused(
            &format!("SELECT * FROM {FEED}"),
            "column _change of its own",
        )
        .await;
}
