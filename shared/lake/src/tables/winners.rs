//! Change events on their way in: one winner per key, the deletes kept aside, events without a sequence put out.
//!
//! Of the events of one key the one with the greatest sequence wins; of equals a delete, and among equal upserts the one
//! that arrived first. A truncate has no key: of all of them the greatest sequence is kept. Memory follows the keys and the
//! deletes of the batch, and the events of a key that have values of others (see `gap`).

use std::sync::Arc;

use arrow::{
    array::{AsArray, BooleanArray, RecordBatch},
    compute::{cast, concat_batches},
    datatypes::DataType,
};
use domain::TableName;
use hashbrown::HashMap;
use ports::{Error, Kind, Result};
use roaring::RoaringTreemap;

use super::{
    columns::batch_of,
    gaps::Gaps,
    intake::keep,
    keymap::KeyMap,
    keys::Keys,
    rank::{Order, Rank},
};

/// Positions of the columns that events need.
#[derive(Debug)]
pub(crate) struct Places {
    /// The operation, in the query's batches.
    pub op: usize,
    /// The sequence, in the table's columns.
    pub sequence: usize,
    /// The flag of soft deletes, in the table's columns; none when deletes are hard.
    pub flag: Option<usize>,
    /// What is kept of deletes, in the table's columns.
    pub aside: Vec<usize>,
}

/// An event that no other one of its key has beaten.
#[derive(Debug)]
pub(crate) struct Event {
    /// Its sequence.
    pub rank: Rank,
    /// Whether it deletes.
    pub delete: bool,
    /// What tells which of two equals came first.
    arrival: i64,
    /// The row of the change that its key has had an event of the change in its place since; one that came late has that of the
    /// event before it.
    pub since: u64,
}

impl Event {
    fn beats(&self, other: &Self) -> bool {
        (&self.rank, self.place()) > (&other.rank, other.place())
    }

    /// Its place among those with its sequence.
    pub(super) fn place(&self) -> (bool, std::cmp::Reverse<i64>) {
        (self.delete, std::cmp::Reverse(self.arrival))
    }
}

/// What the events of a batch do, row by row. All others put their row in its key's place.
#[derive(Debug)]
pub(crate) struct Operations {
    /// Whether it deletes.
    pub deletes: BooleanArray,
    /// Whether it truncates.
    pub truncates: Vec<bool>,
}

/// The events of one change.
pub(crate) struct Events {
    table: TableName,
    places: Places,
    order: Order,
    /// A sequence of the batch: all others are of its kind.
    kind: Option<Rank>,
    winners: HashMap<u64, Event>,
    truncates: Vec<(Option<u64>, Rank)>,
    gaps: Gaps,
    aside: Vec<RecordBatch>,
    aside_rows: Vec<u64>,
    /// A sequence that is none, though it is some text.
    unread: Option<String>,
    refused: Vec<RecordBatch>,
    refused_bytes: usize,
    refused_most: usize,
}

/// The events of one change once all are there.
pub(crate) struct Reduced {
    /// The winners, by their row among the change's.
    pub winners: HashMap<u64, Event>,
    /// Truncates, by their row among the change's, none for one of before: what is not newer is gone.
    pub truncates: Vec<(Option<u64>, Rank)>,
    /// Columns of deletes, row by row as `aside_rows` says; none when there was no delete.
    pub aside: Option<RecordBatch>,
    /// Place in `aside` of a winning delete.
    pub aside_rows: HashMap<u64, u64>,
    /// Values that events do not have.
    pub gaps: Gaps,
    /// A sequence of one of the refused that is none, though it is some text.
    pub unread: Option<String>,
    /// Events without a sequence, as the query delivered them.
    pub refused: Vec<RecordBatch>,
    /// The order, for what the table holds.
    pub order: Order,
    /// Where the columns are.
    pub places: Places,
}

impl Reduced {
    /// The greatest sequence of a truncate, come before a row if there is one, that had emptied the table of `rank`. A row
    /// without a sequence goes by any truncate of the change.
    pub(super) fn truncated_by(&self, before: Option<u64>, rank: Option<&Rank>) -> Option<&Rank> {
        truncated_by(&self.truncates, before, rank)
    }
}

fn truncated_by<'a>(
    truncates: &'a [(Option<u64>, Rank)],
    before: Option<u64>,
    rank: Option<&Rank>,
) -> Option<&'a Rank> {
    let truncates = truncates.iter().filter(|(at, floor)| {
        let goes = rank.map_or(at.is_some(), |rank| rank <= floor);
        goes && before.is_none_or(|row| *at < Some(row))
    });
    truncates.map(|(_, floor)| floor).max()
}

impl Events {
    /// None yet; at most `refused_most` bytes may be without a sequence.
    pub(crate) fn new(
        table: TableName,
        places: Places,
        order: Order,
        gaps: Gaps,
        refused_most: usize,
    ) -> Self {
        Self {
            table,
            places,
            order,
            kind: None,
            winners: HashMap::new(),
            truncates: Vec::new(),
            gaps,
            aside: Vec::new(),
            aside_rows: Vec::new(),
            unread: None,
            refused: Vec::new(),
            refused_bytes: 0,
            refused_most,
        }
    }

    /// What the events of a delivered batch do: those delete whose operation begins with a `d` of either case, and those
    /// truncate whose operation is `t` or `truncate`.
    pub(crate) fn operations(&self, delivered: &RecordBatch) -> Result<Operations> {
        let column = delivered.column(self.places.op);
        let words = cast(column, &DataType::Utf8)
            .map_err(|e| Error::new(Kind::Invalid, "read operations of", &self.table).because(e))?;
        let words = words.as_string::<i32>();
        let is_delete = |word: Option<&str>| {
            let first = word.and_then(|word| word.trim_start().chars().next());
            Some(matches!(first, Some('d' | 'D')))
        };
        let is_truncate = |word: Option<&str>| {
            word.is_some_and(|word| {
                let word = word.trim();
                ["t", "truncate"]
                    .iter()
                    .any(|name| word.eq_ignore_ascii_case(name))
            })
        };
        Ok(Operations {
            deletes: words.iter().map(is_delete).collect(),
            truncates: words.iter().map(is_truncate).collect(),
        })
    }

    /// Flags soft deletes in a batch of the table's columns.
    pub(crate) fn flag(&self, batch: RecordBatch, deletes: &BooleanArray) -> Result<RecordBatch> {
        let Some(at) = self.places.flag else {
            return Ok(batch);
        };
        let mut columns = batch.columns().to_vec();
        columns[at] = Arc::new(deletes.clone());
        batch_of(&batch.schema(), columns, batch.num_rows())
    }

    /// Takes in a batch, in the table's columns and as it was `delivered`, whose first row is `first`. Every row that
    /// lost, of this batch or an earlier one, goes to `superseded`.
    pub(crate) fn add(
        &mut self,
        batch: &RecordBatch,
        delivered: &RecordBatch,
        operations: &Operations,
        arrivals: Option<&[i64]>,
        (keys, map): (&Keys, &mut KeyMap),
        (first, superseded): (u64, &mut RoaringTreemap),
    ) -> Result<()> {
        let rows = batch.num_rows();
        let deletes = &operations.deletes;
        let sequence = batch.column(self.places.sequence);
        let mut ranked = vec![true; rows];
        for (at, ranked) in ranked.iter_mut().enumerate() {
            let row = first + at as u64;
            let Some(rank) = self.order.read(sequence, at) else {
                *ranked = false;
                let unread = || self.order.unread(sequence, at);
                self.unread = self.unread.take().or_else(unread);
                superseded.insert(row);
                continue;
            };
            match &self.kind {
                Some(kind) => self.order.alike(kind, &rank)?,
                None => self.kind = Some(rank.clone()),
            }
            if operations.truncates[at] {
                superseded.insert(row);
                // One that is not newer than another before it changes nothing.
                if self.truncates.last().is_none_or(|(_, last)| rank > *last) {
                    self.truncates.push((Some(row), rank));
                }
                continue;
            }
            let event = Event {
                rank,
                delete: deletes.value(at),
                arrival: match arrivals {
                    Some(arrivals) => arrivals[at],
                    None => i64::try_from(row).unwrap_or(i64::MAX),
                },
                since: row,
            };
            self.winners.insert(row, event);
        }
        if ranked.contains(&false) {
            self.refuse(delivered, &ranked)?;
        }
        self.gaps.note(batch, first, deletes);
        let (winners, gaps, truncates) = (&mut self.winners, &mut self.gaps, &self.truncates);
        let takes_part = |row: u64| {
            let at = (row - first) as usize;
            ranked[at] && !operations.truncates[at]
        };
        map.choose(keys, first, takes_part, |new, old| {
            let former = &winners[&old];
            let (since, wins) = (former.since, winners[&new].beats(former));
            let gone = truncated_by(truncates, Some(new), Some(&former.rank));
            if let Some(event) = winners.get_mut(&new).filter(|_| gone.is_none()) {
                event.since = since;
            }
            let loser = if wins { old } else { new };
            let event = winners.remove(&loser);
            superseded.insert(loser);
            match event {
                Some(event) if wins => gaps.follows(new, old, event),
                Some(event) => gaps.overtaken(old, new, event),
                None => {}
            }
            wins
        });
        self.put_aside(batch, deletes, first)
    }

    fn refuse(&mut self, delivered: &RecordBatch, ranked: &[bool]) -> Result<()> {
        let unranked: Vec<bool> = ranked.iter().map(|ranked| !ranked).collect();
        let refused = keep(delivered, unranked.into())?;
        self.refused_bytes += refused.get_array_memory_size();
        self.refused.push(refused);
        if self.refused_bytes <= self.refused_most {
            return Ok(());
        }
        let rows: usize = self.refused.iter().map(RecordBatch::num_rows).sum();
        Err(
            Error::new(Kind::Invalid, "apply change events to", &self.table).because(format!(
                "{rows} events have no sequence, more than are quarantined at once; does cdc_seq name the right column?"
            )),
        )
    }

    /// Keeps columns of the deletes that have won so far.
    fn put_aside(&mut self, batch: &RecordBatch, deletes: &BooleanArray, first: u64) -> Result<()> {
        let kept = |at: usize| deletes.value(at) && self.winners.contains_key(&(first + at as u64));
        let kept: Vec<bool> = (0..batch.num_rows()).map(kept).collect();
        if !kept.contains(&true) {
            return Ok(());
        }
        let rows = kept.iter().enumerate().filter(|(_, kept)| **kept);
        self.aside_rows
            .extend(rows.map(|(at, _)| first + at as u64));
        let columns = batch
            .project(&self.places.aside)
            .map_err(|e| Error::new(Kind::Corrupt, "keep", "deletes").because(e))?;
        self.aside.push(keep(&columns, kept.into())?);
        Ok(())
    }

    /// Ends the taking in.
    pub(crate) fn finish(mut self) -> Result<Reduced> {
        self.gaps.order(&self.winners);
        let schema = self.aside.first().map(RecordBatch::schema);
        let aside = schema.map(|schema| concat_batches(&schema, &self.aside));
        let aside = aside
            .transpose()
            .map_err(|e| Error::new(Kind::Corrupt, "keep", "deletes").because(e))?;
        let places = self.aside_rows.into_iter().zip(0..);
        let aside_rows = places
            .filter(|(row, _)| self.winners.contains_key(row))
            .collect();
        Ok(Reduced {
            winners: self.winners,
            truncates: self.truncates,
            aside,
            aside_rows,
            gaps: self.gaps,
            unread: self.unread,
            refused: self.refused,
            order: self.order,
            places: self.places,
        })
    }
}
