//! Folding: a run of small consecutive commits becomes one, its rows one parquet object.
//!
//! The object is put first. Then one transaction replaces the commits, each expected as it was read, by one that covers
//! the same sequences; row `i` of it has the sequence it always had (**S-1**). Objects that are part of another one now
//! are remembered as garbage in the same transaction, and go after the grace time.
//!
//! A writer that does not know how its commit ended looks for it, so what was folded keeps the commits' ids, and is not
//! folded again before nobody can be looking any more.

use arrow::array::RecordBatch;
use bytes::Bytes;
use domain::{
    Duration, TableName,
    items::{self, Advance, BatchData},
};
use object_store::ObjectStoreExt;
use ports::{
    Error, Kind, Result,
    state::{Expect, Item, Span, Write, pack},
    upkeep::{Fold, Folded},
};

use super::{World, commit::Stored, draft, scan, schema};
use crate::garbage;

/// Commits looked at in one step.
const PAGE: usize = 128;
/// Most commits of a run: a transaction holds a hundred writes.
const RUN_MAX: usize = 90;
/// Least commits of a run.
const RUN_MIN: usize = 16;
/// A run of so many is folded whatever their sizes.
const RUN_LONG: usize = 64;
/// Most bytes of a run.
const RUN_BYTES: u64 = 8 << 20;
/// Most bytes of a run's items: what a transaction may touch on DynamoDB.
const RUN_ITEM_BYTES: u64 = 3 << 20;
/// Most rows of a run.
const RUN_ROWS: u64 = 256 << 10;
/// An object of this size is large enough.
const LARGE: u64 = 2 << 20;
/// Longest a writer can be looking for a commit of its own: an invocation's life.
const DOUBT: Duration = Duration::from_secs(15 * 60);

/// The first commits that end at a sequence or after it.
pub(super) fn from(table: &TableName, to: u64, limit: usize) -> Span {
    Span {
        partition: items::table(table),
        from: items::advance(to),
        until: Some(format!("{}~", items::advance(u64::MAX))),
        reverse: false,
        limit,
    }
}

/// A commit that may become part of a run.
struct Small {
    item: Item,
    stored: Stored,
    bytes: Bytes,
}

impl Small {
    fn read(item: &Item) -> Result<Self> {
        let (stored, bytes) = item.unpack()?;
        let item = item.clone();
        Ok(Self {
            item,
            stored,
            bytes,
        })
    }

    fn size(&self) -> u64 {
        match &self.stored.advance.data {
            Some(BatchData::Object { size, .. }) => *size,
            Some(BatchData::Inline) | None => self.bytes.len() as u64,
        }
    }

    /// Whether it may be part of a run; `Err(())` when it may later, without changing.
    fn is_ready(&self, fold: &Fold) -> std::result::Result<bool, ()> {
        let at = self.stored.advance.committed_at;
        if self.stored.advance.data.is_none() || self.size() >= LARGE {
            return Ok(false);
        }
        let sought = !self.stored.folded.is_empty() && at + DOUBT > fold.now;
        if at > fold.until || sought {
            return Err(());
        }
        Ok(true)
    }
}

/// Folds the first run on the next page of commits.
pub(super) async fn fold(world: &World, table: &TableName, fold: &Fold) -> Result<Folded> {
    let page = world
        .state
        .query(&from(table, fold.after.saturating_add(1), PAGE))
        .await?;
    let mut folded = Folded::default();
    let mut runs: Vec<Vec<Small>> = vec![Vec::new()];
    let mut last = fold.after;
    for item in &page {
        let small = Small::read(item)?;
        let Advance { from, to, .. } = small.stored.advance;
        // A run neither holds nor crosses a place up to which somebody has read.
        let read = fold.cuts.range(from + 1..to).next().is_some();
        last = to;
        match small.is_ready(fold) {
            Ok(true) if !read => {
                let ends = fold.cuts.contains(&to);
                runs.last_mut().expect("there is always one").push(small);
                if ends {
                    runs.push(Vec::new());
                }
            }
            Ok(_) => runs.push(Vec::new()),
            Err(()) => {
                folded.young = true;
                runs.push(Vec::new());
            }
        }
    }
    let full = page.len() == PAGE;
    folded.next = full.then_some(last);
    // A run that the page cuts short is looked at again from its beginning.
    if let Some(first) = runs.last().and_then(|run| run.first()).filter(|_| full) {
        let begin = first.stored.advance.from;
        folded.next = Some(if begin > fold.after { begin } else { last });
    }
    for run in runs {
        if let Some(run) = worthwhile(run) {
            let through = run.last().map_or(last, |small| small.stored.advance.to);
            folded.next = Some(through);
            let (commits, rows) = (run.len() as u64, rows(&run));
            if replace(world, table, fold, run).await? {
                (folded.commits, folded.rows) = (commits, rows);
            } else {
                folded.conflict = true;
            }
            return Ok(folded);
        }
    }
    Ok(folded)
}

fn rows(run: &[Small]) -> u64 {
    run.iter().map(|small| small.stored.advance.rows).sum()
}

/// The first part of a run that is worth its folding: long enough, and not one large commit written again for the sake
/// of a few small ones.
fn worthwhile(mut run: Vec<Small>) -> Option<Vec<Small>> {
    loop {
        let (mut count, mut bytes, mut inline, mut rows) = (0, 0, 0, 0);
        let (mut largest, mut at) = (0, 0);
        for (index, small) in run.iter().enumerate().take(RUN_MAX) {
            bytes += small.size();
            inline += small.item.value.len() as u64;
            rows += small.stored.advance.rows;
            if bytes > RUN_BYTES || inline > RUN_ITEM_BYTES || rows > RUN_ROWS {
                bytes -= small.size();
                break;
            }
            if small.size() > largest {
                (largest, at) = (small.size(), index);
            }
            count += 1;
        }
        let full = count == RUN_MAX || count < run.len();
        let long = count >= RUN_MIN || (full && count > 1);
        if long && (bytes >= 2 * largest || count >= RUN_LONG) {
            run.truncate(count);
            return Some(run);
        }
        if run.len() < RUN_MIN {
            return None;
        }
        // Whatever begins after the one that stands in the way.
        run.drain(..=at);
    }
}

/// Puts a run's rows and replaces its commits; false when somebody else changed one of them first.
async fn replace(world: &World, table: &TableName, fold: &Fold, run: Vec<Small>) -> Result<bool> {
    let path = draft::object_path(world, table);
    let bytes = draft::parquet(table, rows_of(world, table, &run).await?).await?;
    let size = bytes.len() as u64;
    world
        .objects
        .put(&path, bytes.into())
        .await
        .map_err(Error::from)?;
    let data = BatchData::Object {
        path: path.to_string(),
        size,
    };
    let outcome = world
        .state
        .transact(writes(world, table, fold, &run, data))
        .await?;
    if !outcome.is_committed() {
        // Nobody was ever told of it. One that cannot be removed is an orphan.
        let _ = world.objects.delete(&path).await;
    }
    Ok(outcome.is_committed())
}

async fn rows_of(world: &World, table: &TableName, run: &[Small]) -> Result<RecordBatch> {
    let mut batches = Vec::with_capacity(run.len());
    for small in run {
        let advance = &small.stored.advance;
        let read = match &advance.data {
            Some(BatchData::Inline) => scan::decode(table, small.bytes.clone())?,
            Some(BatchData::Object { path, size }) => {
                scan::download(&world.objects, path, *size).await?
            }
            None => Vec::new(),
        };
        let rows: usize = read.iter().map(RecordBatch::num_rows).sum();
        if rows as u64 != advance.rows || advance.to - advance.from != advance.rows {
            let why = "its rows are not as many as it says";
            return Err(scan::corrupt(table, advance.to, why));
        }
        for batch in read.into_iter().filter(|batch| batch.num_rows() > 0) {
            batches.push(schema::canonical(table, batch)?);
        }
    }
    schema::join(table, &batches.iter().collect::<Vec<_>>())
}

fn writes(
    world: &World,
    table: &TableName,
    fold: &Fold,
    run: &[Small],
    data: BatchData,
) -> Vec<Write> {
    let advances = || run.iter().map(|small| &small.stored.advance);
    let (first, last) = run.first().zip(run.last()).expect("a run has commits");
    let rows = rows(run);
    let (from, to) = (first.stored.advance.from, last.stored.advance.to);
    assert!(
        to - from == rows
            && run
                .windows(2)
                .all(|two| two[0].stored.advance.to == two[1].stored.advance.from),
        "S-1: commits of {table} in ({from}, {to}] are not contiguous"
    );
    let sought = run
        .iter()
        .filter(|small| small.stored.advance.committed_at + DOUBT > fold.now);
    let whole = Stored {
        advance: Advance {
            from,
            to,
            rows,
            origin_at: advances()
                .map(|advance| advance.origin_at)
                .min()
                .unwrap_or(last.stored.advance.origin_at),
            committed_at: advances()
                .map(|advance| advance.committed_at)
                .max()
                .unwrap_or(last.stored.advance.committed_at),
            data: Some(data),
        },
        commit: last.stored.commit.clone(),
        commits: last.stored.commits,
        folded: sought.map(|small| small.stored.part()).collect(),
    };
    let mut writes = vec![Write::Put {
        key: last.item.key.clone(),
        value: pack(&whole, &[]),
        expect: Expect::Version(last.item.version),
    }];
    writes.extend(run[..run.len() - 1].iter().map(|small| Write::Delete {
        key: small.item.key.clone(),
        expect: Expect::Version(small.item.version),
    }));
    let folder = draft::folder(table);
    let gone: Vec<garbage::Named> = advances()
        .filter_map(|advance| match &advance.data {
            // What lies under `incoming/` is not ours to remove.
            Some(BatchData::Object { path, size }) if path.starts_with(&folder) => {
                Some(garbage::Named {
                    path: path.clone(),
                    size: *size,
                })
            }
            Some(BatchData::Object { .. } | BatchData::Inline) | None => None,
        })
        .collect();
    if !gone.is_empty() {
        let id = world.chance.id(fold.now);
        writes.push(garbage::remember(table, fold.now, &id, gone));
    }
    writes
}

/// Objects that commits of a table name.
pub(super) async fn references(
    world: &World,
    table: &TableName,
) -> Result<Option<garbage::References>> {
    let mut named = garbage::References::default();
    let mut span = Some(from(table, 0, PAGE));
    while let Some(here) = span {
        let page = world.state.query(&here).await?;
        for item in &page {
            let (stored, _): (Stored, _) = item.unpack()?;
            match stored.advance.data {
                Some(BatchData::Object { path, .. }) => drop(named.paths.insert(path)),
                Some(BatchData::Inline) => {}
                None => {
                    return Err(Error::new(Kind::Corrupt, "read commit", table)
                        .because(format!("{} names no rows", item.key.sort)));
                }
            }
        }
        span = here.after(&page);
    }
    Ok(Some(named))
}

const _: () = assert!(RUN_MAX + 2 <= ports::state::WRITES_MAX);
