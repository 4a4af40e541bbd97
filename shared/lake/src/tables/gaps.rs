//! Values that an event does not have since they did not change: the row keeps what it had.
//!
//! An event says so by the placeholder in a column, or by the column's name in the JSON array of a column `unavailable`.
//! Such a value is that of the newest older event of its key that has one, in whatever order they arrive, of one change or of
//! several: a row remembers where its values are from (see `origins`), and an event that comes late is asked for those that
//! are older than it (see `mend`). What was deleted or truncated since has no values to be kept. A value that nobody has is
//! NULL, and counted; in the table, `unavailable` names what a row has no value for.
//!
//! A soft delete keeps the row as it was, and is such an event in all columns but those it sets: what nobody has it takes
//! from itself. It keeps only what was there when it came: what arrives later and is older changes nothing of it.

use std::collections::BTreeMap;

use arrow::{
    array::{Array, AsArray, BooleanArray, RecordBatch},
    datatypes::{DataType, Schema},
};
use domain::{SEQUENCE, cdc::Placeholder};
use hashbrown::HashMap;
use roaring::RoaringTreemap;

use super::{
    chain::Chain,
    columns::{ORIGINS, position},
    gap::{Base, Before, Gap},
    origins::{Origin, Origins},
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
    /// Whether rows of the table may have values from elsewhere: then an event that has all may turn out to be one that its
    /// row has already, and what it took the place of to be news.
    mends: bool,
    /// By the event's row among the change's.
    of: HashMap<u64, Gap>,
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

/// A row that is stored with values from elsewhere.
#[derive(Debug)]
pub(super) struct Filled {
    /// The event, by its row of the change.
    pub event: u64,
    /// Columns, and where their values come from; the others are those of the row that is written anew, else the event's.
    pub sources: Vec<(usize, Source)>,
    /// The row of the table that is written anew.
    pub anew: Option<TableRow>,
    /// What the row remembers of it.
    pub origins: Origins,
}

/// Rows that are stored with values from elsewhere.
#[derive(Debug, Default)]
pub(super) struct Filling {
    /// The rows.
    pub rows: Vec<Filled>,
    /// Values that are nowhere.
    pub unknown: u64,
    /// The column that a row which is written anew has of its event: its place among the changes.
    pub place: Option<usize>,
}

impl Gaps {
    /// None yet, in a table of these columns; those at `always` have values whatever they hold. `soft`: deletes keep the
    /// row; `mends`: rows of the table may have values from elsewhere.
    pub(crate) fn new(
        placeholder: Placeholder,
        schema: &Schema,
        always: &[usize],
        soft: bool,
        mends: bool,
    ) -> Self {
        let own = [SEQUENCE, UNAVAILABLE, domain::DELETED, ORIGINS];
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
            mends,
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
        let is_whole = self.is_whole(other, event.delete);
        let mut earlier = self.of.remove(&other).unwrap_or_default();
        if let Some(gap) = self.noted(row) {
            gap.inherit(&mut earlier);
            if !event.delete && earlier.gives_nothing(gap) {
                // Others of its sequence changed nothing when they came.
                gap.before.retain(|one| one.event.rank != event.rank);
                return;
            }
        }
        // What it lacks is asked for still.
        if !earlier.has_all() {
            earlier.before = Vec::new();
            self.of.insert(other, earlier);
        }
        self.take(row, Before { row: other, event }, is_whole);
    }

    /// What is noted of an event, if what it took the place of can matter.
    fn noted(&mut self, row: u64) -> Option<&mut Gap> {
        match self.mends {
            true => Some(self.of.entry(row).or_default()),
            false => self.of.get_mut(&row),
        }
    }

    /// Notes that an event came late: one that is newer, and in the place of its key, may need values of it.
    pub(crate) fn overtaken(&mut self, row: u64, late: u64, event: Event) {
        // A soft delete does not, unless the table has one that is as new.
        if !self.mends && self.of.get(&row).is_some_and(|gap| gap.keeps) {
            return;
        }
        let gives_nothing = |gap: &Gap| {
            let to = self.of.get(&row);
            !event.delete && to.is_some_and(|to| gap.gives_nothing(to))
        };
        if self.of.get(&late).is_some_and(gives_nothing) {
            self.of.remove(&late);
            return;
        }
        let is_whole = self.is_whole(late, event.delete);
        self.take(row, Before { row: late, event }, is_whole);
        if self.of.get(&late).is_some_and(Gap::has_all) {
            self.of.remove(&late);
        }
    }

    /// Whether nobody looks past an event for what is older.
    fn is_whole(&self, row: u64, delete: bool) -> bool {
        let lacks = self.of.get(&row).is_some_and(|gap| !gap.has_all());
        if delete { !self.soft } else { !lacks }
    }

    /// Adds to what an event took the place of one that nobody looks past if it `is_whole`.
    fn take(&mut self, row: u64, one: Before, is_whole: bool) {
        let Some(mut gap) = self.noted(row).map(std::mem::take) else {
            return;
        };
        let keeps = |row: u64| self.of.get(&row).is_some_and(|gap| gap.keeps);
        gap.add(one, is_whole, keeps);
        self.of.insert(row, gap);
    }

    /// Puts what each event took the place of in order.
    pub(crate) fn order(&mut self, winners: &HashMap<u64, Event>) {
        for (row, gap) in &mut self.of {
            match winners.get(row) {
                Some(winner) => gap.order(winner),
                None => gap.before = Vec::new(),
            }
        }
    }

    /// Whether an event takes the place of others of the change.
    pub(super) fn has_before(&self, row: u64) -> bool {
        self.of.get(&row).is_some_and(|gap| !gap.before.is_empty())
    }

    /// The rows of the table that stored events may take values from, by file.
    pub(super) fn bases(
        &self,
        events: &Reduced,
        (stored, graves): (&Finds, &Finds),
        unstored: &RoaringTreemap,
    ) -> BTreeMap<usize, RoaringTreemap> {
        let mut rows = BTreeMap::<usize, RoaringTreemap>::new();
        let all = self.known(stored, graves);
        for (row, _) in self.open(events, unstored) {
            if let Some((file, at, _)) = all.get(&row).and_then(|base| base.row) {
                rows.entry(file).or_default().insert(at);
            }
        }
        rows
    }

    /// Where the values come from that the stored ones of the events do not have.
    pub(super) fn fill(
        &self,
        events: &Reduced,
        (stored, graves): (&Finds, &Finds),
        unstored: &RoaringTreemap,
        (origins, collected): (&HashMap<TableRow, Origins>, Option<&Rank>),
    ) -> Filling {
        let mut filling = Filling::default();
        let bases = self.known(stored, graves);
        for (row, gap) in self.open(events, unstored) {
            let base = bases.get(&row);
            let columns: &mut dyn Iterator<Item = usize> = match gap.keeps {
                true => &mut self.columns.values().copied(),
                false => &mut gap.columns.iter().copied(),
            };
            let mut filled = Filled {
                event: row,
                sources: Vec::new(),
                anew: None,
                origins: Origins::new(),
            };
            for at in columns {
                let (source, origin) =
                    self.source(at, (row, gap), base, events, (origins, collected));
                filled.sources.push((at, source));
                // What a soft delete keeps is its own from then on.
                if source != Source::Change(row) && !(gap.keeps && origin.known) {
                    filled.origins.set(at, origin);
                }
            }
            let mut sources = filled.sources.iter().map(|(_, from)| *from);
            if sources.clone().all(|from| from == Source::Change(row)) {
                continue;
            }
            filling.unknown += sources
                .by_ref()
                .filter(|from| *from == Source::Nothing)
                .count() as u64;
            filling.rows.push(filled);
        }
        filling
    }

    /// What an event that is older than its row, of this sequence and these origins, changes of the row's values.
    pub(super) fn late(
        &self,
        events: &Reduced,
        event: u64,
        (row, rank): (TableRow, &Rank),
        origins: &Origins,
    ) -> BTreeMap<usize, (Source, Origin)> {
        let before = self.of.get(&event).map(|gap| gap.before.as_slice());
        let before = before.unwrap_or_default().iter();
        let before = before.map(|one| (one.row, &one.event));
        let all: Vec<_> = [(event, &events.winners[&event])]
            .into_iter()
            .chain(before)
            .collect();
        let told = origins.iter().filter_map(|(at, known)| {
            let stored = Stored {
                row,
                rank: Some(rank),
                origin: known.clone(),
            };
            let (source, origin) = self.told(at, &all, stored, Chain::default(), events);
            (origin != *known).then_some((at, (source, origin)))
        });
        told.collect()
    }

    /// What a row was left without that names it, and says no more.
    pub(super) fn lost(&self, names: &str) -> Origins {
        let names = serde_json::from_str::<Vec<String>>(names).unwrap_or_default();
        let known = names
            .iter()
            .filter_map(|name| self.columns.get(&name.to_lowercase()));
        known.map(|at| (*at, Origin::lost(None))).collect()
    }

    /// Events without a value that are stored, in the order of the change.
    fn open(&self, events: &Reduced, unstored: &RoaringTreemap) -> Vec<(u64, &Gap)> {
        let stored = |row: &u64| events.winners.contains_key(row) && !unstored.contains(*row);
        let open = self.of.iter();
        let open = open.filter(|(row, gap)| !gap.has_all() && stored(row));
        let mut open: Vec<(u64, &Gap)> = open.map(|(row, gap)| (*row, gap)).collect();
        open.sort_unstable_by_key(|(row, _)| *row);
        open
    }

    /// What the table and its tombstones hold of the keys of events without a value.
    fn known<'a>(&self, stored: &'a Finds, graves: &'a Finds) -> HashMap<u64, Base<'a>> {
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
        (origins, collected): (&HashMap<TableRow, Origins>, Option<&Rank>),
    ) -> (Source, Origin) {
        let known = base.and_then(|base| base.rank);
        let mut chain = Chain::default();
        if gap.keeps {
            chain.keep((row, &events.winners[&row].rank), self.own(at, row));
        }
        // Was nothing known of its key, its tombstone may have been one of those that are gone.
        let gone = Base::is_gone(base, &events.winners[&row], events);
        let lost = |one: &&Before| one.is_lost(base, (events, collected));
        let collected = collected.filter(|_| gone);
        let newer = gap.before.iter().take_while(|one| one.is_newer(known));
        for Before { row, event } in newer.filter(|one| !lost(one)) {
            if chain.came_after(*row) {
                continue;
            }
            let floor = events.truncated_by(chain.holder, Some(&event.rank));
            if event.delete && !self.soft || floor.is_some() {
                return chain.nothing(floor.or(Some(&event.rank)).max(collected));
            }
            match self.of.get(row) {
                Some(gap) if gap.keeps => chain.keep((*row, &event.rank), self.own(at, *row)),
                Some(gap) if gap.columns.contains(&at) => {}
                _ => return chain.found(*row, &event.rank),
            }
        }
        let Some((file, number, rank)) = base.and_then(|base| base.row) else {
            return chain.nothing(known.max(collected));
        };
        let row = (file, number);
        let own = || Origin {
            known: true,
            since: rank.cloned(),
        };
        let origins = origins.get(&row);
        let origin = origins.and_then(|origins| origins.get(at)).cloned();
        let origin = origin.unwrap_or_else(own);
        if let Some(floor) = events.truncated_by(chain.holder, rank) {
            if origin.known || gone || chain.own.is_some() {
                return chain.nothing(Some(floor).max(collected));
            }
            // Its row had none, and still has none: that was counted.
            let lost = Origin::lost(Some(floor).max(origin.since.as_ref()));
            return (Source::Stored(file, number), chain.frozen(lost));
        }
        let stored = Stored { row, rank, origin };
        let before: Vec<_> = gap.before.iter().map(|one| (one.row, &one.event)).collect();
        self.told(at, &before, stored, chain, events)
    }

    /// Where a value of a row of the table comes from once these events, the newest first, were asked that are older than it.
    fn told(
        &self,
        at: usize,
        all: &[(u64, &Event)],
        stored: Stored<'_>,
        mut chain: Chain,
        events: &Reduced,
    ) -> (Source, Origin) {
        let Stored {
            row: (file, number),
            rank,
            origin,
        } = stored;
        let since = origin.since.as_ref();
        // What was lost since ever is lost, whatever was truncated.
        let emptied = since.is_some() || origin.known;
        let floor = |chain: &Chain| events.truncated_by(chain.holder, since).filter(|_| emptied);
        let older = all.iter().filter(|(_, event)| Some(&event.rank) < rank);
        for (row, event) in older.take_while(|(_, event)| Some(&event.rank) > since) {
            if chain.came_after(*row) {
                continue;
            }
            if events
                .truncated_by(chain.holder, Some(&event.rank))
                .is_some()
            {
                break;
            }
            if event.delete && !self.soft {
                return match origin.known {
                    true => chain.nothing(Some(&event.rank)),
                    // Its NULL, which was counted when it was left without.
                    false => {
                        let lost = Origin::lost(Some(&event.rank));
                        (Source::Stored(file, number), lost)
                    }
                };
            }
            match self.of.get(row) {
                Some(gap) if gap.keeps => {
                    chain.keep((*row, &event.rank), None);
                    if !origin.known || floor(&chain).is_some() {
                        chain.own = self.own(at, *row).or(chain.own);
                    }
                }
                Some(gap) if gap.columns.contains(&at) => {}
                _ => return chain.found(*row, &event.rank),
            }
        }
        // What emptied it came before the last soft delete, if there was one.
        match (floor(&chain), origin.known) {
            (None, true) => (Source::Stored(file, number), chain.frozen(origin)),
            (Some(floor), true) => chain.nothing(Some(floor)),
            (floor, false) if chain.own.is_some() => chain.nothing(floor.or(since)),
            // Its NULL, which was counted when it was left without.
            (floor, false) => {
                let lost = Origin::lost(floor.or(since));
                (Source::Stored(file, number), chain.frozen(lost))
            }
        }
    }

    /// The event itself, if it has a value.
    fn own(&self, at: usize, row: u64) -> Option<u64> {
        let lacks = |gap: &Gap| gap.columns.contains(&at);
        (!self.of.get(&row).is_some_and(lacks)).then_some(row)
    }
}

/// A value of a row of the table.
struct Stored<'a> {
    row: TableRow,
    rank: Option<&'a Rank>,
    origin: Origin,
}
