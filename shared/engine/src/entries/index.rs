//! Indexes of entries: asked for, begun, waited for. The building itself is in `building`, who does it in `jobs`.
//!
//! Of each index there is one item in the entry's partition. Whoever builds moves its deadline while the build goes on; the
//! transaction that makes it ready also asks that the entry is of the generation it was built from (**E-3**).

use arrow::datatypes::{DataType, Schema};
use domain::{
    Duration,
    entry::{
        self, EntryId, INDEX, INDEXES_MAX, Index, IndexDecision, IndexSpec, IndexState, Row,
        decide_index, index_key, together,
    },
};
use ports::{
    Result,
    state::{Expect, Item, Key, Span, Write, query_all},
};
use serde::Serialize;

use super::{
    ATTEMPTS, Ask, Entry, Found, Refused, Registry, contended,
    stored::{put_row, row_key},
};

/// Between two looks at somebody else's build: shorter at first.
const LOOK_MIN: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// An index as people and programs are shown it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexShown {
    /// Its name.
    pub index: String,
    /// What it is over.
    #[serde(flatten)]
    pub spec: IndexSpec,
    /// `building`, `ready`, `failed`; `abandoned` when its builder was not heard of until its deadline, and `outdated` when
    /// it is of a generation before.
    pub status: &'static str,
    /// The job that makes it.
    pub job: String,
    /// When the job began (RFC 3339).
    pub started_at: String,
    /// Rows that are done.
    pub rows_done: u64,
    /// Rows of the entry.
    pub row_count: u64,
    /// Bytes of a ready one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_size: Option<u64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An index item as it was read.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) index: Index,
    pub(super) version: u64,
}

impl Held {
    pub(super) fn read(item: &Item) -> Result<Self> {
        Ok(Self {
            index: item.decode()?,
            version: item.version,
        })
    }
}

/// What asking for an index came to.
#[derive(Debug)]
pub(super) enum Begun {
    /// It is there, is being built, or failed: as the item says.
    There(Held),
    /// The entry has moved on, or is gone.
    Gone,
}

pub(super) fn key(id: &EntryId, spec: &IndexSpec) -> Key {
    Key::new(entry::entry(id), index_key(&spec.name()))
}

impl Registry {
    /// Has an entry indexed: from now on, this generation and those after it. Answers at once; the building goes on, here or
    /// where jobs are sent.
    ///
    /// # Errors
    /// [`Refused::Missing`] when there is no such entry; `Invalid` for a column that is not there or cannot be indexed so.
    pub async fn index(
        &self,
        id: &EntryId,
        specs: &[IndexSpec],
    ) -> Result<Vec<IndexShown>, Refused> {
        let entry = self.declare(id, specs).await?;
        for spec in specs {
            self.begin(&entry, spec, true).await?;
        }
        self.indexes_of(&entry).await
    }

    /// Writes into the row what the entry is searched by.
    async fn declare(&self, id: &EntryId, specs: &[IndexSpec]) -> Result<Entry, Refused> {
        let invalid = |why: String| Refused::invalid("index", id, why);
        if specs.is_empty() {
            return Err(invalid(String::from("name at least one index")));
        }
        for _ in 0..ATTEMPTS {
            let entry = self.current(id).await?;
            let Some(stored) = self.world.entries.find(&entry.set()).await? else {
                self.lost(&entry).await?;
                return Err(Refused::Missing(id.clone()));
            };
            for spec in specs {
                spec.check()
                    .and_then(|()| self.fits(&stored.schema, spec))
                    .map_err(invalid)?;
            }
            let all = together(&entry.row.spec.indexes, specs);
            if all.len() > INDEXES_MAX {
                return Err(invalid(format!(
                    "an entry has at most {INDEXES_MAX} indexes"
                )));
            }
            if all == entry.row.spec.indexes {
                return Ok(entry);
            }
            let mut row: Row = entry.row.clone();
            row.spec.indexes = all;
            let payload = entry.payload.clone().unwrap_or_default();
            let writes = put_row(id, &row, &payload, Expect::Version(entry.version));
            self.transact(writes.to_vec()).await?;
        }
        Err(contended("index", id).into())
    }

    /// Whether rows can be indexed so here; why not.
    pub(super) fn fits(&self, schema: &Schema, spec: &IndexSpec) -> Result<(), String> {
        fits(schema, spec, self.world.searching.embedder.is_set())
    }

    /// The entry as it is; an expired one will do.
    pub(super) async fn current(&self, id: &EntryId) -> Result<Entry, Refused> {
        let ask = Ask {
            mode: Some(entry::Mode::Swr),
            ..Ask::default()
        };
        match self.lookup(id, ask).await? {
            Found::Hit(entry) | Found::Stale(entry) => Ok(*entry),
            Found::Building | Found::Miss => Err(Refused::Missing(id.clone())),
        }
    }

    /// The indexes of an entry, and how far they are.
    ///
    /// # Errors
    /// [`Refused::Missing`] when there is no such entry.
    pub async fn indexes(&self, id: &EntryId) -> Result<Vec<IndexShown>, Refused> {
        let entry = self.current(id).await?;
        self.indexes_of(&entry).await
    }

    async fn indexes_of(&self, entry: &Entry) -> Result<Vec<IndexShown>, Refused> {
        let held = self.held(&entry.id).await?;
        Ok(held
            .iter()
            .map(|held| self.index_shown(entry, &held.index))
            .collect())
    }

    /// All index items of an entry.
    pub(super) async fn held(&self, id: &EntryId) -> Result<Vec<Held>> {
        let span = Span::prefix(entry::entry(id), INDEX, 2 * INDEXES_MAX);
        let items = query_all(&*self.world.state, span).await?;
        items.iter().map(Held::read).collect()
    }

    pub(super) fn index_shown(&self, entry: &Entry, index: &Index) -> IndexShown {
        let rows = entry.content.rows;
        let (status, rows_done, byte_size, reason) = match &index.state {
            IndexState::Ready { bytes, rows, .. } => ("ready", *rows, Some(*bytes), None),
            IndexState::Failed { reason, .. } => ("failed", 0, None, Some(reason.clone())),
            IndexState::Building {
                deadline,
                rows_done,
            } => {
                let is_held = self.now() < *deadline;
                let status = if is_held { "building" } else { "abandoned" };
                (status, *rows_done, None, None)
            }
        };
        let is_current = index.generation == entry.content.generation;
        IndexShown {
            index: index.spec.name(),
            spec: index.spec.clone(),
            status: if is_current { status } else { "outdated" },
            job: index.job.clone(),
            started_at: index.started_at.to_string(),
            rows_done,
            row_count: rows,
            byte_size,
            reason,
        }
    }

    /// Begins what is to be built of an entry that was just committed.
    pub(super) async fn keep_indexed(&self, entry: &Entry) {
        for spec in &entry.row.spec.indexes {
            if let Err(error) = self.begin(entry, spec, false).await {
                // The next search begins it.
                tracing::warn!(entry = %entry.id, error = error.chain(), "an index was not begun");
            }
        }
    }

    /// Has an index built if nobody does; with `again` also one that failed.
    pub(super) async fn begin(
        &self,
        entry: &Entry,
        spec: &IndexSpec,
        again: bool,
    ) -> Result<Begun> {
        let id = &entry.id;
        for _ in 0..ATTEMPTS {
            let keys = [key(id, spec), row_key(id)];
            let mut items = self.world.state.get_many(&keys).await?.into_iter();
            let (index, row) = (items.next().flatten(), items.next().flatten());
            let Some(row) = row else {
                return Ok(Begun::Gone);
            };
            let (read, _) = row.unpack::<Row>()?;
            let generation = &entry.content.generation;
            if read.content().map(|content| &content.generation) != Some(generation) {
                return Ok(Begun::Gone);
            }
            let held = index.as_ref().map(Held::read).transpose()?;
            let known = held.as_ref().map(|held| &held.index);
            match (decide_index(known, spec, generation, self.now()), held) {
                (IndexDecision::Ready | IndexDecision::Wait, Some(held)) => {
                    return Ok(Begun::There(held));
                }
                (IndexDecision::Failed, Some(held)) if !again => return Ok(Begun::There(held)),
                (_, held) => {
                    let next = self.next_job(entry, spec);
                    let expect = Expect::as_read(index.as_ref());
                    let check = Write::Check {
                        key: row_key(id),
                        expect: Expect::Version(row.version),
                    };
                    let writes = vec![Write::put(key(id, spec), &next, expect), check];
                    let outcome = self.world.state.transact(writes).await?;
                    if let ports::state::Outcome::Committed(versions) = outcome {
                        let version = versions.first().copied().unwrap_or_default();
                        let begun = Held {
                            index: next,
                            version,
                        };
                        self.have_built(entry, begun.clone(), held).await?;
                        return Ok(Begun::There(begun));
                    }
                }
            }
        }
        Err(contended("index", id))
    }

    pub(super) fn next_job(&self, entry: &Entry, spec: &IndexSpec) -> Index {
        let now = self.now();
        Index {
            spec: spec.clone(),
            generation: entry.content.generation.clone(),
            job: self.world.chance.id(now),
            holder: String::from("index"),
            started_at: now,
            state: IndexState::Building {
                deadline: now + self.settings.lease,
                rows_done: 0,
            },
        }
    }

    /// Waits until no index of an entry is being built, for so long at most.
    ///
    /// # Errors
    /// What the state store answers.
    pub async fn settle(&self, id: &EntryId, wait: Duration) -> Result<()> {
        let give_up = self.now() + wait;
        let mut look = LOOK_MIN;
        loop {
            let now = self.now();
            let busy = self.held(id).await?.into_iter().any(|held| {
                matches!(held.index.state, IndexState::Building { deadline, .. } if now < deadline)
            });
            if !busy || now >= give_up {
                return Ok(());
            }
            self.world
                .clock
                .sleep_until((now + look).min(give_up))
                .await;
            look = (look * 2).min(LOOK_MAX);
        }
    }

    /// A ready index of an entry; waits for it a while. None when the entry has moved on meanwhile.
    pub(super) async fn ready_index(
        &self,
        entry: &Entry,
        spec: &IndexSpec,
        wait: Duration,
    ) -> Result<Option<Held>, Refused> {
        let give_up = self.now() + wait.min(self.settings.wait_max);
        let mut look = LOOK_MIN;
        loop {
            let held = match self.begin(entry, spec, false).await? {
                Begun::There(held) => held,
                Begun::Gone => return Ok(None),
            };
            let shown = || Box::new(self.index_shown(entry, &held.index));
            match held.index.state {
                IndexState::Ready { .. } => return Ok(Some(held)),
                IndexState::Failed { .. } => return Err(Refused::IndexFailed(shown())),
                IndexState::Building { .. } if self.now() >= give_up => {
                    return Err(Refused::IndexNotReady(shown()));
                }
                IndexState::Building { deadline, .. } => {
                    let next = (self.now() + look).min(give_up).min(deadline);
                    self.world.clock.sleep_until(next).await;
                    look = (look * 2).min(LOOK_MAX);
                }
            }
        }
    }
}

/// Whether the columns are there, and can be indexed so by whoever makes vectors of text.
fn fits(schema: &Schema, spec: &IndexSpec, embeds: bool) -> Result<(), String> {
    for column in spec.columns() {
        let Ok(field) = schema.field_with_name(column) else {
            let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            return Err(format!(
                "there is no column `{column}`; there are {}",
                known.join(", ")
            ));
        };
        let kind = field.data_type();
        let word = ports::columns::word(kind);
        match spec {
            IndexSpec::Text { .. } if !is_text(kind) => {
                return Err(format!("column `{column}` is {word}, not text"));
            }
            IndexSpec::Vector { .. } if !is_text(kind) && !is_vector(kind) => {
                return Err(format!(
                    "column `{column}` is {word}: neither vectors, lists of floating-point numbers, nor text to embed"
                ));
            }
            IndexSpec::Vector { .. } if is_text(kind) && !embeds => {
                return Err(format!(
                    "column `{column}` is text, and nothing makes vectors of it: set `embedder.url`, or index a column of vectors"
                ));
            }
            IndexSpec::Text { .. } | IndexSpec::Vector { .. } => {}
        }
    }
    Ok(())
}

pub(super) fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

fn is_vector(kind: &DataType) -> bool {
    match kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().is_floating()
        }
        _ => false,
    }
}
