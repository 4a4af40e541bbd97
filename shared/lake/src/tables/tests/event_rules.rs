//! Rules of change events, one by one.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{Field, Schema},
};
use ports::Kind;

use super::{events::Target, histories::Row, world::tight};

/// Events of key, operation and sequence.
fn events(rows: &[(i64, &str, Option<&str>)]) -> RecordBatch {
    let lsn = rows.iter().map(|row| row.2).collect::<StringArray>();
    with_lsn(rows, Arc::new(lsn))
}

fn numbered(rows: &[(i64, &str, i64)]) -> RecordBatch {
    let lsn = rows.iter().map(|row| row.2).collect::<Int64Array>();
    let rows: Vec<_> = rows.iter().map(|row| (row.0, row.1, None)).collect();
    with_lsn(&rows, Arc::new(lsn))
}

fn with_lsn(rows: &[(i64, &str, Option<&str>)], lsn: ArrayRef) -> RecordBatch {
    let ids = rows.iter().map(|row| row.0).collect::<Int64Array>();
    let ops = rows.iter().map(|row| Some(row.1)).collect::<StringArray>();
    table(vec![
        ("id", Arc::new(ids)),
        ("op", Arc::new(ops)),
        ("lsn", lsn),
    ])
}

fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("fits")
}

fn rows(cells: &[&[&str]]) -> Vec<Row> {
    let row = |cells: &&[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
    cells.iter().map(row).collect()
}

#[tokio::test]
async fn sequences_in_text_beyond_64_bits_are_exact() {
    let mut target = Target::new(tight(), &["id"], false);
    let (low, high) = ("9223372036854775808", "9223372036854775809");
    let _ = target
        .apply(vec![events(&[(1, "I", Some(high)), (2, "I", Some("10"))])])
        .await;
    let _ = target
        .apply(vec![events(&[(1, "D", Some(low)), (2, "D", Some("9"))])])
        .await;
    let kept = rows(&[&["1", "I", high], &["2", "I", "10"]]);
    assert_eq!(target.world.rows().await, kept);
    let long = "100000000000000000000000000000000000000000000000000";
    let _ = target.apply(vec![events(&[(1, "D", Some(long))])]).await;
    assert_eq!(target.graves().await, Some(rows(&[&["1", long]])));
}

#[tokio::test]
async fn moments_in_text_compare_as_moments() {
    let mut target = Target::new(tight(), &["id"], false);
    let (noon, later) = ("2024-05-01T14:00:00+02:00", "2024-05-01T12:00:00.5Z");
    let _ = target.apply(vec![events(&[(1, "I", Some(noon))])]).await;
    let dropped = target
        .apply(vec![events(&[(1, "U", Some("2024-05-01T12:00:00Z"))])])
        .await;
    assert!(!dropped.changed);
    let _ = target.apply(vec![events(&[(1, "U", Some(later))])]).await;
    assert_eq!(target.world.rows().await, rows(&[&["1", "U", later]]));
}

#[tokio::test]
async fn sequences_of_two_kinds_are_refused_in_a_batch_and_against_the_table() {
    let mut target = Target::new(tight(), &["id"], false);
    let (number, moment) = (Some("5"), Some("2024-05-01T12:00:00Z"));
    let mixed = events(&[(1, "I", number), (2, "I", moment)]);
    let _ = target.apply(vec![events(&[(1, "I", number)])]).await;
    for batch in [mixed, events(&[(1, "I", moment)])] {
        let error = target.stage(vec![batch]).await.expect_err("mixed");
        assert_eq!(error.kind, Kind::Invalid);
        assert!(
            error.chain().contains("silver.orders.lsn"),
            "{}",
            error.chain()
        );
    }
}

#[tokio::test]
async fn dropped_events_leave_table_and_tombstones_alone() {
    let mut target = Target::new(tight(), &["id"], false);
    let _ = target
        .apply(vec![numbered(&[(1, "I", 5), (2, "D", 5)])])
        .await;
    let staged = target
        .apply(vec![numbered(&[(1, "D", 5), (2, "I", 4)])])
        .await;
    assert!(!staged.changed && staged.tombstones.is_none() && staged.writes.is_empty());
    assert_eq!(target.graves().await, Some(rows(&[&["2", "5"]])));
}

#[tokio::test]
async fn a_delete_of_an_unknown_key_leaves_a_tombstone_and_no_commit() {
    let mut target = Target::new(tight(), &["id"], false);
    let _ = target.apply(vec![numbered(&[(1, "I", 5)])]).await;
    let staged = target.apply(vec![numbered(&[(2, "D", 7)])]).await;
    assert!(!staged.changed && staged.writes.len() == 1);
    let _ = target.apply(vec![numbered(&[(2, "I", 6)])]).await;
    assert_eq!(target.world.rows().await, rows(&[&["1", "I", "5"]]));
}

#[tokio::test]
async fn events_without_a_sequence_come_back() {
    let mut target = Target::new(tight(), &["id"], false);
    let staged = target
        .apply(vec![events(&[
            (1, "I", None),
            (1, "I", Some("3")),
            (2, "I", Some(" ")),
        ])])
        .await;
    assert_eq!(target.world.rows().await, rows(&[&["1", "I", "3"]]));
    let refused: usize = staged.refused.iter().map(RecordBatch::num_rows).sum();
    assert_eq!((refused, staged.added), (2, 1));
}

#[tokio::test]
async fn a_sequence_that_cannot_be_read_is_none_unless_all_are() {
    let mut target = Target::new(tight(), &["id"], false);
    let bad = || {
        vec![events(&[
            (1, "U", Some("abc")),
            (2, "D", Some("0/16B3748")),
        ])]
    };
    let error = target.stage(bad()).await.expect_err("no sequence at all");
    let told = error.chain();
    assert!(
        told.contains("silver.orders.lsn") && told.contains("`abc`"),
        "{told}"
    );
    let _ = target
        .apply(vec![events(&[(1, "I", Some("3")), (3, "I", Some("1e3"))])])
        .await;
    let staged = target.apply(bad()).await;
    let refused: usize = staged.refused.iter().map(RecordBatch::num_rows).sum();
    assert_eq!((refused, staged.changed), (2, false));
    assert_eq!(target.world.rows().await, rows(&[&["1", "I", "3"]]));
}

#[tokio::test]
async fn columns_that_cannot_serve_are_refused() {
    let target = Target::new(tight(), &["id"], false);
    let id: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let op: ArrayRef = Arc::new(StringArray::from(vec!["I"]));
    let float: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let yes: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    let mut soft = Target::new(tight(), &["id"], true);
    let cases = [
        (
            &target,
            vec![("id", id.clone()), ("op", op.clone())],
            "cdc_seq column `lsn` is not in the query",
        ),
        (
            &target,
            vec![("id", id.clone()), ("lsn", id.clone())],
            "cdc_op column `OP` is not in the query",
        ),
        (
            &target,
            vec![("id", id.clone()), ("op", id.clone()), ("lsn", id.clone())],
            "not text",
        ),
        (
            &target,
            vec![("id", id.clone()), ("op", op.clone()), ("lsn", float)],
            "DOUBLE",
        ),
        (
            &soft,
            vec![
                ("id", id.clone()),
                ("op", op),
                ("lsn", id),
                ("_deleted", yes),
            ],
            "`_deleted`",
        ),
    ];
    for (target, columns, says) in cases {
        let error = target.stage(vec![table(columns)]).await.expect_err(says);
        assert!(error.chain().contains(says), "{}", error.chain());
    }
    // Rows of one kind of deletes do not turn into rows of the other by themselves.
    let _ = soft.apply(vec![numbered(&[(1, "I", 1)])]).await;
    soft.soft = false;
    let error = soft
        .stage(vec![numbered(&[(1, "I", 2)])])
        .await
        .expect_err("kept soft");
    assert!(
        error.chain().contains("rebuild it in full"),
        "{}",
        error.chain()
    );
    soft.rebuild = true;
    let _ = soft.apply(vec![numbered(&[(1, "I", 2)])]).await;
    assert_eq!(soft.world.rows().await, rows(&[&["1", "I", "2"]]));
}

#[tokio::test]
async fn tombstones_of_another_key_are_refused_until_a_rebuild() {
    let mut target = Target::new(tight(), &["id"], false);
    let _ = target.apply(vec![numbered(&[(1, "D", 1)])]).await;
    target.key = vec!["id".into(), "op".into()];
    let error = target
        .stage(vec![numbered(&[(1, "I", 2)])])
        .await
        .expect_err("another key");
    assert!(
        error.chain().contains("silver.orders__tombstones"),
        "{}",
        error.chain()
    );
    target.rebuild = true;
    let _ = target
        .apply(vec![numbered(&[(1, "I", 2), (3, "D", 2)])])
        .await;
    assert_eq!(target.graves().await, Some(rows(&[&["3", "D", "2"]])));
}

#[tokio::test]
async fn a_truncate_empties_the_table_of_what_is_not_newer() {
    for soft in [false, true] {
        let mut target = Target::new(tight(), &["id"], soft);
        let _ = target
            .apply(vec![numbered(&[(1, "I", 1), (2, "I", 2), (3, "I", 9)])])
            .await;
        let _ = target.apply(vec![numbered(&[(2, "D", 3)])]).await;
        // It comes late: what is newer stays.
        let staged = target.apply(vec![numbered(&[(0, "T", 5)])]).await;
        assert_eq!(staged.rows, 1, "soft {soft}");
        let after = target.world.rows().await;
        assert_eq!(after[0][0], "3", "soft {soft}");
        // Whatever is older comes too late, and the same again changes nothing.
        let late = vec![numbered(&[
            (1, "U", 4),
            (7, "I", 5),
            (2, "D", 4),
            (0, "T", 5),
        ])];
        let staged = target.apply(late).await;
        assert!(!staged.changed && staged.late.is_empty(), "soft {soft}");
        let staged = target.apply(vec![numbered(&[(1, "I", 6)])]).await;
        assert_eq!(staged.rows, 2, "soft {soft}");
    }
}

/// How many events come too late, one by one or in one change.
async fn late_among(target: &mut Target, events: &[(i64, &str, i64)], split: bool) -> usize {
    let size = if split { 1 } else { events.len() };
    let mut came = 0;
    for some in events.chunks(size) {
        let staged = target.apply(vec![numbered(some)]).await;
        came += staged.late.iter().map(RecordBatch::num_rows).sum::<usize>();
    }
    came
}

#[tokio::test]
async fn a_late_delete_brings_no_late_row_back() {
    // Of the keys nothing is known, but that a tombstone with sequence 9 is gone: it may have been theirs.
    for split in [true, false] {
        let mut target = Target::new(tight(), &["id"], false);
        let _ = target.apply(vec![numbered(&[(1, "I", 20)])]).await;
        target.collected = Some("value 9".to_owned());
        let events = [(7, "D", 3), (7, "I", 5)];
        let came = late_among(&mut target, &events, split).await;
        let told = format!("split {split}");
        assert_eq!(
            target.world.rows().await,
            rows(&[&["1", "I", "20"]]),
            "{told}"
        );
        assert_eq!(came, 1, "{told}");
        assert_eq!(target.graves().await, Some(Vec::new()), "{told}");
        // What is newer than it, and a delete of a row that is there, are as ever.
        let _ = target.apply(vec![numbered(&[(8, "D", 10)])]).await;
        let _ = target.apply(vec![numbered(&[(1, "D", 21)])]).await;
        assert_eq!(
            target.graves().await,
            Some(rows(&[&["1", "21"], &["8", "10"]])),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_truncate_takes_what_tombstones_knew_in_any_batches() {
    for split in [true, false] {
        let mut target = Target::new(tight(), &["id"], false);
        let _ = target
            .apply(vec![numbered(&[(1, "I", 30), (7, "D", 5)])])
            .await;
        target.collected = Some("value 20".to_owned());
        let events = [(0, "T", 10), (7, "I", 15)];
        let came = late_among(&mut target, &events, split).await;
        assert_eq!(came, 1, "split {split}");
        assert_eq!(
            target.world.rows().await,
            rows(&[&["1", "I", "30"]]),
            "split {split}"
        );
    }
}
