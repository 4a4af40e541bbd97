//! The transaction of a landing commit, and what is done when it does not simply succeed.

use domain::{
    Duration, Position, TableName, Timestamp,
    items::{self, Advance, Column, Head},
};
use ports::{
    Error, Kind, Result, columns,
    state::{Expect, Item, Key, Outcome, Write, pack},
};
use serde::{Deserialize, Serialize};

use super::{
    World,
    draft::{Draft, Mark},
    fold, forget, schema,
};

/// Transactions tried for one commit: enough for fifty processes that write one table at once.
const ATTEMPTS: u32 = 64;
/// Transactions without a known outcome, or reads without an answer, before the store is taken to be away.
const OUTAGES_MAX: u32 = 8;
const BACKOFF_BASE: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(250);

/// Sort key of an idempotency mark.
pub(super) const SEEN: &str = "seen";

/// A head as this process last saw or left it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Version of the item; none when the table is new.
    version: Option<u64>,
    pub(super) position: Position,
    rows: u64,
    advanced_at: Timestamp,
    pub(super) columns: Vec<Column>,
}

/// The advance item, and what its writer knows it by.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    #[serde(flatten)]
    pub(super) advance: Advance,
    /// Which commit this is: an unknown outcome is settled by looking for it.
    #[serde(default)]
    pub(super) commit: String,
    /// Commits of the table, this one counted.
    #[serde(default)]
    pub(super) commits: u64,
    /// The commits that were folded into this one, for as long as somebody may look for one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) folded: Vec<Part>,
}

/// A commit that is part of another one now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    from: u64,
    to: u64,
    commit: String,
    commits: u64,
}

impl Stored {
    /// What is to be remembered of it when it becomes part of another.
    pub(super) fn part(&self) -> Part {
        Part {
            from: self.advance.from,
            to: self.advance.to,
            commit: self.commit.clone(),
            commits: self.commits,
        }
    }
}

impl Part {
    fn ended(&self) -> Committed {
        Committed::Done {
            from: self.from,
            position: Position {
                sequence: self.to,
                commits: self.commits,
            },
        }
    }
}

/// What a mark holds: the range that was stored under it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) position: Position,
    pub(super) at: Timestamp,
    /// The file, when the mark stands for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<FileSeen>,
}

/// An incoming file that was committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSeen {
    /// Bytes.
    pub(super) size: u64,
    /// Digest of the content, for a file whose rows were copied; none for one that is read where it lies.
    pub(super) digest: Option<String>,
}

/// How a commit ended.
#[derive(Debug)]
pub(super) enum Committed {
    /// Stored after `from`; the head is at `position` now.
    Done { from: u64, position: Position },
    /// Nothing stored: these marks (by index) were there.
    Seen(Vec<(usize, Seen)>),
    /// Nothing stored: the table's columns have become others, and the draft's do not fit.
    Moved(String),
}

/// Where the mark of an idempotency key is.
pub(super) fn seen(table: &TableName, key: &str) -> Key {
    let whole = table.to_string();
    let source = if table.is_landing() {
        table.name()
    } else {
        &whole
    };
    Key::new(format!("{}{source}#{key}", items::SEEN), SEEN)
}

fn head_key(table: &TableName) -> Key {
    Key::new(items::table(table), items::HEAD)
}

/// Reads the head, if this process does not know it.
pub(super) async fn load<'a>(
    world: &World,
    table: &TableName,
    known: &'a mut Option<Known>,
) -> Result<&'a Known> {
    let found = match known.take() {
        Some(found) => found,
        None => {
            retry(world, || async {
                read_head(world.state.get(&head_key(table)).await?)
            })
            .await?
        }
    };
    Ok(known.insert(found))
}

fn read_head(item: Option<Item>) -> Result<Known> {
    let Some(item) = item else {
        return Ok(Known::default());
    };
    let head: Head = item.decode()?;
    Ok(Known {
        version: Some(item.version),
        position: head.position,
        rows: head.rows,
        advanced_at: head.advanced_at,
        columns: head.columns,
    })
}

impl Known {
    /// Whether the table has a head.
    pub(super) fn exists(&self) -> bool {
        self.version.is_some()
    }

    fn expect(&self) -> Expect {
        self.version.map_or(Expect::Absent, Expect::Version)
    }

    fn head(&self) -> Head {
        Head {
            position: self.position,
            rows: self.rows,
            rebuilt: 0,
            advanced_at: self.advanced_at,
            columns: self.columns.clone(),
            snapshot: None,
        }
    }

    /// The head's write, and the listing's when the table is new.
    fn writes(&self, table: &TableName, next: &Self) -> Vec<Write> {
        let mut writes = vec![Write::put(head_key(table), &next.head(), self.expect())];
        if self.version.is_none() {
            let listing = Key::new(items::TABLES, table.to_string());
            let value = bytes::Bytes::new();
            writes.push(Write::Put {
                key: listing,
                value,
                expect: Expect::Any,
            });
        }
        writes
    }
}

/// Creates the table, or adds the columns it lacks.
pub(super) async fn declare(
    world: &World,
    table: &TableName,
    known: &mut Option<Known>,
    columns: &[Column],
) -> Result<()> {
    let refuse = |why: String| Error::new(Kind::Invalid, "declare", table).because(why);
    schema::check_names(columns.iter().map(|column| column.name.as_str())).map_err(refuse)?;
    for column in columns {
        if columns::data_type(&column.kind).is_none() {
            return Err(refuse(format!(
                "column `{}` has no known type: `{}`",
                column.name, column.kind
            )));
        }
    }
    let mut tries = Tries::new(world);
    loop {
        let now = load(world, table, known).await?.clone();
        let lacks = |column: &&Column| !now.columns.iter().any(|known| known.name == column.name);
        let missing: Vec<_> = columns.iter().filter(lacks).cloned().collect();
        if missing.is_empty() && now.version.is_some() {
            return Ok(());
        }
        let mut next = now.clone();
        next.columns.extend(missing);
        // Whatever becomes of it, the head is read again before it is written again.
        *known = None;
        match world.state.transact(now.writes(table, &next)).await {
            Ok(Outcome::Committed(_)) => return Ok(()),
            Ok(Outcome::Conflict(_)) => tries.lost(table).await?,
            Err(error) => tries.away(error).await?,
        }
    }
}

/// Commits a draft: once, whatever the store answers on the way.
///
/// # Errors
/// `Unavailable` when the store stays away or others keep winning; the message says when the outcome is unknown.
pub(super) async fn commit(
    world: &World,
    table: &TableName,
    known: &mut Option<Known>,
    draft: &Draft,
) -> Result<Committed> {
    let id = world.chance.id(world.clock.now());
    let mut tries = Tries::new(world);
    // Last sequences of transactions whose outcome is unknown: each may still happen until a later one of ours does.
    let mut doubtful: Vec<u64> = Vec::new();
    let mut look = known.is_none();
    loop {
        if look {
            match settle(world, table, draft, &id, &doubtful).await {
                Ok((found, ended)) => {
                    *known = Some(found);
                    if let Some(ended) = ended {
                        return Ok(ended);
                    }
                }
                Err(error) => {
                    *known = None;
                    tries
                        .away(error)
                        .await
                        .map_err(|e| in_doubt(e, &doubtful))?;
                    continue;
                }
            }
        }
        let now = load(world, table, known).await?.clone();
        let mut next = now.clone();
        if let Err(why) = schema::unite(table, &mut next.columns, &draft.columns) {
            return Ok(Committed::Moved(why));
        }
        look = true;
        let writes = propose(table, &now, &mut next, draft, &id, world.clock.now());
        let (from, to) = (now.position.sequence, next.position.sequence);
        match world.state.transact(writes).await {
            Ok(Outcome::Committed(versions)) => {
                next.version = versions.first().copied();
                let position = next.position;
                *known = next.version.is_some().then_some(next);
                return Ok(Committed::Done { from, position });
            }
            Ok(Outcome::Conflict(_)) => {
                tries
                    .lost(table)
                    .await
                    .map_err(|e| in_doubt(e, &doubtful))?;
            }
            Err(error) => {
                *known = None;
                if error.kind == Kind::Unavailable && doubtful.last() != Some(&to) {
                    doubtful.push(to);
                }
                tries
                    .away(error)
                    .await
                    .map_err(|e| in_doubt(e, &doubtful))?;
            }
        }
    }
}

/// The writes of a commit; `next` becomes the head after it.
fn propose(
    table: &TableName,
    now: &Known,
    next: &mut Known,
    draft: &Draft,
    id: &str,
    at: Timestamp,
) -> Vec<Write> {
    let from = now.position.sequence;
    next.position = Position {
        sequence: from + draft.rows,
        commits: now.position.commits + 1,
    };
    next.rows = now.rows + draft.rows;
    next.advanced_at = at.max(now.advanced_at);
    let to = next.position.sequence;
    assert!(to > from, "S-1: a commit of {table} has no rows");
    let stored = Stored {
        advance: Advance {
            from,
            to,
            rows: draft.rows,
            origin_at: draft.origin_at,
            committed_at: at,
            data: Some(draft.data.clone()),
        },
        commit: id.to_owned(),
        commits: next.position.commits,
        folded: Vec::new(),
    };
    let mut writes = now.writes(table, next);
    writes.push(Write::Put {
        key: Key::new(items::table(table), items::advance(to)),
        value: pack(&stored, &draft.bytes),
        expect: Expect::Absent,
    });
    for mark in &draft.marks {
        let seen = mark.seen(from, next.position, at);
        writes.push(Write::put(mark.key.clone(), &seen, Expect::Absent));
    }
    writes.extend(forget::later(table, &draft.marks, at, id));
    writes
}

impl Mark {
    fn seen(&self, from: u64, position: Position, at: Timestamp) -> Seen {
        let first = from + self.offset + 1;
        let last = from + self.offset + self.rows;
        Seen {
            first,
            last,
            position,
            at,
            file: self.file.clone(),
        }
    }
}

/// Reads, as of one moment, the head, the draft's marks, and whether one of the doubtful transactions happened.
async fn settle(
    world: &World,
    table: &TableName,
    draft: &Draft,
    id: &str,
    doubtful: &[u64],
) -> Result<(Known, Option<Committed>)> {
    let mut keys = vec![head_key(table)];
    keys.extend(
        doubtful
            .iter()
            .map(|to| Key::new(items::table(table), items::advance(*to))),
    );
    keys.extend(draft.marks.iter().map(|mark| mark.key.clone()));
    let mut found = world.state.get_many(&keys).await?.into_iter();
    let known = read_head(found.next().flatten())?;
    for (to, item) in doubtful.iter().zip(found.by_ref().take(doubtful.len())) {
        let item = match item {
            Some(item) => Some(item),
            // It may have been folded since: then it is part of the next commit there is.
            None => world.state.query(&fold::from(table, *to, 1)).await?.pop(),
        };
        let Some(item) = item else { continue };
        let (stored, _): (Stored, _) = item.unpack()?;
        let own = stored.part();
        let mut parts = stored.folded.iter().chain([&own]);
        if let Some(part) = parts.find(|part| part.commit == id) {
            return Ok((known, Some(part.ended())));
        }
    }
    let mut seen = Vec::new();
    for (index, item) in found.enumerate() {
        if let Some(item) = item {
            seen.push((index, item.decode()?));
        }
    }
    let ended = (!seen.is_empty()).then_some(Committed::Seen(seen));
    Ok((known, ended))
}

fn in_doubt(error: Error, doubtful: &[u64]) -> Error {
    if doubtful.is_empty() {
        return error;
    }
    let subject = error.subject.clone();
    Error::new(
        Kind::Unavailable,
        "learn whether rows were committed",
        subject,
    )
    .because(error)
}

/// Does something again while the world does not answer, a few times, after growing pauses.
pub(super) async fn retry<T, F: Future<Output = Result<T>>>(
    world: &World,
    mut what: impl FnMut() -> F,
) -> Result<T> {
    let mut tries = Tries::new(world);
    loop {
        match what().await {
            Ok(done) => return Ok(done),
            Err(error) => tries.away(error).await?,
        }
    }
}

/// Bounded patience: counts what went wrong, and pauses longer each time, by a random part.
struct Tries<'a> {
    world: &'a World,
    lost: u32,
    away: u32,
}

impl<'a> Tries<'a> {
    fn new(world: &'a World) -> Self {
        Self {
            world,
            lost: 0,
            away: 0,
        }
    }

    /// Another writer was first.
    async fn lost(&mut self, table: &TableName) -> Result<()> {
        self.lost += 1;
        if self.lost >= ATTEMPTS {
            return Err(Error::new(Kind::Unavailable, "commit to", table)
                .because(format!("{ATTEMPTS} attempts lost to other writers")));
        }
        // The first time the head is read again at once: a key seen before, or one other writer, needs no patience.
        if self.lost > 1 {
            self.pause(self.lost).await;
        }
        Ok(())
    }

    /// The world did not answer; any other error is final.
    async fn away(&mut self, error: Error) -> Result<()> {
        self.away += 1;
        if error.kind != Kind::Unavailable || self.away >= OUTAGES_MAX {
            return Err(error);
        }
        self.pause(self.away + 2).await;
        Ok(())
    }

    async fn pause(&self, count: u32) {
        let longest = BACKOFF_MAX.min(BACKOFF_BASE.saturating_mul(1 << count.min(16)));
        let span = longest.mul_f64(self.world.chance.fraction());
        self.world
            .clock
            .sleep_until(self.world.clock.now() + span)
            .await;
    }
}
