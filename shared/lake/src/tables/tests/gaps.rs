//! Values that did not change: events end as one by one, those of one change in the order of their sequences.

use std::{collections::BTreeMap, sync::Arc};

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
struct Event {
    k: i64,
    body: Result<Option<String>, ()>,
    n: Result<Option<i64>, ()>,
    delete: bool,
    lsn: i64,
    seq: i64,
}

fn batch(events: &[Event]) -> RecordBatch {
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
    let op = |e: &Event| Some(if e.delete { "D" } else { "U" });
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

fn random(dice: &mut Dice, seq: i64) -> Event {
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
        lsn: seq - if small(4) == 0 { small(6) } else { 0 },
        seq,
    }
}

/// One event after the other, those of a change in order; also the number of values that nobody had.
fn naive(changes: &[&[Event]]) -> (Vec<Row>, u64) {
    let mut rows = BTreeMap::<i64, (i64, Option<Row>)>::new();
    let mut unknown = 0;
    let mut in_order = Vec::new();
    for change in changes {
        let mut keys = BTreeMap::<i64, Vec<Event>>::new();
        for event in *change {
            keys.entry(event.k).or_default().push(event.clone());
        }
        in_order.extend(keys.into_values().map(|mut events| {
            events.sort_by_key(|event| event.lsn);
            events
        }));
    }
    for events in in_order {
        let last = events.last().expect("there are some");
        if let Some((lsn, row)) = rows.get_mut(&last.k)
            && last.lsn < *lsn
        {
            if let Some(row) = row.as_mut().filter(|_| !last.delete) {
                mend(row, &events);
            }
            continue;
        }
        for event in events {
            let before = rows.get(&event.k);
            let tie = |lsn: i64| lsn == event.lsn;
            if before.is_some_and(|(lsn, _)| event.lsn < *lsn || tie(*lsn)) {
                continue;
            }
            if event.delete {
                rows.insert(event.k, (event.lsn, None));
                continue;
            }
            let kept = before.and_then(|(_, row)| row.clone());
            let mut missing = Vec::new();
            let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
            let mut fill = |name: &str, at: usize, own: Result<String, ()>| match (own, &kept) {
                (Ok(own), _) => own,
                (Err(()), Some(row)) => {
                    let name = format!("\"{name}\"");
                    if row[5].contains(&name) {
                        missing.push(name);
                    }
                    row[at].clone()
                }
                (Err(()), None) => {
                    missing.push(format!("\"{name}\""));
                    unknown += 1;
                    "NULL".to_owned()
                }
            };
            let body = fill("body", 1, event.body.clone().map(text));
            let n = fill("n", 2, event.n.map(|n| text(n.map(|n| n.to_string()))));
            let names = match missing.is_empty() {
                true => "NULL".to_owned(),
                false => format!("[{}]", missing.join(",")),
            };
            let (lsn, seq) = (event.lsn.to_string(), event.seq.to_string());
            let row = vec![event.k.to_string(), body, n, "U".into(), lsn, names, seq];
            rows.insert(event.k, (event.lsn, Some(row)));
        }
    }
    let mut rows: Vec<Row> = rows.into_values().filter_map(|(_, row)| row).collect();
    rows.sort();
    (rows, unknown)
}

/// Fills in what a row is named without, from events that are older than it.
fn mend(row: &mut Row, events: &[Event]) {
    let mut found = false;
    for (name, at) in [("\"body\"", 1), ("\"n\"", 2)] {
        if row[at] != "NULL" || !row[5].contains(name) {
            continue;
        }
        let mut newest = events.iter().rev().take_while(|event| !event.delete);
        let text = |event: &Event| match at {
            1 => event.body.clone().ok(),
            _ => event.n.ok().map(|n| n.map(|n| n.to_string())),
        };
        if let Some(text) = newest.find_map(text) {
            row[at] = text.unwrap_or_else(|| "NULL".to_owned());
            found = true;
        }
    }
    if let Some(last) = events.last().filter(|_| found) {
        row[6] = last.seq.to_string();
    }
}

async fn check(seed: u64, limits: Limits) {
    let mut dice = Dice(seed);
    let events: Vec<Event> = (1..=40).map(|seq| random(&mut dice, seq)).collect();
    // Ties of a delete and an upsert are decided within a change, by design; here nothing ties.
    let mut seen = std::collections::BTreeSet::new();
    let events: Vec<Event> = events
        .into_iter()
        .filter(|event| seen.insert((event.k, event.lsn)))
        .collect();
    for most in [1, 7, 40] {
        let mut target = Target::new(limits, &["k"], false);
        let (mut at, mut told, mut unknown) = (0, 0, 0);
        let mut changes = Vec::new();
        while at < events.len() {
            let change = 1 + usize::try_from(dice.below(most)).expect("small");
            let end = (at + change).min(events.len());
            let split = events[at..end].chunks(3).map(batch).collect();
            told += target.apply(split).await.unavailable;
            changes.push(&events[at..end]);
            at = end;
            let (sofar, missed) = naive(&changes);
            unknown = missed;
            assert_eq!(
                target.world.rows().await,
                sofar,
                "seed {seed}, {most}, {at}"
            );
        }
        // A value may be gone again before a change ends, and is then missed by nobody.
        assert!(told <= unknown, "seed {seed}, {most}: {told} of {unknown}");
        assert!(
            most > 1 || told == unknown,
            "seed {seed}: {told} of {unknown}"
        );
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
fn of_one_key(what: char, lsn: i64, seq: i64) -> Event {
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
    assert_eq!(together(true, &gone).await, whole(141));
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
        for (what, lsn) in [('U', 143), ('D', 110), ('I', 142), ('I', 141), ('U', 144)] {
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
        let row = |changed, body: &str, seq: &str| {
            (changed, body.to_owned(), names.clone(), seq.to_owned())
        };
        let expected = [
            row(true, "NULL", "1"),
            row(false, "NULL", "1"),
            // The newest is the one that is looked for; which one that is nobody knows, so it stays named.
            row(true, "body 142", "3"),
            row(false, "body 142", "3"),
            row(true, "body 142", "5"),
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
