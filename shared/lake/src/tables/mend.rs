//! Events that come late: one that is older than its row changes what the row took from events that are older still, or was
//! left without. Such a row is written anew, and is the event's as far as its readers are concerned.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use ports::Result;
use roaring::RoaringTreemap;

use super::{
    gaps::{Filled, Filling, Gaps, Source, TableRow},
    origins::{self, Origin, Origins},
    rank::Rank,
    stage::Stage,
    verdict::{Finds, Verdict, hits},
    winners::Reduced,
};

/// A late event, with the row of its key and the row's sequence.
pub(super) struct Late<'a> {
    event: u64,
    row: TableRow,
    rank: &'a Rank,
}

/// Events that are older than the row of their key, or the same again, each with the newest of these.
pub(super) fn late<'a>(events: &Reduced, standing: &'a Finds, verdict: &Verdict) -> Vec<Late<'a>> {
    let mut newest = HashMap::new();
    for (file, hit) in hits(standing) {
        let known = newest.entry(hit.event).or_insert((file, hit));
        if hit.rank > known.1.rank {
            *known = (file, hit);
        }
    }
    let goes = |file: usize, row: u64| {
        let gone = verdict.gone.get(&file);
        gone.is_some_and(|rows| rows.contains(row))
    };
    let late = newest.into_iter().filter_map(|(event, (file, hit))| {
        let rank = hit.rank.as_ref()?;
        let is_late = events.winners[&event].rank <= *rank
            && !goes(file, hit.row)
            && verdict.unstored.contains(event)
            && !verdict.late.contains(event);
        let row = (file, hit.row);
        is_late.then_some(Late { event, row, rank })
    });
    let mut late: Vec<Late<'_>> = late.collect();
    late.sort_unstable_by_key(|late| late.event);
    late
}

/// The rows of late events, by file.
pub(super) fn rows(late: &[Late<'_>]) -> BTreeMap<usize, RoaringTreemap> {
    let mut rows = BTreeMap::<usize, RoaringTreemap>::new();
    for Late { row, .. } in late {
        rows.entry(row.0).or_default().insert(row.1);
    }
    rows
}

/// Adds the rows that late events change, and takes them out of the table.
pub(super) fn mend(
    events: &Reduced,
    late: &[Late<'_>],
    origins: &HashMap<TableRow, Origins>,
    (verdict, filling): (&mut Verdict, &mut Filling),
) {
    for Late { event, row, rank } in late {
        let Some(known) = origins.get(row) else {
            continue;
        };
        let told = events.gaps.late(events, *event, (*row, rank), known);
        if !told.is_empty() {
            verdict.unstored.remove(*event);
            anew(*event, *row, (known, told), (verdict, filling));
        }
    }
}

/// The same of a truncate that is older than rows of the table, for which every row with values from elsewhere is looked at.
pub(super) async fn truncate(
    stage: &Stage<'_>,
    gaps: &Gaps,
    (event, floor): (u64, &Rank),
    (verdict, filling): (&mut Verdict, &mut Filling),
) -> Result<()> {
    let files = stage.base.as_ref().filter(|_| stage.rows() > 0);
    for (file, data) in files.iter().flat_map(|base| base.files.iter().enumerate()) {
        let mut rows = RoaringTreemap::new();
        rows.insert_range(0..data.part.rows);
        if let Some(deleted) = &data.part.deleted {
            rows -= deleted.as_ref();
        }
        if let Some(gone) = verdict.gone.get(&file) {
            rows -= gone;
        }
        for (number, known) in origins::of_file(stage, gaps, file, &rows).await? {
            let gone = |origin: &Origin| origin.since.as_ref().is_none_or(|since| since <= floor);
            let told = known
                .iter()
                .filter(|(_, origin)| origin.known && gone(origin));
            let told = told.map(|(at, _)| (at, (Source::Nothing, Origin::lost(Some(floor)))));
            let told: BTreeMap<usize, (Source, Origin)> = told.collect();
            if !told.is_empty() {
                let to = (&mut *verdict, &mut *filling);
                anew(event, (file, number), (&known, told), to);
            }
        }
    }
    Ok(())
}

/// Writes a row of the table anew with other values.
fn anew(
    event: u64,
    row: TableRow,
    (known, told): (&Origins, BTreeMap<usize, (Source, Origin)>),
    (verdict, filling): (&mut Verdict, &mut Filling),
) {
    let nowhere = told.values().filter(|(from, _)| *from == Source::Nothing);
    filling.unknown += nowhere.count() as u64;
    let sources = told.iter().map(|(at, (from, _))| (*at, *from)).collect();
    let mut origins = known.clone();
    for (at, (_, origin)) in told {
        origins.set(at, origin);
    }
    filling.rows.push(Filled {
        event,
        sources,
        anew: Some(row),
        origins,
    });
    verdict.gone.entry(row.0).or_default().insert(row.1);
}
