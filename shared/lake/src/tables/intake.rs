//! Taking in the rows of a change: aligned, re-stamped, their keys noted, held in memory while they are few.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch},
    compute::filter_record_batch,
    datatypes::{DataType, Int32Type, Int64Type, Schema},
    util::display::array_value_to_string,
};
use domain::{SEQUENCE, TableName};
use ports::{
    Error, Kind, Result,
    query::{ARRIVAL, UNORDERED},
};
use roaring::RoaringTreemap;

use super::{
    columns::{self, Alignment, batch_of},
    keymap::KeyMap,
    keys::Keys,
    limits::Limits,
    probe::Sought,
    prune::Ranges,
    winners::Events,
    write::{NewFile, Target, Writer},
};

/// Most characters that are shown of a value of a key.
const SHOWN_MAX: usize = 60;

/// How the rows' keys are noted.
#[derive(Debug)]
pub(crate) struct Keyed {
    /// Positions of the key columns.
    pub columns: Vec<usize>,
    /// One row per key stays.
    pub unique: bool,
    /// The keys so far.
    pub map: KeyMap,
    /// The same as ranges, when a table will be probed.
    pub ranges: Option<Ranges>,
}

impl Keyed {
    /// The keys to search a table for; none when it is not to be searched, or there are none.
    pub(crate) fn sought(self) -> Option<Sought> {
        let mut ranges = self.ranges.filter(|_| self.map.len() > 0)?;
        ranges.finish();
        Some(Sought {
            set: Arc::new(self.map.into_set()),
            ranges: Arc::new(ranges),
        })
    }
}

/// Where rows go.
#[derive(Debug)]
enum Sink {
    Held(Vec<RecordBatch>, usize),
    Writing(Writer),
}

/// The rows of one change.
pub(crate) struct Intake {
    table: TableName,
    alignment: Alignment,
    /// Position of `_seq`, and its next value when rows are re-stamped.
    sequence: Option<usize>,
    restamp: Option<u64>,
    keyed: Option<Keyed>,
    events: Option<Events>,
    limits: Limits,
    sink: Sink,
    target: Target,
    rows: u64,
    superseded: RoaringTreemap,
    sequence_max: Option<u64>,
    last: Last,
}

/// What tells which of several rows of one key came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// Their `_seq` and, of equals or without one, their order.
    Order,
    /// A column of what is delivered, at this place.
    Arrival(usize),
    /// Nothing.
    Unknown,
}

/// What was taken in.
pub(crate) struct Taken {
    /// Rows delivered.
    pub rows: u64,
    /// Rows that another row of the change took the place of.
    pub superseded: RoaringTreemap,
    /// Highest `_seq`.
    pub sequence_max: Option<u64>,
    /// The keys.
    pub keyed: Option<Keyed>,
    /// What the rows say, when they are change events.
    pub events: Option<Events>,
    /// All the rows.
    pub rest: Rest,
}

/// The rows of a change once all are there.
pub(crate) enum Rest {
    /// Few.
    Held(Vec<RecordBatch>),
    /// Many: being written.
    Written(Writer),
}

impl Rest {
    /// Writes what is not written yet, less the rows `without`; the writer, and the rows of it to be deleted again.
    pub(crate) async fn write(
        self,
        without: RoaringTreemap,
        target: Target,
    ) -> Result<(Writer, RoaringTreemap)> {
        match self {
            Self::Written(writer) => Ok((writer, without)),
            Self::Held(batches) => {
                let writer = Writer::new(target);
                for batch in staying(batches, &without)? {
                    writer.write(batch).await;
                }
                Ok((writer, RoaringTreemap::new()))
            }
        }
    }
}

impl Intake {
    /// For a table; files are opened once there are many rows.
    pub(crate) fn new(
        table: TableName,
        alignment: Alignment,
        sequence: Option<usize>,
        restamp: Option<u64>,
        keyed: Option<Keyed>,
        limits: Limits,
        target: Target,
    ) -> Self {
        let sink = Sink::Held(Vec::new(), 0);
        let (rows, superseded, sequence_max) = (0, RoaringTreemap::new(), None);
        Self {
            table,
            alignment,
            sequence,
            restamp,
            keyed,
            events: None,
            limits,
            sink,
            target,
            rows,
            superseded,
            sequence_max,
            last: Last::Order,
        }
    }

    /// The same for rows of a schema that says which of them came last.
    pub(crate) fn told_by(mut self, schema: &Schema) -> Self {
        self.last = match columns::position(schema, ARRIVAL) {
            Some(at) => Last::Arrival(at),
            None if schema.metadata().contains_key(UNORDERED) => Last::Unknown,
            None => Last::Order,
        };
        self
    }

    /// The same for rows that are change events.
    pub(crate) fn of_events(mut self, events: Events) -> Self {
        self.events = Some(events);
        self
    }

    /// Takes in a batch.
    pub(crate) async fn add(&mut self, delivered: &RecordBatch) -> Result<()> {
        if delivered.num_rows() == 0 {
            return Ok(());
        }
        let batch = self.alignment.align(&self.table, delivered)?;
        let (delivered, arrivals) = match self.last {
            Last::Arrival(at) => {
                let mut asked = delivered.clone();
                let arrivals = sequences(&asked.remove_column(at));
                (asked, arrivals)
            }
            Last::Order | Last::Unknown => (delivered.clone(), None),
        };
        // Which row of a key is the last, those tell that the query gave.
        let given = self.sequences(&batch);
        let batch = self.stamp(batch)?;
        let stamped = self.restamp.and_then(|_| self.sequences(&batch));
        if let Some(max) = stamped
            .as_ref()
            .or(given.as_ref())
            .into_iter()
            .flatten()
            .max()
            .and_then(|max| u64::try_from(*max).ok())
        {
            self.sequence_max = self.sequence_max.max(Some(max));
        }
        let batch = self.note(batch, &delivered, arrivals.or(given))?;
        self.rows += batch.num_rows() as u64;
        self.sink(batch).await
    }

    /// Ends the taking in.
    pub(crate) fn finish(self) -> Taken {
        let rest = match self.sink {
            Sink::Held(batches, _) => Rest::Held(batches),
            Sink::Writing(writer) => Rest::Written(writer),
        };
        Taken {
            rows: self.rows,
            superseded: self.superseded,
            sequence_max: self.sequence_max,
            keyed: self.keyed,
            events: self.events,
            rest,
        }
    }

    fn stamp(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let (Some(at), Some(next)) = (self.sequence, self.restamp) else {
            return Ok(batch);
        };
        let end = next + batch.num_rows() as u64;
        self.restamp = Some(end);
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut columns = batch.columns().to_vec();
        columns[at] = Arc::new(Int64Array::from_iter_values((next..end).map(number)));
        batch_of(&batch.schema(), columns, batch.num_rows())
    }

    /// `_seq` of every row; none without the column.
    fn sequences(&self, batch: &RecordBatch) -> Option<Vec<i64>> {
        sequences(batch.column(self.sequence?))
    }

    /// Notes the keys of a batch, and what the events in it say.
    fn note(
        &mut self,
        batch: RecordBatch,
        delivered: &RecordBatch,
        sequences: Option<Vec<i64>>,
    ) -> Result<RecordBatch> {
        let Some(keyed) = &mut self.keyed else {
            return Ok(batch);
        };
        let columns: Vec<ArrayRef> = keyed
            .columns
            .iter()
            .map(|at| batch.column(*at).clone())
            .collect();
        if let Some(ranges) = &mut keyed.ranges {
            ranges.add(&columns);
        }
        let keys = Keys::new(&columns, batch.num_rows());
        let superseded = &mut self.superseded;
        if let Some(events) = &mut self.events {
            let operations = events.operations(delivered)?;
            let batch = events.flag(batch, &operations.deletes)?;
            events.add(
                &batch,
                delivered,
                &operations,
                sequences.as_deref(),
                (&keys, &mut keyed.map),
                (self.rows, superseded),
            )?;
            return Ok(batch);
        }
        if !keyed.unique {
            keyed.map.add(&keys);
            return Ok(batch);
        }
        let (last, mut untold) = (self.last, Vec::new());
        keyed
            .map
            .merge(&keys, self.rows, sequences, |row, by, equals| {
                superseded.insert(row);
                let is_told = match last {
                    Last::Order => true,
                    Last::Arrival(_) => !equals,
                    Last::Unknown => false,
                };
                if !is_told {
                    untold.push((row.min(by), row.max(by)));
                }
            });
        let first = self.rows;
        let differs = |(row, of_batch): (u64, u64)| {
            let at = (of_batch - first) as usize;
            (!self.is_alike(row, &batch, at)).then_some(at)
        };
        match (untold.into_iter().find_map(differs), &self.keyed) {
            (Some(at), Some(keyed)) => Err(ambiguous(&self.table, &batch, &keyed.columns, at)),
            _ => Ok(batch),
        }
    }

    /// Whether a row, of a batch or before it, is the same as one of the batch but for its sequence. One that is not in
    /// memory is taken for another.
    fn is_alike(&self, row: u64, batch: &RecordBatch, at: usize) -> bool {
        let without = |batch: &RecordBatch, at: usize| {
            let mut row = batch.slice(at, 1);
            if let Some(sequence) = self.sequence {
                row.remove_column(sequence);
            }
            row
        };
        let held = match &self.sink {
            Sink::Held(held, _) => held.as_slice(),
            Sink::Writing(_) => &[],
        };
        let before: usize = held.iter().map(RecordBatch::num_rows).sum();
        let mut place = match row.checked_sub(self.rows) {
            Some(row) => row as usize + before,
            None if before as u64 == self.rows => row as usize,
            None => return false,
        };
        for held in held.iter().chain([batch]) {
            if place < held.num_rows() {
                return without(held, place) == without(batch, at);
            }
            place -= held.num_rows();
        }
        false
    }

    async fn sink(&mut self, batch: RecordBatch) -> Result<()> {
        match &mut self.sink {
            Sink::Held(batches, bytes) => {
                *bytes += batch.get_array_memory_size();
                batches.push(batch);
                let few = self.rows <= self.limits.held_rows && *bytes <= self.limits.held_bytes;
                if !few {
                    let held = std::mem::take(batches);
                    let writer = Writer::new(self.target.clone());
                    for batch in held {
                        writer.write(batch).await;
                    }
                    self.sink = Sink::Writing(writer);
                }
                Ok(())
            }
            Sink::Writing(writer) => match writer.write(batch).await {
                true => Ok(()),
                false => Err(self.broken().await),
            },
        }
    }

    /// Why the writer takes no more rows.
    async fn broken(&mut self) -> Error {
        let sink = std::mem::replace(&mut self.sink, Sink::Held(Vec::new(), 0));
        let unknown = Error::new(Kind::Unavailable, "write rows of", &self.table);
        match sink {
            Sink::Held(..) => unknown,
            Sink::Writing(writer) => writer.finish().await.err().unwrap_or(unknown),
        }
    }
}

/// Values of a column of sequences; NULL is before every number. None when it is a column of something else.
fn sequences(column: &ArrayRef) -> Option<Vec<i64>> {
    match column.data_type() {
        DataType::Int64 => {
            let column = column.as_primitive::<Int64Type>();
            Some(match column.null_count() {
                0 => column.values().to_vec(),
                _ => column.iter().map(|v| v.unwrap_or(i64::MIN)).collect(),
            })
        }
        DataType::Int32 => {
            let column = column.as_primitive::<Int32Type>().iter();
            Some(column.map(|v| v.map_or(i64::MIN, i64::from)).collect())
        }
        _ => None,
    }
}

/// Why of two rows of one key neither is taken.
fn ambiguous(table: &TableName, batch: &RecordBatch, key: &[usize], row: usize) -> Error {
    let shown = |at: &usize| {
        let column = batch.column(*at);
        let value = match column.is_null(row) {
            true => String::from("NULL"),
            false => array_value_to_string(column, row).unwrap_or_default(),
        };
        let (mut value, length) = (value.escape_debug().to_string(), value.len());
        if length > SHOWN_MAX {
            value = value.chars().take(SHOWN_MAX).chain("..".chars()).collect();
        }
        format!("{} = {value}", batch.schema_ref().field(*at).name())
    };
    let key: Vec<String> = key.iter().map(shown).collect();
    let told = format!(
        "several rows have {}, and which of them came last cannot be told: have the query yield one row per key, or \
         {SEQUENCE} of the one table that its rows come from, a value of its own for each",
        key.join(", ")
    );
    Error::new(Kind::Invalid, "merge rows into", table).because(told)
}

/// The rows of held batches that no other row took the place of.
fn staying(batches: Vec<RecordBatch>, superseded: &RoaringTreemap) -> Result<Vec<RecordBatch>> {
    if superseded.is_empty() {
        return Ok(batches);
    }
    let mut first = 0;
    let keep = |batch: RecordBatch| {
        let rows = first..first + batch.num_rows() as u64;
        first = rows.end;
        keep(
            &batch,
            rows.map(|row| !superseded.contains(row))
                .collect::<Vec<bool>>()
                .into(),
        )
    };
    batches.into_iter().map(keep).collect()
}

/// The rows of a batch that a mask keeps.
pub(crate) fn keep(batch: &RecordBatch, mask: BooleanArray) -> Result<RecordBatch> {
    filter_record_batch(batch, &mask)
        .map_err(|e| Error::new(Kind::Corrupt, "filter", "rows").because(e))
}

/// Numbers of rows across new files as numbers within each.
pub(crate) fn by_file(files: &[NewFile], rows: &RoaringTreemap) -> Vec<RoaringTreemap> {
    let mut of_each = vec![RoaringTreemap::new(); files.len()];
    let (mut at, mut first) = (0, 0);
    for row in rows {
        while at < files.len() && row >= first + files[at].rows {
            first += files[at].rows;
            at += 1;
        }
        if let Some(of_file) = of_each.get_mut(at) {
            of_file.insert(row - first);
        }
    }
    of_each
}
