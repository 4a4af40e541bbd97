//! Halving the new rows of an input until those stand alone that break a build.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use ports::{Error, Kind, Result};

use super::{Only, Out, ROWS_MAX, reason, too_many};
use crate::{
    World,
    refresh::{
        asserts,
        job::{Job, Loaded, Reason},
        make,
    },
};

/// Rows, and how each breaks the build; or why they cannot be told.
pub(super) type Found = std::result::Result<BTreeMap<u64, String>, String>;

/// Where bad rows are looked for: numbers from 1, of which some are read.
trait Rows: Sync {
    fn some(&self, first: u64, last: u64) -> Only;
    fn last(&self) -> u64;
    fn sequence(&self, number: u64) -> u64;
}

/// Rows above a sequence, through another.
struct Above {
    above: u64,
    through: u64,
}

impl Rows for Above {
    fn some(&self, first: u64, last: u64) -> Only {
        Only::Span {
            above: self.above,
            first: self.above + first,
            last: self.above + last,
        }
    }

    fn last(&self) -> u64 {
        self.through - self.above
    }

    fn sequence(&self, number: u64) -> u64 {
        self.above + number
    }
}

impl Rows for Vec<u64> {
    fn some(&self, first: u64, last: u64) -> Only {
        let numbers = (first..=last).filter_map(|number| self.get(number as usize - 1).copied());
        Only::These(numbers.collect::<BTreeSet<u64>>())
    }

    fn last(&self) -> u64 {
        self.len() as u64
    }

    fn sequence(&self, number: u64) -> u64 {
        self.get(number as usize - 1).copied().unwrap_or(0)
    }
}

/// Finds the rows that break a build. Only the world failing is an error.
pub(super) async fn find(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    out: &Out,
) -> Result<Found> {
    let whole = job.rebuilt();
    let job = match loaded.is_outdated() || loaded.is_reshaped(job.model) {
        true => &whole,
        false => job,
    };
    let [input] = loaded.inputs.as_slice() else {
        let inputs = loaded.inputs.len();
        return Ok(Err(format!(
            "it has {inputs} inputs, and only rows of a single one are told apart"
        )));
    };
    let mut search = Search {
        world,
        job,
        loaded,
        out,
        depth: Depth::Query,
    };
    if let Some(rows) = &out.replay {
        let rows: Vec<u64> = rows
            .iter()
            .copied()
            .filter(|row| !out.found.contains_key(row))
            .collect();
        search.deepen(&rows).await?;
        return search.halve(&rows).await;
    }
    let through = input.to.sequence;
    let starts = match job.reason {
        Reason::Full => vec![0],
        Reason::Live | Reason::Batch if input.consumed.sequence > 0 => {
            vec![input.consumed.sequence, 0]
        }
        Reason::Live | Reason::Batch => vec![0],
    };
    for above in starts.into_iter().filter(|above| *above < through) {
        let rows = Above { above, through };
        search.deepen(&rows).await?;
        let without = Only::Span {
            above,
            first: 1,
            last: 0,
        };
        if search.attempt(without).await?.is_none() {
            return search.halve(&rows).await;
        }
    }
    Ok(Err(String::from("it breaks without the new rows too")))
}

/// How much of a build is tried: as little as breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    /// The query alone: nothing has to be written to know that it breaks.
    Query,
    /// Its rows are staged too.
    Stage,
    /// The assertions are asked too: whether they hold is another matter, here they break.
    Check,
}

struct Search<'a> {
    world: &'a World,
    job: &'a Job<'a>,
    loaded: &'a Loaded,
    out: &'a Out,
    depth: Depth,
}

impl Search<'_> {
    /// Goes no deeper than all rows together need to break the build.
    async fn deepen(&mut self, rows: &dyn Rows) -> Result<()> {
        let deepest = match self.job.model.asserts.is_empty() {
            true => Depth::Stage,
            false => Depth::Check,
        };
        for depth in [Depth::Query, Depth::Stage, Depth::Check] {
            self.depth = depth;
            if depth == deepest || self.breaks(rows, 1, rows.last()).await?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// The rows that break the build alone.
    async fn halve(&self, rows: &dyn Rows) -> Result<Found> {
        let mut bad = BTreeMap::new();
        let mut open = vec![(1, rows.last())];
        while let Some((first, last)) = open.pop() {
            let Some(error) = self.breaks(rows, first, last).await? else {
                continue;
            };
            if first == last {
                bad.insert(rows.sequence(first), reason(&error));
                if bad.len() + self.out.found.len() + self.out.listed > ROWS_MAX {
                    return Ok(Err(too_many(self.out.listed)));
                }
                continue;
            }
            let middle = first + (last - first) / 2;
            open.push((middle + 1, last));
            open.push((first, middle));
        }
        Ok(Ok(bad))
    }

    async fn breaks(&self, rows: &dyn Rows, first: u64, last: u64) -> Result<Option<Error>> {
        match first <= last {
            true => self.attempt(rows.some(first, last)).await,
            false => Ok(None),
        }
    }

    /// How the build breaks with no more than some rows, if it does.
    async fn attempt(&self, only: Only) -> Result<Option<Error>> {
        let out = self.out.only(only);
        let done = async {
            let (change, _, _) = make::query(self.world, self.job, self.loaded, &out).await?;
            if self.depth == Depth::Query {
                let mut rows = change.rows.stream;
                while rows.try_next().await?.is_some() {}
                return Ok(());
            }
            let staged = self.world.tables.stage(change).await?;
            match self.depth {
                Depth::Query | Depth::Stage => Ok(()),
                Depth::Check => asserts::ask(self.world, self.job.model, &staged).await,
            }
        };
        match done.await {
            Ok(()) => Ok(None),
            Err(error) if error.kind == Kind::Invalid => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }
}
