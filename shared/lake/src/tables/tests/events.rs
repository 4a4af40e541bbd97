//! Random histories of change events, in random splits, against a naive table that follows the rules one by one.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray,
        TimestampMicrosecondArray,
    },
    datatypes::{Field, Schema},
};
use domain::{OnSchemaChange, TableName, items::Snapshot};
use ports::{
    Result, Tables,
    tables::{Apply, Change, Deletes, Events, Pin, Staged},
};

use super::{
    histories::{Dice, Row, in_text},
    world::{World, read, tight},
};
use crate::tables::limits::Limits;

/// A table that takes in events, and its tombstones.
pub(super) struct Target {
    pub(super) world: World,
    pub(super) key: Vec<String>,
    pub(super) soft: bool,
    pub(super) rebuild: bool,
    pub(super) sequence: String,
    pub(super) policy: OnSchemaChange,
    pub(super) tombstones: TableName,
    pub(super) buried: Option<Snapshot>,
    pub(super) collected: Option<String>,
    pub(super) truncated: Option<String>,
}

impl Target {
    pub(super) fn new(limits: Limits, key: &[&str], soft: bool) -> Self {
        Self {
            world: World::new(limits),
            key: key.iter().map(|name| (*name).to_owned()).collect(),
            soft,
            rebuild: false,
            sequence: "lsn".into(),
            policy: OnSchemaChange::default(),
            tombstones: "silver.orders__tombstones".parse().expect("a name"),
            buried: None,
            collected: None,
            truncated: None,
        }
    }

    pub(super) async fn stage(&self, batches: Vec<RecordBatch>) -> Result<Staged> {
        let deletes = match self.soft {
            true => Deletes::Soft,
            false => Deletes::Hard {
                tombstones: self.tombstones.clone(),
                base: self.buried.clone(),
                collected: self.collected.clone(),
            },
        };
        let apply = Apply::Events(Box::new(Events {
            key: self.key.clone(),
            op: "OP".into(),
            sequence: self.sequence.clone(),
            unavailable: domain::cdc::Placeholder::default(),
            deletes,
            truncated: self.truncated.clone(),
            rebuild: self.rebuild,
        }));
        let change = Change {
            on_schema_change: self.policy,
            ..self.world.change(apply, batches)
        };
        self.world.lake.stage(change).await
    }

    pub(super) async fn apply(&mut self, batches: Vec<RecordBatch>) -> Staged {
        let staged = self.stage(batches).await.expect("stages");
        self.world.commit(&staged).await;
        if let Some(tombstones) = &staged.tombstones {
            assert_eq!(tombstones.table, self.tombstones);
            self.buried = Some(tombstones.snapshot.clone());
        }
        self.truncated = match self.rebuild {
            true => staged.truncated.clone(),
            false => staged.truncated.clone().or(self.truncated.take()),
        };
        staged
    }

    /// The tombstones, in text, sorted; none when there is no table of them.
    pub(super) async fn graves(&self) -> Option<Vec<Row>> {
        let pin = Pin::Model {
            table: self.tombstones.clone(),
            snapshot: self.buried.clone()?,
        };
        let mut rows = read(&self.world.lake, &self.world.objects, &pin).await;
        // When they were buried.
        for row in &mut rows {
            assert!(row.pop().is_some_and(|at| at != "NULL"));
        }
        rows.sort();
        Some(rows)
    }
}

/// How a history writes its sequences.
#[derive(Clone, Copy, Debug)]
enum Written {
    Integers,
    Decimals,
    Timestamps,
    LongText,
    MomentsInText,
}

impl Written {
    fn column(self, sequences: &[Option<i64>], dice: &mut Dice) -> ArrayRef {
        let numbers = || sequences.iter().copied();
        match self {
            Self::Integers => Arc::new(numbers().collect::<Int64Array>()),
            Self::Decimals => {
                let wide =
                    numbers().map(|n| n.map(|n| 1_000_000_000_000_000_000_000 + i128::from(n)));
                Arc::new(wide.collect::<Decimal128Array>())
            }
            Self::Timestamps => Arc::new(numbers().collect::<TimestampMicrosecondArray>()),
            Self::LongText => {
                // One number is spelled in many ways, and none of them fits into 64 bits.
                let mut spell = |n: i64| match dice.below(3) {
                    0 => format!("{}", 18_446_744_073_709_551_616 + i128::from(n)),
                    1 => format!(" 000{}", 18_446_744_073_709_551_616 + i128::from(n)),
                    _ => format!("+{}.0", 18_446_744_073_709_551_616 + i128::from(n)),
                };
                Arc::new(
                    numbers()
                        .map(|n| n.map(&mut spell))
                        .collect::<StringArray>(),
                )
            }
            Self::MomentsInText => {
                let mut spell = |n: i64| match dice.below(2) {
                    0 => format!("2024-05-01T12:{:02}:{:02}Z", n / 60, n % 60),
                    _ => format!("2024-05-01T14:{:02}:{:02}.000+02:00", n / 60, n % 60),
                };
                let spelled = numbers().map(|n| n.map(|n| n.rem_euclid(3_600)).map(&mut spell));
                Arc::new(spelled.collect::<StringArray>())
            }
        }
    }
}

/// An event, and the sequence that its text stands for.
#[derive(Clone, Debug)]
struct Event {
    row: Row,
    sequence: Option<i64>,
    delete: bool,
    truncate: bool,
}

fn batch(
    dice: &mut Dice,
    next: &mut i64,
    written: Written,
    rows: u64,
) -> (RecordBatch, Vec<Event>) {
    let ops = [
        None,
        Some("I"),
        Some("update"),
        Some("r"),
        Some("U"),
        Some("  D "),
        Some("delete"),
        Some("d"),
        Some(" T"),
        Some("truncate"),
    ];
    let names = [None, Some("a"), Some("long enough to be no inline value")];
    let mut small = |n| i64::try_from(dice.below(n)).expect("small");
    let rows: Vec<_> = (0..rows)
        .map(|_| {
            *next += 1;
            let key = (small(9) > 0).then(|| small(7));
            let sequence = (small(14) > 0).then(|| (*next / 2 - small(12)).max(0));
            let (name, op) = (small(3), small(8));
            let op = if small(60) == 0 { 8 + small(2) } else { op };
            let value = (op < 5 || small(2) == 0).then_some(*next);
            let at = |n: i64| usize::try_from(n).expect("small");
            (key, names[at(name)], value, ops[at(op)], sequence, *next)
        })
        .collect();
    let sequences: Vec<Option<i64>> = rows.iter().map(|row| row.4).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "k",
            Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>()),
        ),
        (
            "name",
            Arc::new(rows.iter().map(|r| r.1).collect::<StringArray>()),
        ),
        (
            "value",
            Arc::new(rows.iter().map(|r| r.2).collect::<Int64Array>()),
        ),
        (
            "op",
            Arc::new(rows.iter().map(|r| r.3).collect::<StringArray>()),
        ),
        ("lsn", written.column(&sequences, dice)),
        (
            "_seq",
            Arc::new(rows.iter().map(|r| r.5).collect::<Int64Array>()),
        ),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("fits");
    let events = in_text(&batch)
        .into_iter()
        .zip(&rows)
        .map(|(text, row)| Event {
            row: text,
            sequence: row.4,
            delete: row
                .3
                .is_some_and(|op| op.trim().to_lowercase().starts_with('d')),
            truncate: row.3.is_some_and(|op| op.trim().starts_with(['t', 'T'])),
        });
    let events = events.collect();
    (batch, events)
}

/// What a table of events does, in the plainest way.
#[derive(Default)]
struct Naive {
    soft: bool,
    key: Vec<usize>,
    rows: BTreeMap<Row, (Row, i64)>,
    graves: BTreeMap<Row, (String, i64)>,
    truncated: Option<i64>,
}

impl Naive {
    fn key(&self, row: &Row) -> Row {
        self.key.iter().map(|at| row[*at].clone()).collect()
    }

    fn apply(&mut self, events: &[Event]) {
        let mut fresh = std::collections::BTreeSet::new();
        for event in events {
            if event.sequence <= self.truncated {
                continue;
            }
            if event.truncate {
                self.truncated = event.sequence;
                let floor = self.truncated;
                self.rows.retain(|_, (_, sequence)| Some(*sequence) > floor);
                self.graves
                    .retain(|_, (_, sequence)| Some(*sequence) > floor);
                continue;
            }
            let key = self.key(&event.row);
            let sequence = event.sequence.expect("filtered");
            // Of equals of one change a delete wins, and what was there before stays.
            let of_now = fresh.contains(&key) && event.delete;
            let is_deleted = |row: &Row| self.soft && row.last().is_some_and(|flag| flag == "true");
            let stored = self.rows.get(&key);
            let stored = stored.map(|(row, at)| (*at, !of_now || is_deleted(row)));
            let buried = self.graves.get(&key).map(|(_, at)| (*at, true));
            let there = stored.max(buried);
            if there.is_some_and(|(at, stays)| at > sequence || at == sequence && stays) {
                continue;
            }
            fresh.insert(key.clone());
            let mut row = event.row.clone();
            if self.soft {
                if let Some((old, _)) = self.rows.get(&key).filter(|_| event.delete) {
                    row[..3].clone_from_slice(&old[..3]);
                }
                row.push(event.delete.to_string());
            }
            if event.delete && !self.soft {
                self.rows.remove(&key);
                self.graves.insert(key, (event.row[4].clone(), sequence));
            } else {
                self.graves.remove(&key);
                self.rows.insert(key, (row, sequence));
            }
        }
    }

    fn sorted(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.rows.values().map(|(row, _)| row.clone()).collect();
        rows.sort();
        rows
    }

    fn graves(&self) -> Vec<Row> {
        let row = |(key, (sequence, _)): (&Row, &(String, i64))| {
            key.iter().chain([sequence]).cloned().collect()
        };
        let mut rows: Vec<Row> = self.graves.iter().map(row).collect();
        rows.sort();
        rows
    }
}

async fn check(seed: u64, limits: Limits) {
    let mut dice = Dice(seed);
    let written = dice.pick(&[
        Written::Integers,
        Written::Decimals,
        Written::Timestamps,
        Written::LongText,
        Written::MomentsInText,
    ]);
    let (soft, composite) = (dice.below(2) == 0, dice.below(3) == 0);
    let key: &[&str] = if composite { &["name", "K"] } else { &["k"] };
    let mut target = Target::new(limits, key, soft);
    let mut naive = Naive {
        soft,
        key: if composite { vec![1, 0] } else { vec![0] },
        ..Naive::default()
    };
    let mut next = 0;
    for step in 0..30 {
        let split: Vec<_> = (0..=dice.below(3))
            .map(|_| {
                let rows = dice.below(9);
                batch(&mut dice, &mut next, written, rows)
            })
            .collect();
        let events: Vec<Event> = split
            .iter()
            .flat_map(|(_, events)| events.clone())
            .collect();
        target.rebuild = dice.below(20) == 0;
        let before = target.world.snapshot.clone();
        let rows_before = naive.rows.len() as u64;
        if target.rebuild {
            naive.rows.clear();
            naive.graves.clear();
            naive.truncated = None;
        }
        naive.apply(&events);
        let staged = target
            .apply(split.into_iter().map(|(batch, _)| batch).collect())
            .await;
        let at = format!("seed {seed}, step {step}, {written:?}, soft {soft}");
        assert_eq!(target.world.rows().await, naive.sorted(), "{at}");
        if !soft {
            assert_eq!(target.graves().await, Some(naive.graves()), "{at}");
        }
        assert_eq!(staged.rows, naive.rows.len() as u64, "{at}");
        assert_eq!(
            rows_before + staged.added - staged.deleted,
            staged.rows,
            "{at}"
        );
        assert_eq!(
            staged.changed,
            before.as_ref() != Some(&staged.snapshot),
            "{at}"
        );
        let refused: usize = staged.refused.iter().map(RecordBatch::num_rows).sum();
        let unordered = events.iter().filter(|event| event.sequence.is_none());
        assert_eq!(refused, unordered.count(), "{at}");
    }
    let snapshot = target.world.snapshot.clone().expect("built");
    let pin = target.world.pin(&snapshot);
    let cold = target.world.cold();
    assert_eq!(
        read(&cold, &target.world.objects, &pin).await,
        naive.sorted(),
        "seed {seed}, cold"
    );
}

#[tokio::test]
async fn any_history_of_events_ends_as_the_rules_say() {
    for seed in 0..60 {
        check(seed, tight()).await;
    }
}

#[tokio::test]
async fn events_written_before_the_last_is_known_end_the_same() {
    for seed in 100..150 {
        check(
            seed,
            Limits {
                held_rows: 5,
                file_bytes: 600,
                ..tight()
            },
        )
        .await;
    }
}

#[tokio::test]
async fn small_tables_of_events_end_the_same() {
    for seed in 200..240 {
        check(seed, Limits::default()).await;
    }
}
