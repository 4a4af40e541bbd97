//! What landing tables promise, over pretend worlds.

mod appends;
mod faults;
mod folding;
mod incoming;
mod types;

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray},
    datatypes::Int64Type,
};
use domain::{SEQUENCE, TableName, Timestamp};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use ports::{
    Clock, Objects, State,
    landing::Append,
    tables::{Part, Pin},
};
use testkit::{CountedObjects, CountedState, MemoryState, SeededChance, SimulatedClock};

use super::{LandingLake, pin, reader, scan};

/// A pretend world and one process in it.
struct Case {
    state: Arc<CountedState>,
    counted: CountedObjects,
    objects: Objects,
    clock: Arc<SimulatedClock>,
    lake: Arc<LandingLake>,
}

impl Case {
    fn new() -> Self {
        Self::over(Arc::new(MemoryState::new()))
    }

    fn over(state: Arc<dyn State>) -> Self {
        let state = Arc::new(CountedState::new(state));
        let counted = CountedObjects::new(Arc::new(InMemory::new()));
        let objects: Objects = Arc::new(counted.clone());
        let clock = Arc::new(SimulatedClock::default());
        let lake = lake(state.clone(), &objects, &clock, 0);
        Self {
            state,
            counted,
            objects,
            clock,
            lake,
        }
    }
}

fn lake(
    state: Arc<dyn State>,
    objects: &Objects,
    clock: &Arc<SimulatedClock>,
    seed: u64,
) -> Arc<LandingLake> {
    let chance = Arc::new(SeededChance::new(seed));
    Arc::new(LandingLake::new(
        state,
        Arc::clone(objects),
        clock.clone(),
        chance,
    ))
}

/// Runs work to its end, and lets time pass whenever somebody only waits for it.
async fn drive<T>(clock: &SimulatedClock, work: impl Future<Output = T>) -> T {
    let time = async {
        loop {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            if let Some(moment) = clock.next_wake() {
                clock.set(moment.max(clock.now()));
            }
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = time => unreachable!("time never ends"),
    }
}

fn table() -> TableName {
    TableName::landing("orders").expect("a name")
}

/// A batch with one text column, `id`.
fn ids(ids: &[String]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values(ids));
    RecordBatch::try_from_iter([("id", ids)]).expect("a batch")
}

fn numbers(name: &str, numbers: &[i64]) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    RecordBatch::try_from_iter([(name, numbers)]).expect("a batch")
}

fn append(rows: RecordBatch, key: Option<&str>) -> Append {
    let key = key.map(str::to_owned);
    Append {
        table: table(),
        rows,
        origin_at: Timestamp(5),
        key,
    }
}

/// Every row in sequence order, through the head: its sequence, and the text of a column (none when NULL).
async fn read(state: &dyn State, objects: &Objects, column: &str) -> Vec<(u64, Option<String>)> {
    let Some(Pin::Landing {
        schema, through, ..
    }) = pin(state, &table()).await.expect("a head that can be read")
    else {
        return Vec::new();
    };
    let found = scan(state, objects, &table(), &schema, 0, through)
        .await
        .expect("a scan");
    let mut rows = Vec::new();
    for part in found.0.parts {
        match part {
            Part::Memory(batch) => {
                assert_eq!(batch.schema(), schema);
                let sequences = batch.column_by_name(SEQUENCE).expect("the sequence");
                let sequences = sequences.as_primitive::<Int64Type>().values().iter();
                rows.extend(sequences.map(|s| *s as u64).zip(texts(&batch, column)));
            }
            Part::File(file) => {
                let path = object_store::path::Path::parse(&file.path).expect("a path");
                let rows_of = reader::open(objects, &path, file.size)
                    .await
                    .expect("a parquet file");
                let batches: Vec<_> = rows_of
                    .build()
                    .expect("a reader")
                    .try_collect()
                    .await
                    .expect("its rows");
                let texts = batches.iter().flat_map(|batch| texts(batch, column));
                rows.extend((file.first_sequence.expect("a landing file")..).zip(texts));
            }
        }
    }
    assert_eq!(rows.len() as u64, through, "S-1");
    for (row, expected) in rows.iter().zip(1..) {
        assert_eq!(row.0, expected, "S-1");
    }
    rows
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let Some(column) = batch.column_by_name(column) else {
        return vec![None; batch.num_rows()];
    };
    let text = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).expect("text");
    text.as_string::<i32>()
        .iter()
        .map(|text| text.map(str::to_owned))
        .collect()
}
