//! Values that did not change, and changes: however a history is split into them, it ends alike.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use domain::OnSchemaChange;

use super::{
    events::Target,
    gaps::{Event, batch, ends, history, of_one_key, rows},
    histories::{Dice, Row},
    world::tight,
};
use crate::tables::{limits::Limits, rank::Rank};

/// How a table keeps deletes: their rows, or tombstones, of which those through a sequence are gone once it has some events.
#[derive(Clone, Copy, Debug)]
enum Deletes {
    Soft,
    Hard,
    Collected { through: i64, once: usize },
}

impl Deletes {
    /// A table with these events, as they were before there was any reason to look at how they are split.
    async fn target(self, limits: Limits, events: &[Event]) -> (Target, usize) {
        let mut target = Target::new(limits, &["k"], matches!(self, Self::Soft));
        let Self::Collected { through, once } = self else {
            return (target, 0);
        };
        let once = once.min(events.len());
        for event in &events[..once] {
            let _ = target.apply(vec![batch(std::slice::from_ref(event))]).await;
        }
        target.collected = Some(Rank::Value(through.into()).to_text());
        (target, once)
    }

    /// What a table holds once all events were applied in changes that end there.
    async fn after(self, events: &[Event], ends: &[usize]) -> Vec<Row> {
        let (mut target, mut first) = self.target(tight(), events).await;
        for end in ends
            .iter()
            .filter(|end| **end > first)
            .copied()
            .collect::<Vec<_>>()
        {
            let _ = target.apply(vec![batch(&events[first..end])]).await;
            first = end;
        }
        rows(&target).await
    }
}

/// The same history in several changes and in one.
async fn compare(seed: u64, deletes: Deletes, limits: Limits) {
    let mut dice = Dice(seed);
    let mut events = history(&mut dice, 6 + seed % 3 * 12);
    // Few keys and many truncates, so that all that may come between two events of a key does.
    for event in &mut events {
        event.truncate = dice.below(if seed.is_multiple_of(2) { 12 } else { 6 }) == 0;
        event.k %= if seed.is_multiple_of(3) { 2 } else { 5 };
    }
    let mut seen = BTreeSet::new();
    events.retain(|event| seen.insert((event.k, event.lsn)));
    for most in [1, 4, 15] {
        let (mut target, begin) = deletes.target(limits, &events).await;
        let mut first = begin;
        for end in ends(&mut dice, events.len() - begin, most) {
            let end = begin + end;
            let change = events[first..end].chunks(3).map(batch).collect();
            let _ = target.apply(change).await;
            first = end;
            let split = rows(&target).await;
            let history = &events[..end];
            let whole = deletes.after(history, &[end]).await;
            assert_eq!(
                split, whole,
                "seed {seed}, {deletes:?}, {most}: {history:#?}"
            );
        }
    }
}

#[tokio::test]
async fn however_a_history_is_split_it_ends_alike() {
    for seed in 0..40 {
        for deletes in [Deletes::Soft, Deletes::Hard] {
            compare(seed, deletes, tight()).await;
        }
    }
}

#[tokio::test]
async fn however_a_history_is_split_it_ends_alike_when_it_is_not_held() {
    let limits = Limits {
        held_rows: 3,
        file_bytes: 600,
        ..tight()
    };
    let through = 15;
    for seed in 40..50 {
        for deletes in [
            Deletes::Soft,
            Deletes::Hard,
            Deletes::Collected { through, once: 8 },
        ] {
            compare(seed, deletes, limits).await;
        }
    }
}

#[tokio::test]
async fn however_a_history_is_split_tombstones_that_are_gone_let_the_same_through() {
    for seed in 0..10 {
        for (through, once) in [(4, 0), (15, 0), (15, 8), (25, 15), (35, 15)] {
            compare(seed, Deletes::Collected { through, once }, tight()).await;
        }
    }
}

/// A history of one key (see `of_one_key`; T truncates), in every way of splitting it, with what a table holds in the end.
async fn every_split(deletes: Deletes, history: &[(char, i64)]) -> Vec<Row> {
    let event = |(seq, (what, lsn)): (i64, &(char, i64))| {
        let mut event = of_one_key(*what, *lsn, seq);
        event.truncate = *what == 'T';
        event
    };
    let events: Vec<Event> = (1..).zip(history).map(event).collect();
    let whole = deletes.after(&events, &[events.len()]).await;
    // A bit says that a change ends there.
    for split in 0..1_u32 << (events.len() - 1) {
        let ends = (1..events.len()).filter(|end| split >> (end - 1) & 1 == 1);
        let ends: Vec<usize> = ends.chain([events.len()]).collect();
        let rows = deletes.after(&events, &ends).await;
        assert_eq!(rows, whole, "{deletes:?}, {history:?}, {ends:?}");
    }
    whole
}

#[tokio::test]
async fn soft_deletes_and_truncates_are_in_the_order_of_their_arrival() {
    let histories: [&[(char, i64)]; 4] = [
        &[('I', 5), ('U', 10), ('T', 7), ('D', 12), ('U', 14)],
        &[('I', 5), ('U', 10), ('D', 8), ('T', 7), ('U', 11)],
        &[('I', 5), ('T', 7), ('U', 10), ('D', 8), ('D', 12)],
        &[('I', 5), ('D', 12), ('T', 7), ('U', 14), ('I', 13)],
    ];
    for history in histories {
        every_split(Deletes::Soft, history).await;
    }
}

#[tokio::test]
async fn a_tombstone_that_is_gone_lets_no_values_through() {
    let deletes = |through, once| Deletes::Collected { through, once };
    let cases: [(_, &[(char, i64)], _); 10] = [
        (deletes(8, 0), &[('U', 10), ('I', 5)], "NULL"),
        (deletes(8, 0), &[('I', 5), ('U', 10)], "NULL"),
        (deletes(8, 0), &[('U', 10), ('I', 5), ('I', 9)], "body 9"),
        (
            deletes(8, 0),
            &[('I', 9), ('T', 10), ('U', 12), ('I', 11)],
            "body 11",
        ),
        // Whose row is there is known, also when it goes once a newer event has its place.
        (
            deletes(15, 1),
            &[('I', 5), ('I', 10), ('T', 7), ('I', 12)],
            "body 12",
        ),
        (
            deletes(15, 1),
            &[('I', 5), ('I', 10), ('T', 7), ('I', 13), ('U', 16)],
            "body 13",
        ),
        (
            deletes(15, 1),
            &[('I', 5), ('T', 7), ('I', 12), ('U', 16), ('I', 13)],
            "NULL",
        ),
        (
            deletes(15, 1),
            &[('I', 5), ('I', 10), ('T', 11), ('U', 16), ('I', 13)],
            "NULL",
        ),
        (
            deletes(15, 1),
            &[('I', 5), ('U', 10), ('T', 11), ('U', 16), ('I', 13)],
            "NULL",
        ),
        (
            deletes(15, 1),
            &[('I', 5), ('D', 10), ('T', 11), ('U', 16), ('I', 13)],
            "NULL",
        ),
    ];
    for (deletes, history, body) in cases {
        let rows = every_split(deletes, history).await;
        assert_eq!(rows[0][1], body, "{deletes:?}, {history:?}");
    }
}

/// Two events of a key with one sequence are one as far as the table is concerned: the first that came. What comes along
/// with the second is news all the same.
#[tokio::test]
async fn what_an_event_without_news_took_the_place_of_may_be_news() {
    let cases: [(&[(char, i64)], _); 5] = [
        (&[('U', 143), ('I', 142), ('I', 143)], "body 142"),
        (&[('U', 143), ('I', 143), ('I', 142)], "body 142"),
        (&[('U', 10), ('I', 9), ('I', 10), ('U', 12)], "body 9"),
        (
            &[('U', 10), ('I', 8), ('I', 9), ('I', 10), ('U', 12)],
            "body 9",
        ),
        (
            &[('U', 10), ('I', 10), ('I', 7), ('I', 9), ('I', 8)],
            "body 9",
        ),
    ];
    for (history, body) in cases {
        for deletes in [Deletes::Soft, Deletes::Hard] {
            let rows = every_split(deletes, history).await;
            assert_eq!(rows[0][1], body, "{deletes:?}, {history:?}");
        }
    }
    // A delete wins a tie in one change and loses it against the table, but so much is the same.
    for (deletes, ends) in [(Deletes::Soft, [1, 3]), (Deletes::Hard, [1, 4])] {
        let event = |(seq, what, lsn)| of_one_key(what, lsn, seq);
        let soft = [(1, 'U', 20), (2, 'D', 20), (3, 'I', 12)];
        let hard = [(1, 'U', 20), (2, 'I', 12), (3, 'D', 20), (4, 'U', 22)];
        let events: Vec<Event> = match deletes {
            Deletes::Soft => soft.map(event).to_vec(),
            Deletes::Hard | Deletes::Collected { .. } => hard.map(event).to_vec(),
        };
        let rows = deletes.after(&events, &ends).await;
        assert_eq!(rows[0][1], "body 12", "{deletes:?}");
    }
}

#[tokio::test]
async fn what_a_row_never_had_is_counted_once() {
    for change in [&[('U', 10), ('T', 7)], &[('U', 10), ('D', 4)]] {
        let mut target = Target::new(tight(), &["k"], false);
        let first = target.apply(vec![batch(&[of_one_key('U', 5, 1)])]).await;
        assert_eq!(first.unavailable, 2);
        let event = |(seq, (what, lsn)): (i64, &(char, i64))| {
            let mut event = of_one_key(*what, *lsn, seq);
            event.truncate = *what == 'T';
            event
        };
        let events: Vec<Event> = (2..).zip(change).map(event).collect();
        let second = target.apply(vec![batch(&events)]).await;
        assert_eq!(second.unavailable, 0, "{change:?}");
    }
}

/// A table with a row of before there were sequences.
async fn unordered() -> Target {
    let mut target = Target::new(tight(), &["k"], false);
    let plain = batch(&[of_one_key('I', 0, 1)]);
    let mut columns = plain.columns().to_vec();
    columns[4] = arrow::array::new_null_array(&DataType::Int64, 1);
    let plain = arrow::array::RecordBatch::try_new(plain.schema(), columns).expect("fits");
    let merge = ports::tables::Apply::Merge {
        key: vec!["k".into()],
    };
    let _ = target.world.apply(merge, vec![plain]).await;
    target
}

#[tokio::test]
async fn a_truncate_takes_rows_and_values_without_a_sequence() {
    for order in [&[('T', 7), ('U', 10)], &[('U', 10), ('T', 7)]] {
        for apart in [false, true] {
            let mut target = unordered().await;
            let mut events: Vec<Event> = Vec::new();
            for (seq, (what, lsn)) in (2..).zip(order) {
                let mut event = of_one_key(*what, *lsn, seq);
                event.truncate = *what == 'T';
                events.push(event);
            }
            for change in events.chunks(if apart { 1 } else { 2 }) {
                let _ = target.apply(vec![batch(change)]).await;
            }
            let rows = rows(&target).await;
            assert_eq!(rows.len(), 1, "{order:?}, {apart}");
            assert_eq!(rows[0][1], "NULL", "{order:?}, {apart}");
        }
    }
}

#[tokio::test]
async fn the_key_of_a_row_without_a_sequence_is_known() {
    let mut target = unordered().await;
    target.collected = Some(Rank::Value(15).to_text());
    let staged = target.apply(vec![batch(&[of_one_key('I', 10, 2)])]).await;
    assert_eq!(staged.late.len(), 0);
    assert_eq!(rows(&target).await[0][1], "body 10");
}

/// Rows out of quarantine come late, by the place that they have among all.
#[tokio::test]
async fn a_row_that_is_ordered_by_its_place_keeps_it_when_it_is_mended() {
    let mut target = Target {
        sequence: "_seq".into(),
        ..Target::new(tight(), &["k"], false)
    };
    for (what, seq, body) in [
        ('U', 10, "NULL"),
        ('I', 5, "body 5"),
        ('I', 7, "body 7"),
        ('I', 6, "body 7"),
    ] {
        let event = of_one_key(what, seq, seq);
        let _ = target.apply(vec![batch(&[event])]).await;
        let rows = target.world.rows().await;
        assert_eq!([&rows[0][1], &rows[0][6]], [body, "10"], "{what} {seq}");
    }
}

#[tokio::test]
async fn columns_that_are_synchronised_stay_in_their_places() {
    let history = [
        ('I', 1),
        ('U', 3),
        ('I', 2),
        ('D', 5),
        ('U', 7),
        ('I', 6),
        ('U', 8),
    ];
    let mut targets =
        [OnSchemaChange::default(), OnSchemaChange::SyncAllColumns].map(|policy| Target {
            policy,
            ..Target::new(tight(), &["k"], true)
        });
    for (seq, (what, lsn)) in (1..).zip(history) {
        let event = of_one_key(what, lsn, seq);
        let mut told = Vec::new();
        for target in &mut targets {
            let staged = target
                .apply(vec![batch(std::slice::from_ref(&event))])
                .await;
            told.push((staged.schema, rows(target).await));
        }
        assert_eq!(told[0], told[1], "{what} {lsn}");
    }
}
