//! Group commit: one commit for everything that waits, one answer for each.

use std::collections::HashMap;

use ports::{Error, Kind, landing::Appended};

use super::{
    World,
    commit::{self, Committed, Known, Seen},
    draft::{self, Draft, Mark},
    lane::{Lane, Pending},
    schema,
};

/// Commits a group. Every caller is answered: with its range, with the range its key has had before, or with why its
/// rows alone, or the whole commit, were refused.
pub(super) async fn commit(world: &World, lane: &Lane, group: Vec<Pending>) {
    let mut known = lane.known.lock().await;
    let mut group = group;
    while !group.is_empty() {
        let now = match commit::load(world, &lane.table, &mut known).await {
            Ok(now) => now,
            Err(error) => return fail(world, group, &error),
        };
        let (admitted, again) = admit(now, group);
        if admitted.is_empty() {
            return;
        }
        group = attempt(world, lane, &mut known, admitted, again).await;
    }
}

/// One commit of those admitted. Returns who is still to be committed.
async fn attempt(
    world: &World,
    lane: &Lane,
    known: &mut Option<Known>,
    mut admitted: Vec<Pending>,
    mut again: Vec<Pending>,
) -> Vec<Pending> {
    let ended = match draft(world, lane, &admitted).await {
        Ok(draft) => commit::commit(world, &lane.table, known, &draft).await,
        Err(error) => Err(error),
    };
    match ended {
        Ok(Committed::Done { from, position }) => {
            world.note(None);
            let mut first = from + 1;
            let mut ranges = HashMap::new();
            for pending in admitted {
                let last = first + pending.append.rows.num_rows() as u64 - 1;
                let answer = Appended {
                    first,
                    last,
                    position,
                    duplicate: false,
                };
                if let Some(key) = &pending.append.key {
                    ranges.insert(key.clone(), answer);
                }
                pending.answer(Ok(answer));
                first = last + 1;
            }
            let same = |pending: &Pending| ranges.get(pending.append.key.as_ref()?).copied();
            for pending in std::mem::take(&mut again) {
                match same(&pending) {
                    Some(answer) => pending.answer(Ok(Appended {
                        duplicate: true,
                        ..answer
                    })),
                    None => again.push(pending),
                }
            }
            again
        }
        Ok(Committed::Seen(seen)) => {
            // Marks are in the order of the appends that have a key.
            let mut seen: HashMap<usize, Seen> = seen.into_iter().collect();
            let mut mark = 0;
            let mut rest = Vec::with_capacity(admitted.len());
            for pending in admitted.drain(..) {
                let keyed = pending.append.key.is_some();
                match if keyed { seen.remove(&mark) } else { None } {
                    Some(Seen {
                        first,
                        last,
                        position,
                        ..
                    }) => {
                        pending.answer(Ok(Appended {
                            first,
                            last,
                            position,
                            duplicate: true,
                        }));
                    }
                    None => rest.push(pending),
                }
                mark += usize::from(keyed);
            }
            rest.extend(again);
            rest
        }
        Ok(Committed::Moved(_)) => {
            admitted.extend(again);
            admitted
        }
        Err(error) => {
            admitted.extend(again);
            fail(world, admitted, &error);
            Vec::new()
        }
    }
}

/// Refuses the appends whose columns do not fit the table's or an earlier one's, and sets aside those whose key an
/// earlier one has.
fn admit(known: &Known, group: Vec<Pending>) -> (Vec<Pending>, Vec<Pending>) {
    let mut columns = known.columns.clone();
    let (mut admitted, mut again): (Vec<Pending>, Vec<Pending>) = (Vec::new(), Vec::new());
    for pending in group {
        let key = pending.append.key.as_ref();
        if key.is_some()
            && admitted
                .iter()
                .any(|earlier| earlier.append.key.as_ref() == key)
        {
            again.push(pending);
            continue;
        }
        let found = schema::columns_of(pending.append.rows.schema_ref());
        match schema::unite(&pending.append.table, &mut columns, &found) {
            Ok(()) => admitted.push(pending),
            Err(why) => {
                let error = Error::new(Kind::Invalid, "append to", &pending.append.table);
                pending.answer(Err(error.because(why)));
            }
        }
    }
    (admitted, again)
}

async fn draft(world: &World, lane: &Lane, admitted: &[Pending]) -> ports::Result<Draft> {
    let mut offset = 0;
    let mut marks = Vec::new();
    for pending in admitted {
        let rows = pending.append.rows.num_rows() as u64;
        if let Some(key) = &pending.append.key {
            let key = commit::seen(&lane.table, key);
            marks.push(Mark {
                key,
                offset,
                rows,
                file: None,
            });
        }
        offset += rows;
    }
    let batches: Vec<_> = admitted
        .iter()
        .map(|pending| &pending.append.rows)
        .collect();
    let arrived = admitted.iter().map(|pending| pending.append.origin_at);
    let origin_at = arrived.min().unwrap_or_else(|| world.clock.now());
    draft::of_batches(world, &lane.table, &batches, origin_at, marks).await
}

/// Tells everyone the same.
fn fail(world: &World, group: Vec<Pending>, error: &Error) {
    world.note(Some(error));
    for pending in group {
        let same = Error::new(error.kind, error.action, &error.subject);
        let cause = std::error::Error::source(error).map(ports::error::chain);
        pending.answer(Err(match cause {
            Some(cause) => same.because(cause),
            None => same,
        }));
    }
}
