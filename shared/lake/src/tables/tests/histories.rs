//! Random histories against a naive table.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::{Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use ports::tables::Apply;

use super::world::{World, read, text, tight};
use crate::tables::limits::Limits;

/// A small generator of its own, so that a seed means the same for ever.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("small")]
    }
}

pub(super) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
        Field::new("ratio", DataType::Float64, true),
        Field::new("value", DataType::Int64, true),
        Field::new("_seq", DataType::Int64, true),
    ]))
}

pub(super) fn batch(dice: &mut Dice, next: &mut i64, rows: u64) -> RecordBatch {
    let names = [
        None,
        Some(""),
        Some("a"),
        Some("b"),
        Some("ab"),
        Some("long enough to be no inline value"),
    ];
    let ratios = [
        None,
        Some(0.0),
        Some(-0.0),
        Some(f64::NAN),
        Some(-f64::NAN),
        Some(1.5),
        Some(-2.0),
    ];
    let rows: Vec<_> = (0..rows)
        .map(|_| {
            *next += 1;
            let k = (dice.below(8) > 0).then(|| i64::try_from(dice.below(9)).expect("small") - 4);
            let sequence =
                (dice.below(9) > 0).then(|| *next - i64::try_from(dice.below(4)).expect("small"));
            (k, dice.pick(&names), dice.pick(&ratios), *next, sequence)
        })
        .collect();
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.1).collect::<StringArray>()),
        Arc::new(rows.iter().map(|r| r.2).collect::<Float64Array>()),
        Arc::new(rows.iter().map(|r| r.3).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.4).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(schema(), columns).expect("fits")
}

pub(super) type Row = Vec<String>;

/// What a table does, in the plainest way.
#[derive(Default)]
struct Naive {
    rows: Vec<Row>,
}

impl Naive {
    fn apply(&mut self, apply: &Apply, batch: Vec<Row>) {
        let schema = schema();
        let key = |row: &Row, columns: &[String]| -> Vec<String> {
            let value = |name: &String| {
                let at = schema.index_of(&name.to_lowercase()).expect("a column");
                if row[at] == "-0.0" {
                    "0.0".to_owned()
                } else {
                    row[at].clone()
                }
            };
            columns.iter().map(value).collect()
        };
        match apply {
            Apply::Events(_) => unreachable!("change events have a history of their own"),
            Apply::Append => self.rows.extend(batch),
            Apply::Overwrite { key } if !key.is_empty() => {
                self.rows.clear();
                self.apply(&Apply::Merge { key: key.clone() }, batch);
            }
            Apply::Overwrite { .. } | Apply::ReplaceAll => self.rows = batch,
            Apply::Replace { key: columns, keys } => {
                let keys = keys.iter().flat_map(in_text);
                let gone: BTreeSet<_> = keys.map(|row| key(&row, columns)).collect();
                let is_gone = |row: &Row| gone.contains(&key(row, columns));
                self.rows.retain(|row| !is_gone(row));
                self.rows.extend(batch.into_iter().filter(is_gone));
            }
            Apply::DeleteInsert { key: columns } => {
                let gone: BTreeSet<_> = batch.iter().map(|row| key(row, columns)).collect();
                self.rows.retain(|row| !gone.contains(&key(row, columns)));
                self.rows.extend(batch);
            }
            Apply::Merge { key: columns } => {
                let sequence = |row: &Row| row[4].parse::<i64>().unwrap_or(i64::MIN);
                let mut staying: Vec<Row> = Vec::new();
                for row in batch {
                    let same = |old: &Row| key(old, columns) == key(&row, columns);
                    match staying.iter().position(same) {
                        Some(at) if sequence(&staying[at]) <= sequence(&row) => staying[at] = row,
                        Some(_) => {}
                        None => staying.push(row),
                    }
                }
                self.rows.retain(|row| {
                    !staying
                        .iter()
                        .any(|new| key(new, columns) == key(row, columns))
                });
                self.rows.extend(staying);
            }
        }
    }

    fn sorted(&self) -> Vec<Row> {
        let mut rows = self.rows.clone();
        rows.sort();
        rows
    }
}

pub(super) fn in_text(batch: &RecordBatch) -> Vec<Row> {
    let row = |at| {
        batch
            .columns()
            .iter()
            .map(|column| text(Some(column), at))
            .collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

async fn check(seed: u64, limits: Limits) {
    let mut dice = Dice(seed);
    let keys: &[&[&str]] = &[
        &["k"],
        &["name"],
        &["ratio"],
        &["K", "name"],
        &["ratio", "name", "k"],
    ];
    let key: Vec<String> = dice
        .pick(keys)
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let (mut world, mut naive, mut next) = (World::new(limits), Naive::default(), 0);
    let mut pinned = Vec::new();
    for step in 0..25 {
        let apply = match dice.below(15) {
            0 => Apply::Append,
            1 if dice.below(4) == 0 => Apply::Overwrite { key: Vec::new() },
            1 if dice.below(3) == 0 => Apply::Overwrite { key: key.clone() },
            2..5 => Apply::DeleteInsert { key: key.clone() },
            12 if dice.below(3) == 0 => Apply::ReplaceAll,
            12..15 => {
                let rows = dice.below(6);
                let keys = vec![batch(&mut dice, &mut next, rows)];
                let key = key.clone();
                Apply::Replace { key, keys }
            }
            _ => Apply::Merge { key: key.clone() },
        };
        let batches: Vec<_> = (0..=dice.below(3))
            .map(|_| {
                let rows = dice.below(9);
                batch(&mut dice, &mut next, rows)
            })
            .collect();
        let before = naive.rows.len() as u64;
        naive.apply(&apply, batches.iter().flat_map(in_text).collect());
        let staged = world.apply(apply.clone(), batches).await;
        let at = format!("seed {seed}, step {step}, {apply:?}");
        assert_eq!(world.rows().await, naive.sorted(), "{at}");
        assert_eq!(staged.rows, naive.rows.len() as u64, "{at}");
        assert_eq!(before + staged.added - staged.deleted, staged.rows, "{at}");
        pinned.push((world.pin(&staged.snapshot), naive.sorted()));
    }
    let cold = world.cold();
    for (step, (pin, rows)) in pinned.iter().enumerate() {
        assert_eq!(
            &read(&cold, &world.objects, pin).await,
            rows,
            "seed {seed}, cold, after step {step}"
        );
        assert_eq!(
            &read(&world.lake, &world.objects, pin).await,
            rows,
            "seed {seed}, after step {step}"
        );
    }
}

#[tokio::test]
async fn any_history_ends_as_a_naive_table_does() {
    for seed in 0..60 {
        check(seed, tight()).await;
    }
}

#[tokio::test]
async fn rows_written_before_their_keys_are_known_end_the_same() {
    for seed in 100..140 {
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
async fn small_tables_written_anew_end_the_same() {
    for seed in 200..230 {
        check(seed, Limits::default()).await;
    }
}
