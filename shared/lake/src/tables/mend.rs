//! Values that come late: an event that is older than its row tells nothing new, but what the row was left without. Such a
//! row takes them from it, and is named as before: whether there was a newer one between the two nobody knows.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use ports::Result;
use roaring::RoaringTreemap;

use super::{
    fill,
    gaps::{Source, TableRow},
    rank::Rank,
    stage::Stage,
    verdict::{Finds, Verdict, hits},
    winners::Reduced,
};

/// Most rows of one change: they are held in memory. The others stay as they are named.
const ROWS_MAX: usize = 1_000;

/// A row of the table that takes values from an event which is dropped otherwise.
pub(super) struct Mended {
    /// The event.
    pub event: u64,
    /// The row, by file and number.
    pub row: TableRow,
    /// Where its columns come from; those that are not named here are the event's.
    pub sources: Vec<(usize, Source)>,
}

/// The rows of the table that lack what late events have.
pub(super) async fn mend(
    stage: &Stage<'_>,
    events: &Reduced,
    standing: &Finds,
    verdict: &Verdict,
    sequence: Option<usize>,
) -> Result<Vec<Mended>> {
    let Some(names) = events.gaps.names else {
        return Ok(Vec::new());
    };
    let may_lack = |file: &usize| {
        let base = stage.base.as_ref()?;
        let part = &base.files.get(*file)?.part;
        let bounds = part.bounds.get(&stage.of_base(base, names).0?)?;
        Some(bounds.nulls.is_none_or(|nulls| nulls < part.rows))
    };
    let mut late = late(events, standing, verdict);
    late.retain(|_, (file, _)| may_lack(file).unwrap_or(true));
    let late: BTreeMap<u64, TableRow> = late.into_iter().collect();
    let late: Vec<_> = late.into_iter().take(ROWS_MAX).collect();
    let mut wanted = BTreeMap::<usize, RoaringTreemap>::new();
    for (_, (file, row)) in &late {
        wanted.entry(*file).or_default().insert(*row);
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let columns = stage.draft.columns.read.fields().len();
    let lacking = fill::lacking(stage, names, wanted, &events.gaps).await?;
    let mended = late.into_iter().filter_map(|(event, row)| {
        let mut found = BTreeMap::new();
        for at in lacking.get(&row)? {
            found.extend(events.gaps.told(*at, event, events).map(|from| (*at, from)));
        }
        let stored = Source::Stored(row.0, row.1);
        let from = |at: usize| (at, found.get(&at).copied().unwrap_or(stored));
        let others = (0..columns).filter(|at| Some(*at) != sequence);
        let sources = others.map(from).collect();
        (!found.is_empty()).then_some(Mended {
            event,
            row,
            sources,
        })
    });
    Ok(mended.collect())
}

/// Upserts that are older than the row of their key, each with the newest of these.
fn late(events: &Reduced, standing: &Finds, verdict: &Verdict) -> HashMap<u64, TableRow> {
    let mut newest = HashMap::new();
    for (file, hit) in hits(standing) {
        let known = newest.entry(hit.event).or_insert((file, hit));
        if hit.rank > known.1.rank {
            *known = (file, hit);
        }
    }
    let is_late = |event: u64, file: usize, row: u64, rank: Option<&Rank>| {
        let what = &events.winners[&event];
        let goes = verdict
            .gone
            .get(&file)
            .is_some_and(|rows| rows.contains(row));
        !what.delete
            && !goes
            && rank > Some(&what.rank)
            && verdict.unstored.contains(event)
            && !verdict.late.contains(event)
            && !events.is_truncated(None, &what.rank)
    };
    let late = newest.into_iter().filter_map(|(event, (file, hit))| {
        let row = (file, hit.row);
        is_late(event, file, hit.row, hit.rank.as_ref()).then_some((event, row))
    });
    late.collect()
}
