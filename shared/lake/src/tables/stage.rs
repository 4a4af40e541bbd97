//! Staging a change: take in the rows, find what they replace, write files, make the snapshot.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{OnSchemaChange, SEQUENCE, TableName, items::Snapshot};
use futures::TryStreamExt;
use iceberg::spec::Operation;
use ports::{
    Error, Kind, Result,
    state::Item,
    tables::{Apply, Change, Rows, Staged, damaged},
};
use roaring::RoaringTreemap;

use super::{
    Lake,
    columns::{self, Alignment, Incoming, ORIGINS},
    commit::{Edit, Place, commit},
    compact::to_fold,
    draft::Draft,
    events,
    intake::{Intake, Keyed, Taken, by_file},
    keymap::KeyMap,
    names::Names,
    pointer::Pointer,
    probe::{Column, Sought, Wanted, probe},
    prune::Ranges,
    rank::Order,
    replace, rewrite,
    shape::{key_columns, revives},
    table::Table,
    verdict::{Finds, Positions},
    winners::Events,
    write::{NewFile, Target, Writer},
};

/// A table as a change finds it: its catalog pointer, and its rows.
pub(super) type Opened = (Pointer, Option<Arc<Table>>);

/// How a table is changed.
pub(super) struct Plan<'a> {
    /// Key columns; none when keys do not matter.
    pub key: &'a [String],
    /// The rows replace all others.
    pub whole: bool,
    /// What to do about other columns.
    pub policy: OnSchemaChange,
}

/// A change on its way, once its columns are known.
pub(super) struct Stage<'a> {
    pub lake: &'a Lake,
    pub table: &'a TableName,
    pub base: Option<Arc<Table>>,
    pub draft: Draft,
    /// Positions of the key columns.
    pub key: Vec<usize>,
    pointer: Pointer,
    names: Arc<Names>,
    whole: bool,
    /// Whether the columns are not the base's.
    evolved: bool,
    /// Whether an added column has the name of one that files of old may still hold.
    revived: bool,
}

/// What a change does to its table.
pub(super) struct Sealing {
    /// Files of rows that are added.
    pub written: Vec<NewFile>,
    /// Writes the others.
    pub writer: Writer,
    /// Rows of them to be deleted again, numbered across all files.
    pub unstored: RoaringTreemap,
    /// Rows of the base that go; all do when the change is whole.
    pub deleted: Positions,
    /// Rows added.
    pub added: u64,
    /// Highest `_seq` among them.
    pub sequence_max: Option<u64>,
    /// For the summary.
    pub properties: BTreeMap<String, String>,
}

/// What a change does to the files of its base.
#[derive(Default)]
struct Effect {
    /// Rows that go.
    rows: u64,
    /// The same by file.
    deleted: Positions,
    /// Files that go.
    removed: BTreeSet<usize>,
    /// Files among them whose live rows are written anew.
    folded: BTreeSet<usize>,
}

/// Stages a change.
pub(super) async fn stage(lake: &Lake, change: Change) -> Result<Staged> {
    let (key, unique) = match &change.apply {
        Apply::Events(apply) => {
            let apply = apply.clone();
            return events::stage(lake, &apply, change).await;
        }
        Apply::Append | Apply::ReplaceAll => (&[][..], false),
        Apply::Overwrite { key } => (key.as_slice(), !key.is_empty()),
        Apply::Replace { key, keys } => {
            let (key, keys) = (key.clone(), keys.clone());
            return replace::stage(lake, &key, &keys, change).await;
        }
        Apply::Merge { key } => (key.as_slice(), true),
        Apply::DeleteInsert { key } if key.is_empty() => {
            return Err(Error::new(Kind::Invalid, "find the key of", &change.table)
                .because("delete+insert needs a unique_key"));
        }
        Apply::DeleteInsert { key } => (key.as_slice(), false),
    };
    let anew = matches!(change.apply, Apply::Overwrite { .. });
    let whole = anew || matches!(change.apply, Apply::ReplaceAll);
    let (base, pointers) = (change.base.as_ref(), &change.pointers);
    let opened = open(lake, &change.table, base, pointers, anew).await?;
    let plan = Plan {
        key,
        whole,
        // Rows that replace all others bring their own columns.
        policy: match change.apply {
            Apply::Overwrite { .. } => OnSchemaChange::SyncAllColumns,
            _ => change.on_schema_change,
        },
    };
    let incoming = columns::incoming(&change.table, &change.rows.schema)?;
    let stage = Stage::new(lake, &change.table, opened, &plan, &incoming)?;
    let probed = stage.rows() > 0;
    // Rows of one key may all stay: then keys matter only where there are rows to be replaced.
    let keyed = !stage.key.is_empty() && (unique || probed);
    let keyed = keyed.then(|| stage.keyed(unique, probed));
    let taken = stage
        .take_in(change.rows, change.restamp_from, keyed, None)
        .await?;
    if let Some(unchanged) = stage.unchanged().filter(|_| taken.rows == 0) {
        return Ok(unchanged);
    }
    let added = taken.rows - taken.superseded.len();
    let deleted = match taken.keyed.and_then(Keyed::sought) {
        Some(sought) => stage.probe(&sought, None).await?,
        None => Finds::new(),
    };
    let (writer, unstored) = taken.rest.write(taken.superseded, stage.target()).await?;
    let sealing = Sealing {
        written: Vec::new(),
        writer,
        unstored,
        deleted: deleted
            .into_iter()
            .map(|(at, found)| (at, found.rows))
            .collect(),
        added,
        sequence_max: taken.sequence_max,
        properties: change.properties,
    };
    stage.seal(sealing).await
}

/// Opens a table for a change; `Conflict` unless it is at the snapshot the change is based on.
///
/// A change from nothing (`anew`) needs no row or column of the table: where its metadata is lost or damaged, it begins a new
/// one in its place.
pub(super) async fn open(
    lake: &Lake,
    table: &TableName,
    snapshot: Option<&Snapshot>,
    pointers: &BTreeMap<TableName, Option<Item>>,
    anew: bool,
) -> Result<Opened> {
    let base = async {
        let Some(snapshot) = snapshot else {
            return Ok(None);
        };
        match lake.table(table, snapshot).await {
            Ok(base) => Ok(Some(base)),
            Err(error) if anew && error.kind == Kind::Corrupt => {
                tracing::warn!(%table, error = error.chain(), "a new table takes its place");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    };
    let pointer = async {
        match pointers.get(table) {
            Some(item) => Pointer::of(&lake.root, item.as_ref()),
            None => Pointer::read(&lake.state, &lake.root, table).await,
        }
    };
    let (pointer, base) = futures::try_join!(pointer, base)?;
    pointer.expect(table, snapshot)?;
    Ok((pointer, base))
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        lake: &'a Lake,
        table: &'a TableName,
        (pointer, base): Opened,
        plan: &Plan<'_>,
        incoming: &[Incoming],
    ) -> Result<Self> {
        let names = Arc::new(Names::new(table, lake.chance.clone(), lake.clock.clone()));
        let (mut evolved, mut revived) = (false, false);
        let draft = match base.as_deref() {
            None => Draft::create(table, &lake.root, &names, columns::create(incoming))?,
            Some(base) => {
                let last = base.metadata.last_column_id();
                let next = columns::evolve(table, &base.columns, incoming, plan.policy, last)?;
                evolved = next.changed;
                revived = revives(base, &next.fields, last);
                Draft::change(table, &lake.root, base, next.changed.then_some(next.fields))?
            }
        };
        let key = key_columns(table, plan.key, &draft.columns, incoming)?;
        Ok(Self {
            lake,
            table,
            base,
            draft,
            key,
            pointer,
            names,
            whole: plan.whole,
            evolved,
            revived,
        })
    }

    /// Adds the column of origins, unless it is there.
    pub(super) fn keep_origins(&mut self) -> Result<()> {
        if self.draft.columns.position(ORIGINS).is_some() {
            return Ok(());
        }
        let last = self.draft.metadata.last_column_id();
        let fields = columns::with_origins(&self.draft.columns, last);
        self.revived |= (self.base.as_ref()).is_some_and(|base| revives(base, &fields, last));
        self.draft = self.draft.with(self.table, fields)?;
        self.evolved = true;
        Ok(())
    }

    pub(super) fn target(&self) -> Target {
        Target {
            objects: self.lake.objects.clone(),
            names: self.names.clone(),
            columns: self.draft.columns.clone(),
            key: self.key.clone(),
            file_bytes: self.lake.limits.file_bytes,
        }
    }

    /// Rows of the base that may stay.
    pub(super) fn rows(&self) -> u64 {
        let base = self.base.as_ref().filter(|_| !self.whole);
        base.map_or(0, |base| base.rows())
    }

    /// The empty map of the change's keys; `unique` when one row of each stays, `probed` when a table is searched for
    /// them.
    pub(super) fn keyed(&self, unique: bool, probed: bool) -> Keyed {
        Keyed {
            columns: self.key.clone(),
            unique,
            map: KeyMap::new(probed),
            ranges: probed.then(|| Ranges::new(self.key.len())),
        }
    }

    /// Takes in all rows.
    pub(super) async fn take_in(
        &self,
        rows: Rows,
        restamp: Option<u64>,
        keyed: Option<Keyed>,
        events: Option<Events>,
    ) -> Result<Taken> {
        let columns = &self.draft.columns;
        let alignment = Alignment::new(&rows.schema, columns);
        let sequence =
            columns::position(&rows.schema, SEQUENCE).and_then(|_| columns.position(SEQUENCE));
        let (table, limits) = (self.table.clone(), self.lake.limits);
        let mut intake = Intake::new(
            table,
            alignment,
            sequence,
            restamp,
            keyed,
            limits,
            self.target(),
        )
        .told_by(&rows.schema);
        if let Some(events) = events {
            intake = intake.of_events(events);
        }
        let mut stream = rows.stream;
        while let Some(batch) = stream.try_next().await? {
            intake.add(&batch).await?;
        }
        Ok(intake.finish())
    }

    /// Rows of the base that have one of the keys, in the order given when there is one.
    pub(super) async fn probe(
        &self,
        sought: &Sought,
        order: Option<(Order, usize)>,
    ) -> Result<Finds> {
        let Some(base) = self.base.as_ref().filter(|_| self.rows() > 0) else {
            return Ok(Finds::new());
        };
        let wanted = Wanted {
            sought: sought.clone(),
            columns: self.key.iter().map(|at| self.of_base(base, *at)).collect(),
            order: order.map(|(order, at)| (order, self.of_base(base, at))),
        };
        let (objects, footers) = (&self.lake.objects, &self.lake.footers);
        let found = probe(objects, footers, base, &Arc::new(wanted)).await;
        found.map_err(|error| damaged(error, self.table))
    }

    /// A column of the change as the base's files have it.
    pub(super) fn of_base(&self, base: &Table, at: usize) -> Column {
        let field = &self.draft.columns.iceberg.as_struct().fields()[at];
        let kind = self.draft.columns.read.field(at).data_type().clone();
        // By id: rows of old read NULL in a column that has come since.
        let old = base.columns.iceberg.field_by_id(field.id);
        (old.map(|old| old.name.clone()), kind)
    }

    /// The answer when no row comes or goes; none when the table changes even so.
    pub(super) fn unchanged(&self) -> Option<Staged> {
        let base = self.base.as_ref()?;
        let empties = self.whole && base.rows() > 0;
        (!self.evolved && !empties).then(|| Staged {
            snapshot: base.snapshot.clone(),
            changed: false,
            added: 0,
            deleted: 0,
            rows: base.rows(),
            sequence_max: None,
            schema: base.columns.shown.clone(),
            writes: Vec::new(),
            tombstones: None,
            refused: Vec::new(),
            late: Vec::new(),
            truncated: None,
            unavailable: 0,
        })
    }

    /// Writes the files and the snapshot.
    pub(super) async fn seal(self, sealing: Sealing) -> Result<Staged> {
        let added = sealing.added;
        let effect = self.effect(sealing.deleted);
        let mut files = sealing.written;
        files.extend(self.fold(&effect, sealing.writer).await?);
        self.remember(&files);
        let operation = operation(added, &effect);
        let deletes = by_file(&files, &sealing.unstored);
        let edit = Edit {
            added: files.into_iter().zip(deletes).collect(),
            removed: effect.removed,
            deleted: effect.deleted,
            operation,
            properties: sealing.properties,
            draft: self.draft,
            base: self.base,
            previous: self.pointer.metadata().map(str::to_owned),
        };
        let (lake, pointer) = (self.lake, self.pointer);
        let place = Place {
            objects: &lake.objects,
            root: &lake.root,
            names: &self.names,
            table: self.table,
            now: lake.clock.now(),
            limits: &lake.limits,
        };
        let table = Arc::new(commit(&place, edit).await?);
        lake.tables.put(table.snapshot.clone(), table.clone());
        Ok(Staged {
            snapshot: table.snapshot.clone(),
            changed: true,
            added,
            deleted: effect.rows,
            rows: table.rows(),
            sequence_max: sealing.sequence_max.filter(|_| added > 0),
            schema: table.columns.shown.clone(),
            writes: vec![pointer.moved(&lake.root, self.table, &table.snapshot.metadata)],
            tombstones: None,
            refused: Vec::new(),
            late: Vec::new(),
            truncated: None,
            unavailable: 0,
        })
    }

    /// What goes of the base, and what is written anew.
    fn effect(&self, mut deleted: Positions) -> Effect {
        let Some(base) = &self.base else {
            return Effect::default();
        };
        if self.whole {
            let removed = (0..base.files.len()).collect();
            return Effect {
                rows: base.rows(),
                removed,
                ..Effect::default()
            };
        }
        let rows = deleted.values().map(RoaringTreemap::len).sum();
        let folded = to_fold(base, &deleted, self.revived, &self.lake.limits);
        let emptied = (0..base.files.len()).filter(|at| {
            let more = deleted.get(at).map_or(0, RoaringTreemap::len);
            base.files[*at].live_rows() == more
        });
        let removed: BTreeSet<usize> = emptied.chain(folded.iter().copied()).collect();
        deleted.retain(|at, _| folded.contains(at) || !removed.contains(at));
        Effect {
            rows,
            deleted,
            removed,
            folded,
        }
    }

    /// Writes anew what is folded, behind the rows of the change; all new files.
    async fn fold(&self, effect: &Effect, writer: Writer) -> Result<Vec<NewFile>> {
        for at in &effect.folded {
            let Some(base) = &self.base else { break };
            let file = &base.files[*at];
            let file = effect
                .deleted
                .get(at)
                .map_or_else(|| file.clone(), |rows| file.without(rows));
            let (objects, footers) = (&self.lake.objects, &self.lake.footers);
            let columns = &self.draft.columns;
            let copied = rewrite::copy(objects, footers, &file, columns, &writer).await;
            if !copied.map_err(|error| damaged(error, self.table))? {
                break;
            }
        }
        writer.finish().await
    }

    pub(super) fn remember(&self, files: &[NewFile]) {
        for file in files {
            self.lake
                .footers
                .put(file.path.clone(), file.footer.clone());
        }
    }
}

fn operation(added: u64, effect: &Effect) -> Operation {
    match (added, effect.rows) {
        (0, 0) => Operation::Replace,
        (0, _) => Operation::Delete,
        (_, 0) if effect.removed.is_empty() => Operation::Append,
        (_, _) => Operation::Overwrite,
    }
}
