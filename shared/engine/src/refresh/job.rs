//! What one build of one model is, and what was loaded for it.

use std::collections::BTreeMap;

use domain::{
    Materialized, Model, Position, Project, TableName,
    items::{Consumed, Control, Head, ModelState, Snapshot},
};
use ports::{
    Result,
    state::{Item, Key},
};

use super::events;
use crate::{
    World,
    load::{self, Items},
    pins::Reads,
};

/// Why a model is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// An input advanced.
    Live,
    /// A batch run came by.
    Batch,
    /// It is to be rebuilt from nothing.
    Full,
}

/// One build of one model.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    /// The model.
    pub(crate) model: &'a Model,
    /// Tables whose advances it follows, views looked through.
    pub(crate) inputs: Vec<TableName>,
    /// How far landing tables are read; as they are now when there is none.
    pub(crate) targets: Option<&'a BTreeMap<TableName, Position>>,
    /// Why.
    pub(crate) reason: Reason,
    /// Digest of what it is built from.
    pub(crate) digest: String,
    /// Tables with rows that it may read.
    tables: Vec<TableName>,
}

impl<'a> Job<'a> {
    /// A build of a model of the project.
    pub(crate) fn new(
        project: &Project,
        model: &'a Model,
        targets: Option<&'a BTreeMap<TableName, Position>>,
        reason: Reason,
    ) -> Self {
        // A view that cannot be read fails the build, when its query is run; it still has inputs.
        let tables: Vec<_> = match Reads::of(project, model.reads.iter().cloned()) {
            Ok(reads) => reads.tables.into_iter().collect(),
            Err(_) => model.reads.clone(),
        };
        let inputs = match project.inputs.get(&model.name) {
            Some(inputs) if is_live(model) => inputs.clone(),
            Some(_) | None => tables
                .iter()
                .filter(|table| **table != model.name)
                .cloned()
                .collect(),
        };
        Self {
            model,
            inputs,
            targets,
            reason,
            digest: digest(project, model),
            tables,
        }
    }

    /// The same build, from nothing.
    pub(crate) fn rebuilt(&self) -> Self {
        Self {
            reason: Reason::Full,
            ..self.clone()
        }
    }

    /// Keys of every item the build looks at.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let name = &self.model.name;
        let mut keys = vec![load::head(name), load::state(name), load::control(name)];
        keys.extend(self.tables.iter().chain(&self.inputs).map(load::head));
        keys.extend(self.inputs.iter().map(|input| load::consumed(name, input)));
        keys.extend([load::quarantine(name), load::collected(name)]);
        keys.extend(self.written().iter().map(load::head));
        keys.extend(self.written().iter().map(load::pointer));
        keys
    }

    /// The tables it writes: its own, and that of its tombstones.
    fn written(&self) -> Vec<TableName> {
        // A name that is none fails the build, when the events are applied.
        let tombstones = events::tombstones(self.model).ok().flatten();
        [self.model.name.clone()]
            .into_iter()
            .chain(tombstones)
            .collect()
    }

    /// The catalog pointers of the tables it writes, as they were read.
    pub(crate) fn pointers(&self, loaded: &Loaded) -> BTreeMap<TableName, Option<Item>> {
        let read = |table: TableName| {
            let item = loaded.items.item(&load::pointer(&table)).cloned();
            (table, item)
        };
        self.written().into_iter().map(read).collect()
    }

    /// The landing table that a build outside the runner came too early for: its columns are not known yet.
    pub(crate) fn awaits(&self, loaded: &Loaded) -> Result<Option<&TableName>> {
        if self.reason == Reason::Live {
            return Ok(None);
        }
        for table in self.tables.iter().filter(|table| table.is_landing()) {
            if loaded.items.head(table)?.is_none() {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    /// How far an input is read when its head is `head` and `consumed` has been.
    fn reach(&self, input: &TableName, head: Option<&Head>, consumed: Position) -> Position {
        let Some(head) = head else { return consumed };
        let to = match self.targets {
            Some(targets) if head.snapshot.is_none() => {
                let target = targets.get(input).copied().unwrap_or(consumed);
                Position {
                    sequence: head.position.sequence.min(target.sequence),
                    commits: head.position.commits.min(target.commits),
                }
            }
            Some(_) | None => head.position,
        };
        consumed.advance(to)
    }
}

/// Whether a model is refreshed by the runner.
pub(crate) fn is_live(model: &Model) -> bool {
    model.config.live && model.config.materialized == Materialized::Incremental
}

/// An input as loaded.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// The table.
    pub(crate) table: TableName,
    /// What the model has consumed of it.
    pub(crate) consumed: Position,
    /// What it will have consumed after this build.
    pub(crate) to: Position,
    /// Whether it is a landing table.
    pub(crate) landing: bool,
    /// The snapshot of a model that was consumed; none when there was none, or before it was remembered.
    pub(crate) from: Option<Snapshot>,
    /// The snapshot of a model that is read.
    pub(crate) snapshot: Option<Snapshot>,
    /// Whether all its rows were replaced since they were consumed: a watermark says nothing about them.
    pub(crate) rebuilt: bool,
}

impl Input {
    /// Whether there is something to read.
    pub(crate) fn is_behind(&self) -> bool {
        self.consumed.is_behind(self.to)
    }
}

/// What a build decides from.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// Every item, for conditions.
    pub(crate) items: Items,
    /// The model's own head.
    pub(crate) head: Option<Head>,
    /// How its refreshes went.
    pub(crate) state: ModelState,
    /// What was asked of it.
    pub(crate) control: Control,
    /// Its inputs.
    pub(crate) inputs: Vec<Input>,
}

impl Loaded {
    /// Reads what a build decides from.
    ///
    /// # Errors
    /// `Unavailable` or `Corrupt` from the state store.
    pub(crate) async fn read(world: &World, job: &Job<'_>) -> Result<Self> {
        Self::of(job, Items::load(&*world.state, job.keys()).await?)
    }

    /// What a build decides from, of items that were read, those of [`Job::keys`] among them.
    ///
    /// # Errors
    /// `Corrupt` for an item that is not what its type says.
    pub(crate) fn of(job: &Job<'_>, items: Items) -> Result<Self> {
        let name = &job.model.name;
        let mut inputs = Vec::with_capacity(job.inputs.len());
        for table in &job.inputs {
            let head = items.head(table)?;
            let Consumed {
                position: consumed,
                snapshot: from,
            } = items.consumed(name, table)?;
            let to = job.reach(table, head.as_ref(), consumed);
            let rebuilt = head
                .as_ref()
                .is_some_and(|head| consumed.commits > 0 && consumed.commits < head.rebuilt);
            let snapshot = head.and_then(|head| head.snapshot);
            inputs.push(Input {
                table: table.clone(),
                consumed,
                to,
                landing: snapshot.is_none(),
                from,
                snapshot,
                rebuilt,
            });
        }
        let head = items.head(name)?;
        let (state, control) = (items.state(name)?, items.control(name)?);
        Ok(Self {
            items,
            head,
            state,
            control,
            inputs,
        })
    }

    /// Whether the table exists.
    pub(crate) fn is_built(&self) -> bool {
        self.head
            .as_ref()
            .is_some_and(|head| head.snapshot.is_some())
    }

    /// What the model published so far.
    pub(crate) fn published(&self) -> Position {
        self.head
            .as_ref()
            .map(|head| head.position)
            .unwrap_or_default()
    }

    /// Whether a build would do anything.
    pub(crate) fn is_due(&self, job: &Job<'_>) -> bool {
        let behind = self.inputs.iter().any(Input::is_behind);
        match job.reason {
            Reason::Live | Reason::Batch if self.is_reshaped(job.model) => true,
            Reason::Live => {
                behind || !self.is_built() && self.inputs.iter().any(|input| input.to.commits > 0)
            }
            Reason::Batch => behind || !self.is_built() || self.is_edited(job),
            Reason::Full => true,
        }
    }

    /// Whether a table was built from another definition than the model's.
    pub(crate) fn is_edited(&self, job: &Job<'_>) -> bool {
        job.model.config.materialized == Materialized::Table
            && self.state.built_from.as_ref() != Some(&job.digest)
    }

    /// Whether the rows there are were kept under another materialization, strategy or key.
    pub(crate) fn is_reshaped(&self, model: &Model) -> bool {
        let before = self.state.shape.as_ref();
        self.is_built() && before.is_some_and(|before| *before != shape(model))
    }

    /// Whether the rows there are came from other definitions of the model or of its inputs, so that only a rebuild
    /// makes them what the query says.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_built() && self.inputs.iter().any(|input| input.rebuilt)
    }
}

/// Whether a model was last built from nothing by another definition than it has now, whose [`digest`] is given. Before the
/// first build it was not.
pub(crate) fn is_edited(state: &ModelState, digest: &str) -> bool {
    state.refreshes > 0 && state.built_from.as_deref() != Some(digest)
}

/// How a model keeps its rows: what only a rebuild can change.
pub(crate) fn shape(model: &Model) -> String {
    let config = &model.config;
    let order = config.cdc.as_ref();
    let order = order.map(|cdc| format!(" by {} in order of {}", cdc.op, cdc.seq));
    format!(
        "{:?} {:?} on {}{}",
        config.materialized,
        config.strategy,
        config.unique_key.join(", "),
        order.unwrap_or_default()
    )
}

/// Digest of what a model is built from: its query, those of the views that it reads, and how its rows are applied. Whether
/// it is live is no part of it.
///
/// FNV-1a over 64 bits: stable for ever, and a clash only leaves one edited batch table as it was.
pub(crate) fn digest(project: &Project, model: &Model) -> String {
    let config = &model.config;
    let how = format!(
        "{:?}|{:?}|{:?}|{:?}|{:?}",
        config.materialized,
        config.strategy,
        config.unique_key,
        config.filter,
        config.on_schema_change
    );
    // A view that cannot be read fails the build itself.
    let views = Reads::of(project, model.reads.iter().cloned()).unwrap_or_default();
    let views = views.views.into_iter();
    let views: String = views
        .map(|(name, text)| format!("\0{name}\0{}", text.trim()))
        .collect();
    let text = model.sql.trim().bytes().chain([0]);
    let text = text.chain(how.bytes()).chain(views.bytes());
    format!("{:016x}", hash(text))
}

/// FNV-1a over 64 bits.
pub(crate) fn hash(text: impl Iterator<Item = u8>) -> u64 {
    text.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
