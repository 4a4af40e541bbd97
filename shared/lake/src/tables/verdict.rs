//! What becomes of events whose keys the table or its tombstones hold: an event that is not newer than what is there, or
//! than a truncate, is dropped, any other takes its place.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use ports::Result;
use roaring::RoaringTreemap;

use super::{
    probe::{Found, Hit},
    rank::Rank,
    winners::{Event, Reduced},
};

/// What was found, by position of the file in the table.
pub(crate) type Finds = BTreeMap<usize, Found>;
/// Rows by position of their file.
pub(crate) type Positions = BTreeMap<usize, RoaringTreemap>;

/// What becomes of the events of a change.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Rows of the change that are not stored: dropped events, hard deletes, soft deletes of rows that are there.
    pub unstored: RoaringTreemap,
    /// Rows of the table that go.
    pub gone: Positions,
    /// Tombstones that go.
    pub cleared: Positions,
    /// Hard deletes: events to make tombstones of. One of an unknown key that is not newer than a tombstone that is gone
    /// says nothing new.
    pub buried: Vec<u64>,
    /// Soft deletes of rows that are there: the row by file and number, and the event.
    pub flagged: BTreeMap<usize, BTreeMap<u64, u64>>,
    /// Upserts of unknown keys that are not newer than a tombstone that is gone; not stored.
    pub late: RoaringTreemap,
}

/// What is known of rows that are gone and have no tombstone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floors<'a> {
    /// The greatest sequence of tombstones that are gone.
    pub collected: Option<&'a Rank>,
    /// The greatest sequence of a truncate.
    pub truncated: Option<&'a Rank>,
}

/// Judges the events, given what the table and its tombstones hold of their keys. What a truncate empties the table of is
/// not among what it holds.
pub(crate) fn judge(
    events: &Reduced,
    stored: &Finds,
    graves: &Finds,
    soft: bool,
    floors: Floors<'_>,
) -> Result<Verdict> {
    if let (Some(floor), Some(event)) = (floors.truncated, events.winners.values().next()) {
        events.order.alike(&event.rank, floor)?;
    }
    let is_truncated = |rank: &Rank| floors.truncated.is_some_and(|floor| rank <= floor);
    // None of rows without a sequence, than which all are newer.
    let mut newest = HashMap::<u64, Option<&Rank>>::new();
    for hit in hits(stored).chain(hits(graves)).map(|(_, hit)| hit) {
        let rank = hit.rank.as_ref();
        if let Some(rank) = rank {
            events.order.alike(&events.winners[&hit.event].rank, rank)?;
        }
        let known = newest.entry(hit.event).or_insert(rank);
        *known = rank.max(*known);
    }
    let mut late = RoaringTreemap::new();
    if let Some(collected) = floors.collected {
        let unknown = events.winners.iter().filter(|(row, event)| {
            !event.delete && !newest.contains_key(*row) && !is_truncated(&event.rank)
        });
        for (row, event) in unknown {
            events.order.alike(&event.rank, collected)?;
            if event.rank <= *collected {
                late.insert(*row);
            }
        }
    }
    let is_dropped = |event: u64| {
        let (known, rank) = (newest.get(&event), &events.winners[&event].rank);
        is_truncated(rank) || known.is_some_and(|known| *known >= Some(rank))
    };
    let going = |finds: &Finds| {
        let mut rows = Positions::new();
        for (at, hit) in hits(finds).filter(|(_, hit)| !is_dropped(hit.event)) {
            rows.entry(at).or_default().insert(hit.row);
        }
        rows
    };
    let mut verdict = Verdict {
        gone: going(stored),
        cleared: going(graves),
        unstored: late.clone(),
        late,
        ..Verdict::default()
    };
    // Its own tombstone may have been one of those that are gone, with a greater sequence: a new one would let through what
    // that one would not have. Upserts that are as old come too late without any.
    let is_no_news = |event: u64, what: &Event| -> Result<bool> {
        let Some(collected) = floors.collected.filter(|_| !newest.contains_key(&event)) else {
            return Ok(false);
        };
        events.order.alike(&what.rank, collected)?;
        Ok(what.rank <= *collected)
    };
    let mut rows_of_deletes = HashMap::<u64, (usize, &Hit)>::new();
    if soft {
        // A table that was not merged before may hold several rows of a key: the newest is the one that stays.
        for (at, hit) in hits(stored).filter(|(_, hit)| events.winners[&hit.event].delete) {
            let row = rows_of_deletes.entry(hit.event).or_insert((at, hit));
            if hit.rank > row.1.rank {
                *row = (at, hit);
            }
        }
    }
    for (event, what) in &events.winners {
        if verdict.late.contains(*event) {
            continue;
        }
        if is_dropped(*event) {
            verdict.unstored.insert(*event);
        } else if what.delete && !soft {
            verdict.unstored.insert(*event);
            if !is_no_news(*event, what)? {
                verdict.buried.push(*event);
            }
        } else if let Some((at, hit)) = rows_of_deletes.get(event)
            && !events.gaps.has_before(*event)
        {
            verdict.unstored.insert(*event);
            let of_file = verdict.flagged.entry(*at).or_default();
            of_file.insert(hit.row, *event);
        }
    }
    verdict.buried.sort_unstable();
    Ok(verdict)
}

/// All that was found, each with the position of its file.
pub(super) fn hits(finds: &Finds) -> impl Iterator<Item = (usize, &Hit)> {
    finds
        .iter()
        .flat_map(|(at, found)| found.hits.iter().map(move |hit| (*at, hit)))
}

impl Verdict {
    /// Has soft deletes of rows that lack a value stored as events: they may have it themselves.
    pub(super) fn unflag(&mut self, lacks: impl Fn((usize, u64), u64) -> bool) {
        for (at, rows) in &mut self.flagged {
            rows.retain(|row, event| {
                let lacks = lacks((*at, *row), *event);
                if lacks {
                    self.unstored.remove(*event);
                }
                !lacks
            });
        }
    }

    /// Rows that soft deletes write anew.
    pub(crate) fn flagged(&self) -> u64 {
        self.flagged.values().map(|rows| rows.len() as u64).sum()
    }
}
