//! Values that did not change: events end as in the order of their sequences, in whatever order and changes they arrive.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};

use super::{
    events::Target,
    histories::{Dice, Row},
    world::tight,
};
use crate::tables::limits::Limits;

const ABSENT: &str = "__debezium_unavailable_value";

/// An event: key, two values (`Err` when it does not have them), operation, sequence, place.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) k: i64,
    body: Result<Option<String>, ()>,
    n: Result<Option<i64>, ()>,
    delete: bool,
    pub(super) truncate: bool,
    pub(super) lsn: i64,
    seq: i64,
}

pub(super) fn batch(events: &[Event]) -> RecordBatch {
    let fields = [
        ("k", DataType::Int64),
        ("body", DataType::Utf8),
        ("n", DataType::Int64),
        ("op", DataType::Utf8),
        ("lsn", DataType::Int64),
        ("unavailable", DataType::Utf8),
        ("_seq", DataType::Int64),
    ]
    .map(|(name, kind)| Field::new(name, kind, true));
    let body = |e: &Event| e.body.clone().unwrap_or_else(|()| Some(ABSENT.to_owned()));
    let n = |e: &Event| e.n.unwrap_or(None);
    let names = |e: &Event| e.n.is_err().then(|| r#"["N", "of_no_column"]"#.to_owned());
    let op = |e: &Event| match (e.truncate, e.delete) {
        (true, _) => Some("T"),
        (false, true) => Some("D"),
        (false, false) => Some("U"),
    };
    let all = || events.iter();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(all().map(|e| Some(e.k)).collect::<Int64Array>()),
        Arc::new(all().map(body).collect::<StringArray>()),
        Arc::new(all().map(n).collect::<Int64Array>()),
        Arc::new(all().map(op).collect::<StringArray>()),
        Arc::new(all().map(|e| Some(e.lsn)).collect::<Int64Array>()),
        Arc::new(all().map(names).collect::<StringArray>()),
        Arc::new(all().map(|e| Some(e.seq)).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).expect("fits")
}

fn random(dice: &mut Dice, seq: i64, late: u64) -> Event {
    let mut small = |n| i64::try_from(dice.below(n)).expect("small");
    Event {
        k: small(5),
        body: match small(4) {
            0 => Err(()),
            1 => Ok(None),
            _ => Ok(Some(format!("body {seq}"))),
        },
        n: if small(3) == 0 {
            Err(())
        } else {
            Ok(Some(seq))
        },
        delete: small(6) == 0,
        // Mostly in order, with a few that come late or twice.
        lsn: seq - if small(4) == 0 { small(late) } else { 0 },
        seq,
        truncate: false,
    }
}

/// Events in the order of their sequences, one after the other. `_seq` is left out.
fn naive(events: &[Event]) -> Vec<Row> {
    let mut in_order = events.to_vec();
    in_order.sort_by_key(|event| event.lsn);
    let mut rows = BTreeMap::<i64, Row>::new();
    for event in in_order {
        let kept = rows.remove(&event.k);
        if event.delete {
            continue;
        }
        let mut missing = Vec::new();
        let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
        let mut fill = |name: &str, at: usize, own: Result<String, ()>| {
            let name = format!("\"{name}\"");
            own.unwrap_or_else(|()| {
                let lost = kept.as_ref().is_none_or(|row| row[5].contains(&name));
                if lost {
                    missing.push(name);
                }
                kept.as_ref()
                    .map_or_else(|| "NULL".to_owned(), |row| row[at].clone())
            })
        };
        let body = fill("body", 1, event.body.clone().map(text));
        let n = fill("n", 2, event.n.map(|n| text(n.map(|n| n.to_string()))));
        let names = match missing.is_empty() {
            true => "NULL".to_owned(),
            false => format!("[{}]", missing.join(",")),
        };
        let row = vec![
            event.k.to_string(),
            body,
            n,
            "U".into(),
            event.lsn.to_string(),
            names,
        ];
        rows.insert(event.k, row);
    }
    rows.into_values().collect()
}

/// Rows of a table without `_seq`, which depends on the order that events arrive in.
pub(super) async fn rows(target: &Target) -> Vec<Row> {
    let mut rows = target.world.rows().await;
    for row in &mut rows {
        row.remove(6);
    }
    rows.sort();
    rows
}

/// A history whose events of one key differ in their sequences: ties are decided by what arrives first.
pub(super) fn history(dice: &mut Dice, late: u64) -> Vec<Event> {
    let events = (1..=40).map(|seq| random(dice, seq, late));
    let mut seen = BTreeSet::new();
    events
        .filter(|event| seen.insert((event.k, event.lsn)))
        .collect()
}

/// Ends of changes at random, of at most so many events each.
pub(super) fn ends(dice: &mut Dice, events: usize, most: u64) -> Vec<usize> {
    let mut ends = vec![0];
    while let Some(last) = ends.last().copied().filter(|last| *last < events) {
        let change = 1 + usize::try_from(dice.below(most)).expect("small");
        ends.push((last + change).min(events));
    }
    ends.remove(0);
    ends
}

/// Values that rows name as those that nobody has, by key and column.
fn lost(rows: &[Row]) -> BTreeSet<(String, String)> {
    let of_row = |row: &Row| {
        let names: Vec<String> = match row[5].as_str() {
            "NULL" => Vec::new(),
            names => serde_json::from_str(names).expect("an array"),
        };
        let key = row[0].clone();
        names.into_iter().map(move |name| (key.clone(), name))
    };
    rows.iter().flat_map(of_row).collect()
}

async fn check(seed: u64, limits: Limits) {
    let mut dice = Dice(seed);
    let events = history(&mut dice, 6 + seed % 3 * 12);
    for most in [1, 7, 40] {
        let mut target = Target::new(limits, &["k"], false);
        let (mut first, mut before) = (0, BTreeSet::new());
        for end in ends(&mut dice, events.len(), most) {
            let change = &events[first..end];
            let staged = target.apply(change.chunks(3).map(batch).collect()).await;
            let expected = naive(&events[..end]);
            assert_eq!(rows(&target).await, expected, "seed {seed}, {most}, {end}");
            // Each is counted when it is lost: what was lost before only if its row was deleted meanwhile.
            let lost = lost(&expected);
            let again = lost.intersection(&before).filter(|(key, _)| {
                let mut deletes = change.iter().filter(|event| event.delete);
                deletes.any(|event| event.k.to_string() == *key)
            });
            let (new, again) = (lost.difference(&before).count(), again.count());
            let (new, most) = (new as u64, (new + again) as u64);
            let counted = staged.unavailable;
            assert!(
                (new..=most).contains(&counted),
                "seed {seed}, {end}: {counted} of {new} to {most}"
            );
            (first, before) = (end, lost);
        }
    }
}

#[tokio::test]
async fn values_that_did_not_change_stay_however_events_are_split() {
    for seed in 0..25 {
        check(seed, tight()).await;
    }
    for seed in 100..115 {
        check(seed, Limits::default()).await;
    }
}

#[tokio::test]
async fn values_of_rows_that_are_written_already_are_read_again() {
    let limits = Limits {
        held_rows: 5,
        file_bytes: 600,
        ..tight()
    };
    for seed in 200..225 {
        check(seed, limits).await;
    }
}

#[tokio::test]
async fn a_value_that_nobody_has_is_null_and_counted() {
    let event = |lsn, body: Result<Option<String>, ()>, n| Event {
        k: 1,
        body,
        n,
        delete: false,
        truncate: false,
        lsn,
        seq: lsn,
    };
    let mut target = Target::new(tight(), &["k"], false);
    let staged = target
        .apply(vec![batch(&[event(1, Err(()), Err(()))])])
        .await;
    assert_eq!(staged.unavailable, 2);
    let row = |body: &str, n: &str, lsn: &str, names: &str| {
        vec![
            ["1", body, n, "U", lsn, names, lsn]
                .map(String::from)
                .to_vec(),
        ]
    };
    let names = r#"["body","n"]"#;
    assert_eq!(target.world.rows().await, row("NULL", "NULL", "1", names));
    let text = Ok(Some("text".to_owned()));
    let staged = target.apply(vec![batch(&[event(2, text, Err(()))])]).await;
    // Counted once; the row says for as long as it is so what it has no value for.
    assert_eq!(staged.unavailable, 0);
    assert_eq!(
        target.world.rows().await,
        row("text", "NULL", "2", r#"["n"]"#)
    );
}

/// A whole row, an update of it that has neither value (U), or a delete (D).
pub(super) fn of_one_key(what: char, lsn: i64, seq: i64) -> Event {
    let text = format!("body {lsn}");
    let (body, n) = match what {
        'U' => (Err(()), Err(())),
        _ => (Ok(Some(text)), Ok(Some(lsn))),
    };
    Event {
        k: 4,
        body,
        n,
        delete: what == 'D',
        truncate: false,
        lsn,
        seq,
    }
}

/// Events of one key in one change: what the row holds after it, if there is one.
async fn together(soft: bool, events: &[(char, i64)]) -> Option<(String, String)> {
    let mut target = Target::new(tight(), &["k"], soft);
    let events: Vec<Event> = (1..)
        .zip(events)
        .map(|(seq, (what, lsn))| of_one_key(*what, *lsn, seq))
        .collect();
    let _ = target.apply(vec![batch(&events)]).await;
    let rows = target.world.rows().await;
    let row = rows.first().map(|row| (row[1].clone(), row[5].clone()));
    assert!(rows.len() <= 1, "{rows:?}");
    row
}

#[tokio::test]
async fn events_of_one_change_are_put_in_order_before_values_are_looked_for() {
    let whole = |lsn: i64| Some((format!("body {lsn}"), "NULL".to_owned()));
    let missing = Some(("NULL".to_owned(), r#"["body","n"]"#.to_owned()));
    let cases: &[(&[(char, i64)], _)] = &[
        (&[('I', 142), ('U', 143)], whole(142)),
        (&[('U', 143), ('I', 142)], whole(142)),
        (&[('U', 143), ('I', 142), ('U', 143)], whole(142)),
        // What is older than the newest whole one says nothing any more, wherever it comes.
        (&[('U', 143), ('I', 124), ('I', 142)], whole(142)),
        (
            &[('I', 124), ('U', 143), ('I', 142), ('U', 141)],
            whole(142),
        ),
        (
            &[('U', 145), ('U', 143), ('U', 144), ('I', 142)],
            whole(142),
        ),
        (&[('U', 143), ('D', 110), ('I', 142)], whole(142)),
        (&[('U', 143), ('I', 142), ('D', 110)], whole(142)),
        // A later one that is whole.
        (
            &[('U', 143), ('I', 142), ('I', 144), ('U', 145)],
            whole(144),
        ),
        (
            &[('U', 145), ('I', 142), ('U', 143), ('I', 144)],
            whole(144),
        ),
    ];
    for (events, row) in cases {
        for soft in [false, true] {
            assert_eq!(
                together(soft, events).await,
                *row,
                "{events:?}, soft {soft}"
            );
        }
    }
    // What was deleted since has no values to be kept.
    let gone = [('U', 143), ('D', 142), ('I', 141)];
    assert_eq!(together(false, &gone).await, missing);
    // A soft delete keeps what was there when it came, which is nothing.
    assert_eq!(together(true, &gone).await, whole(142));
    let there = [('U', 143), ('I', 141), ('D', 142)];
    assert_eq!(together(true, &there).await, whole(141));
}

#[tokio::test]
async fn many_events_of_one_key_in_no_order_are_put_in_order() {
    let mut dice = Dice(7);
    let mut events: Vec<(char, i64)> = (1..3_000).map(|lsn| ('U', lsn)).collect();
    events.push(('I', 0));
    for at in (1..events.len()).rev() {
        let other = usize::try_from(dice.below(at as u64 + 1)).expect("small");
        events.swap(at, other);
    }
    let row = together(false, &events).await;
    assert_eq!(row, Some(("body 0".to_owned(), "NULL".to_owned())));
}

#[tokio::test]
async fn what_a_row_was_left_without_is_filled_in_when_it_comes_late() {
    for soft in [false, true] {
        let mut target = Target::new(tight(), &["k"], soft);
        let mut seq = 0;
        let mut rows = Vec::new();
        for (what, lsn) in [
            ('U', 1430),
            ('D', 1100),
            ('I', 1420),
            ('I', 1410),
            ('U', 1440),
            ('I', 1435),
        ] {
            seq += 1;
            let event = of_one_key(what, lsn, seq);
            let staged = target.apply(vec![batch(&[event])]).await;
            let row = target.world.rows().await.swap_remove(0);
            rows.push((
                staged.changed,
                row[1].clone(),
                row[5].clone(),
                row[6].clone(),
            ));
        }
        let names = r#"["body","n"]"#.to_owned();
        let lacks = |seq: &str| (true, "NULL".to_owned(), names.clone(), seq.to_owned());
        let has = |changed, body: &str, seq: &str| {
            (changed, body.to_owned(), "NULL".to_owned(), seq.to_owned())
        };
        let expected = [
            lacks("1"),
            // It says what is older than it has no say; a soft one leaves its own values.
            match soft {
                true => has(true, "body 1100", "2"),
                false => lacks("2"),
            },
            has(true, "body 1420", "3"),
            has(false, "body 1420", "3"),
            has(true, "body 1420", "5"),
            has(true, "body 1435", "6"),
        ];
        assert_eq!(rows, expected, "soft {soft}");
    }
}

#[tokio::test]
async fn a_soft_deleted_row_is_no_reason_to_lose_its_values() {
    let mut target = Target::new(tight(), &["k"], true);
    let event = |lsn, body: Result<Option<String>, ()>, delete| Event {
        k: 1,
        body,
        n: Ok(Some(lsn)),
        delete,
        truncate: false,
        lsn,
        seq: lsn,
    };
    let text = Ok(Some("text".to_owned()));
    let _ = target.apply(vec![batch(&[event(1, text, false)])]).await;
    let _ = target.apply(vec![batch(&[event(2, Err(()), true)])]).await;
    let _ = target.apply(vec![batch(&[event(3, Err(()), false)])]).await;
    let rows = target.world.rows().await;
    assert_eq!((rows.len(), rows[0][1].as_str()), (1, "text"));
    assert_eq!(rows[0].last().map(String::as_str), Some("false"));
}

#[tokio::test]
async fn what_rows_of_before_are_without_is_known_and_what_they_hold_is_theirs() {
    // Merged, before there were sequences.
    let mut target = Target::new(tight(), &["k"], false);
    let mut row = of_one_key('I', 0, 1);
    row.body = Ok(Some("old".to_owned()));
    let plain = batch(&[row]);
    let mut columns = plain.columns().to_vec();
    columns[4] = arrow::array::new_null_array(&DataType::Int64, 1);
    let plain = RecordBatch::try_new(plain.schema(), columns).expect("fits");
    let merge = ports::tables::Apply::Merge {
        key: vec!["k".into()],
    };
    let _ = target.world.apply(merge.clone(), vec![plain]).await;
    for (lsn, seq) in [(10, 2), (11, 3), (9, 4)] {
        let _ = target
            .apply(vec![batch(&[of_one_key('U', lsn, seq)])])
            .await;
        assert_eq!(rows(&target).await[0][1], "old");
    }
    let _ = target.apply(vec![batch(&[of_one_key('I', 8, 5)])]).await;
    assert_eq!(rows(&target).await[0][1], "body 8");
    // A row that says what it is without, and has no origins.
    let mut target = Target::new(tight(), &["k"], false);
    let mut row = of_one_key('I', 10, 1);
    (row.body, row.n) = (Ok(None), Err(()));
    let _ = target.world.apply(merge, vec![batch(&[row])]).await;
    let _ = target.apply(vec![batch(&[of_one_key('U', 11, 2)])]).await;
    assert_eq!(rows(&target).await[0][5], r#"["n"]"#);
    let _ = target.apply(vec![batch(&[of_one_key('I', 9, 3)])]).await;
    let row = rows(&target).await.swap_remove(0);
    assert_eq!([&row[2], &row[5]], ["9", "NULL"]);
}
