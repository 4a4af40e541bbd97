//! Values that an event does not have since they did not change: the row keeps what it had.
//!
//! An event says so by the placeholder in a column, or by the column's name in the JSON array of a column `unavailable`.
//! Such a value is that of the row which the event takes the place of: of the newest older event of the same change that
//! has one, in whatever order they arrived, else of the table. So events in order end as they would one by one, however
//! they are split, and events of one change that are not in order end as if they were. A value that nobody has is NULL, and
//! counted. In the table, `unavailable` names what a row has no value for; an event that comes later, and is older than the
//! row, fills that in (see `mend`).
//!
//! A soft delete keeps the row as it was, and is such an event in all columns but those it sets: what nobody has it takes
//! from itself. It keeps only what was there when it came.

use std::collections::BTreeMap;

use arrow::{
    array::{Array, AsArray, BooleanArray, RecordBatch},
    datatypes::{DataType, Schema},
};
use domain::{SEQUENCE, cdc::Placeholder};
use hashbrown::HashMap;
use roaring::RoaringTreemap;

use super::{
    columns::position,
    rank::Rank,
    verdict::{Finds, hits},
    winners::{Event, Reduced},
};

/// The column that names what an event has no value for.
pub(super) const UNAVAILABLE: &str = "unavailable";

/// What the events of a change have no values for.
pub(crate) struct Gaps {
    placeholder: Placeholder,
    /// Columns, by lower-case name, that may be without a value.
    columns: BTreeMap<String, usize>,
    /// Those among them that can hold the placeholder.
    valued: Vec<usize>,
    /// Position of `unavailable` in the table's columns.
    pub(super) names: Option<usize>,
    /// Whether deletes keep the row.
    soft: bool,
    /// By the event's row among the change's.
    of: HashMap<u64, Gap>,
}

/// What one event has no values for.
#[derive(Debug, Default)]
struct Gap {
    columns: Vec<usize>,
    /// It keeps whatever there was, in all columns.
    keeps: bool,
    /// The events of the change that it took the place of, as they came; none that one without a gap had beaten.
    before: Vec<Before>,
}

#[derive(Debug)]
struct Before {
    row: u64,
    event: Event,
}

impl Before {
    /// Whether it was applied to what the table had.
    fn is_newer(&self, known: Option<&Rank>) -> bool {
        known.is_none_or(|known| self.event.rank > *known)
    }
}

/// A row of the table, by file and number.
pub(super) type TableRow = (usize, u64);

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A row of the change.
    Change(u64),
    /// A row of the table, by file and number.
    Stored(usize, u64),
    /// Nowhere.
    Nothing,
}

/// Events that are stored with values from elsewhere.
#[derive(Debug, Default)]
pub(super) struct Filling {
    /// By row of the change: columns, and where their values come from.
    pub rows: BTreeMap<u64, Vec<(usize, Source)>>,
    /// Values that are nowhere.
    pub unknown: u64,
}

/// What a table has of an event's key.
#[derive(Default)]
struct Base<'a> {
    /// The newest sequence, a tombstone's included.
    rank: Option<&'a Rank>,
    row: Option<(usize, u64, Option<&'a Rank>)>,
}

impl Gaps {
    /// None yet, in a table of these columns; those at `always` have values whatever they hold.
    pub(crate) fn new(
        placeholder: Placeholder,
        schema: &Schema,
        always: &[usize],
        soft: bool,
    ) -> Self {
        let own = [SEQUENCE, UNAVAILABLE, domain::DELETED];
        let may = |at: &usize| {
            let name = schema.field(*at).name();
            !always.contains(at) && !own.iter().any(|own| name.eq_ignore_ascii_case(own))
        };
        let kind = |at: usize| schema.field(at).data_type();
        let all: Vec<usize> = (0..schema.fields().len()).filter(may).collect();
        let holds = |at: &usize| matches!(kind(*at), DataType::Utf8 | DataType::Binary);
        let name = |at: usize| (schema.field(at).name().to_lowercase(), at);
        Self {
            placeholder,
            valued: all.iter().copied().filter(holds).collect(),
            columns: all.into_iter().map(name).collect(),
            names: position(schema, UNAVAILABLE).filter(|at| *kind(*at) == DataType::Utf8),
            soft,
            of: HashMap::new(),
        }
    }

    /// Notes what the events of a batch have no values for. What a hard delete holds is never stored.
    pub(crate) fn note(&mut self, batch: &RecordBatch, first: u64, deletes: &BooleanArray) {
        let rows = batch.num_rows();
        let soft = self.soft;
        for row in (0..rows).filter(|row| soft && deletes.value(*row)) {
            self.of.entry(first + row as u64).or_default().keeps = true;
        }
        let counts = |row: usize| soft || !deletes.value(row);
        for at in &self.valued {
            let column = batch.column(*at);
            let holds: &dyn Fn(usize) -> bool = match column.data_type() {
                DataType::Utf8 => {
                    let column = column.as_string::<i32>();
                    &|row| self.placeholder.is_text(column.value(row))
                }
                _ => {
                    let column = column.as_binary::<i32>();
                    &|row| self.placeholder.is_bytes(column.value(row))
                }
            };
            for row in (0..rows).filter(|row| column.is_valid(*row) && counts(*row) && holds(*row))
            {
                let gap = self.of.entry(first + row as u64).or_default();
                gap.columns.push(*at);
            }
        }
        let Some(names) = self.names else { return };
        let names = batch.column(names).as_string::<i32>();
        for (row, text) in names.iter().enumerate().filter(|(row, _)| counts(*row)) {
            let listed = text.and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
            let Some(listed) = listed else { continue };
            let gap = self.of.entry(first + row as u64).or_default();
            for name in listed {
                let at = self.columns.get(&name.to_lowercase()).copied();
                gap.columns
                    .extend(at.filter(|at| !gap.columns.contains(at)));
            }
        }
    }

    /// Notes that an event took the place of another one of the change, and of all that one had the place of.
    pub(crate) fn follows(&mut self, row: u64, other: u64, event: Event) {
        let earlier = self.of.get_mut(&other);
        let mut before = earlier.map_or_else(Vec::new, |gap| std::mem::take(&mut gap.before));
        if let Some(gap) = self.of.get_mut(&row) {
            before.push(Before { row: other, event });
            gap.before = before;
        }
    }

    /// Notes that an event came late: one that is newer, and in the place of its key, may need values of it.
    pub(crate) fn overtaken(&mut self, row: u64, late: u64, event: Event) {
        if let Some(gap) = self.of.get_mut(&row).filter(|gap| !gap.keeps) {
            gap.before.push(Before { row: late, event });
        }
    }

    /// Puts what each event took the place of in order: the newest first, of equals a delete, then the first that came.
    pub(crate) fn order(&mut self, winners: &HashMap<u64, Event>) {
        for (row, gap) in &mut self.of {
            let Some(winner) = winners.get(row) else {
                gap.before = Vec::new();
                continue;
            };
            let place = |event: &Event| (event.rank.clone(), event.place());
            gap.before
                .sort_by_cached_key(|before| std::cmp::Reverse(place(&before.event)));
            // An equal one that is no delete's changed nothing when it came.
            let mut last = (winner.rank.clone(), winner.delete);
            gap.before.retain(|Before { event, .. }| {
                let one = (event.rank.clone(), event.delete);
                let stays = one != last;
                last = one;
                stays
            });
        }
    }

    /// Whether an event takes the place of another one of the change that is newer than what the table has of its key.
    pub(super) fn has_before(&self, row: u64, known: &Rank) -> bool {
        let before = self.of.get(&row).and_then(|gap| gap.before.first());
        before.is_some_and(|before| before.is_newer(Some(known)))
    }

    /// Where the values come from that the stored ones of the events do not have.
    pub(super) fn fill(
        &self,
        events: &Reduced,
        (stored, graves): (&Finds, &Finds),
        unstored: &RoaringTreemap,
    ) -> Filling {
        let mut filling = Filling::default();
        if self.of.is_empty() {
            return filling;
        }
        let bases = self.bases(stored, graves);
        let open = self
            .of
            .iter()
            .filter(|(row, _)| events.winners.contains_key(*row) && !unstored.contains(**row));
        for (row, gap) in open {
            let base = bases.get(row);
            let source = |at: &usize| (*at, self.source(*at, (*row, gap), base, events));
            let sources: Vec<_> = match gap.keeps {
                true => self.columns.values().map(source).collect(),
                false => gap.columns.iter().map(source).collect(),
            };
            if sources
                .iter()
                .all(|(_, from)| *from == Source::Change(*row))
            {
                continue;
            }
            let nowhere = sources.iter().filter(|(_, from)| *from == Source::Nothing);
            filling.unknown += nowhere.count() as u64;
            filling.rows.insert(*row, sources);
        }
        filling
    }

    /// The columns that a text of `unavailable` names, of those that can hold a value and hold none.
    pub(super) fn named(&self, text: &str, is_null: impl Fn(usize) -> bool) -> Vec<usize> {
        let names = serde_json::from_str::<Vec<String>>(text).unwrap_or_default();
        let known = names
            .iter()
            .filter_map(|name| self.columns.get(&name.to_lowercase()));
        known.copied().filter(|at| is_null(*at)).collect()
    }

    /// Where an event that is older than its row has a value from, in the change.
    pub(super) fn told(&self, at: usize, row: u64, events: &Reduced) -> Option<Source> {
        let lacks = |row: &u64| {
            self.of
                .get(row)
                .is_some_and(|gap| gap.columns.contains(&at))
        };
        if !lacks(&row) {
            return Some(Source::Change(row));
        }
        let before = self.of.get(&row)?.before.iter();
        // What was deleted since has no values to be told.
        let is_gone = |event: &Event| event.delete || events.is_truncated(None, &event.rank);
        before
            .take_while(|one| !is_gone(&one.event))
            .map(|one| one.row)
            .find(|row| !lacks(row))
            .map(Source::Change)
    }

    /// What the table and its tombstones hold of the keys of events without a value.
    fn bases<'a>(&self, stored: &'a Finds, graves: &'a Finds) -> HashMap<u64, Base<'a>> {
        let mut bases = HashMap::<u64, Base<'a>>::new();
        let own =
            |finds: &'a Finds| hits(finds).filter(|(_, hit)| self.of.contains_key(&hit.event));
        for (at, hit) in own(stored) {
            let (base, rank) = (bases.entry(hit.event).or_default(), hit.rank.as_ref());
            base.rank = base.rank.max(rank);
            if base.row.is_none_or(|(.., other)| rank > other) {
                base.row = Some((at, hit.row, rank));
            }
        }
        for (_, hit) in own(graves) {
            let base = bases.entry(hit.event).or_default();
            base.rank = base.rank.max(hit.rank.as_ref());
        }
        bases
    }

    /// Where an event's value of a column comes from.
    fn source(
        &self,
        at: usize,
        (row, gap): (u64, &Gap),
        base: Option<&Base<'_>>,
        events: &Reduced,
    ) -> Source {
        let known = base.and_then(|base| base.rank);
        let own = |row, gap: &Gap| (!gap.columns.contains(&at)).then_some(Source::Change(row));
        // What a delete that keeps the row has itself, in case there is no row.
        let mut last = own(row, gap);
        // The row that a truncate has to come before, to leave nothing to be kept; none when its own place tells.
        let mut holder = gap.keeps.then_some(row);
        for Before { row, event } in gap.before.iter().take_while(|one| one.is_newer(known)) {
            let is_gone = events.is_truncated(holder, &event.rank);
            if event.delete && !self.soft || is_gone {
                return last.unwrap_or(Source::Nothing);
            }
            holder = holder.map(|_| *row);
            match self.of.get(row) {
                Some(gap) if gap.keeps || gap.columns.contains(&at) => {
                    last = own(*row, gap).or(last);
                }
                _ => return Source::Change(*row),
            }
        }
        let there = base
            .and_then(|base| base.row)
            .filter(|(.., rank)| !rank.is_some_and(|rank| events.is_truncated(holder, rank)));
        match there {
            Some((file, row, _)) => Source::Stored(file, row),
            None => last.unwrap_or(Source::Nothing),
        }
    }
}
