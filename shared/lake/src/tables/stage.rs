//! Staging a change: take in the rows, find what they replace, write files, make the snapshot.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{OnSchemaChange, SEQUENCE, TableName};
use futures::TryStreamExt;
use iceberg::spec::Operation;
use ports::{
    Error, Kind, Result,
    tables::{Apply, Change, Staged},
};
use roaring::RoaringTreemap;

use super::{
    Lake,
    columns::{self, Alignment, Incoming},
    commit::{Edit, Place, commit},
    compact::to_fold,
    draft::Draft,
    intake::{Intake, Keyed, Rest, Taken, by_file},
    keymap::KeyMap,
    keys::is_key,
    names::Names,
    pointer::Pointer,
    probe::{Wanted, probe},
    prune::Ranges,
    rewrite,
    table::Table,
    write::{NewFile, Target, Writer},
};

/// A change on its way, once its columns are known.
struct Stage<'a> {
    lake: &'a Lake,
    table: &'a TableName,
    apply: &'a Apply,
    base: Option<Arc<Table>>,
    names: Arc<Names>,
    draft: Draft,
    /// Whether the columns are not the base's.
    evolved: bool,
    /// Whether an added column has the name of one that files of old may still hold.
    revived: bool,
    /// Positions of the key columns.
    key: Vec<usize>,
}

/// What a change does to the files of its base.
#[derive(Default)]
struct Effect {
    /// Rows that go.
    rows: u64,
    /// The same by file.
    deleted: BTreeMap<usize, RoaringTreemap>,
    /// Files that go.
    removed: BTreeSet<usize>,
    /// Files among them whose live rows are written anew.
    folded: BTreeSet<usize>,
}

/// Stages a change.
pub(super) async fn stage(lake: &Lake, change: Change) -> Result<Staged> {
    let Change {
        table,
        base,
        apply,
        on_schema_change,
        rows,
        restamp_from,
        properties,
    } = change;
    let (pointer, base) =
        futures::try_join!(Pointer::read(&lake.state, &lake.root, &table), async {
            match &base {
                Some(snapshot) => lake.table(&table, snapshot).await.map(Some),
                None => Ok(None),
            }
        })?;
    pointer.expect(&table, base.as_ref().map(|base| &base.snapshot))?;
    let incoming = columns::incoming(&table, &rows.schema)?;
    let stage = Stage::new(lake, &table, &apply, base, on_schema_change, &incoming)?;

    let alignment = Alignment::new(&rows.schema, &stage.draft.columns);
    let sequence = columns::position(&rows.schema, SEQUENCE)
        .and_then(|_| stage.draft.columns.position(SEQUENCE));
    let (keyed, target) = (stage.keyed(), stage.target());
    let mut intake = Intake::new(
        table.clone(),
        alignment,
        sequence,
        restamp_from,
        keyed,
        lake.limits,
        target,
    );
    let mut stream = rows.stream;
    while let Some(batch) = stream.try_next().await? {
        intake.add(&batch).await?;
    }
    let taken = intake.finish()?;
    if let Some(unchanged) = stage.unchanged(&taken) {
        return Ok(unchanged);
    }
    stage.write(taken, &pointer, properties).await
}

impl<'a> Stage<'a> {
    fn new(
        lake: &'a Lake,
        table: &'a TableName,
        apply: &'a Apply,
        base: Option<Arc<Table>>,
        policy: OnSchemaChange,
        incoming: &[Incoming],
    ) -> Result<Self> {
        let names = Arc::new(Names::new(table, lake.chance.clone(), lake.clock.clone()));
        let (mut evolved, mut revived) = (false, false);
        let draft = match base.as_deref() {
            None => Draft::create(table, &lake.root, &names, columns::create(incoming))?,
            Some(base) => {
                // Rows that replace all others bring their own columns.
                let whole = matches!(apply, Apply::Overwrite);
                let policy = if whole {
                    OnSchemaChange::SyncAllColumns
                } else {
                    policy
                };
                let last = base.metadata.last_column_id();
                let next = columns::evolve(table, &base.columns, incoming, policy, last)?;
                evolved = next.changed;
                revived = revives(base, &next.fields, last);
                Draft::change(table, &lake.root, base, next.changed.then_some(next.fields))?
            }
        };
        let key = key_columns(table, apply, &draft.columns, incoming)?;
        Ok(Self {
            lake,
            table,
            apply,
            base,
            names,
            draft,
            evolved,
            revived,
            key,
        })
    }

    fn target(&self) -> Target {
        Target {
            objects: self.lake.objects.clone(),
            names: self.names.clone(),
            columns: self.draft.columns.clone(),
            key: self.key.clone(),
            file_bytes: self.lake.limits.file_bytes,
        }
    }

    /// The empty map of the change's keys; none when keys do not matter.
    fn keyed(&self) -> Option<Keyed> {
        let probed = self.base.as_ref().is_some_and(|base| base.rows() > 0);
        let unique = matches!(self.apply, Apply::Merge { .. });
        // Rows of one key may all stay: then keys matter only where there are rows to be replaced.
        (!self.key.is_empty() && (unique || probed)).then(|| Keyed {
            columns: self.key.clone(),
            unique,
            map: KeyMap::new(probed),
            ranges: probed.then(|| Ranges::new(self.key.len())),
        })
    }

    /// The answer when the table stays as it is.
    fn unchanged(&self, taken: &Taken) -> Option<Staged> {
        let base = self.base.as_ref()?;
        let empties = matches!(self.apply, Apply::Overwrite) && base.rows() > 0;
        (taken.rows == 0 && !self.evolved && !empties).then(|| Staged {
            snapshot: base.snapshot.clone(),
            changed: false,
            added: 0,
            deleted: 0,
            rows: base.rows(),
            sequence_max: None,
            schema: base.columns.read.clone(),
            writes: Vec::new(),
        })
    }

    /// Writes the files and the snapshot.
    async fn write(
        self,
        mut taken: Taken,
        pointer: &Pointer,
        properties: BTreeMap<String, String>,
    ) -> Result<Staged> {
        let keyed = taken.keyed.take();
        let added = taken.rows - taken.superseded;
        let (writer, superseded) = match taken.rest {
            Rest::Written(writer, superseded) => (writer, superseded),
            Rest::Held(batches) => {
                let writer = Writer::new(self.target());
                for batch in batches {
                    writer.write(batch).await;
                }
                (writer, RoaringTreemap::new())
            }
        };
        let effect = self.effect(keyed).await?;
        let files = self.fold(&effect, writer).await?;
        self.remember(&files);
        let operation = self.operation(added, &effect);
        let deletes = by_file(&files, &superseded);
        let edit = Edit {
            added: files.into_iter().zip(deletes).collect(),
            removed: effect.removed,
            deleted: effect.deleted,
            operation,
            properties,
            draft: self.draft,
            base: self.base,
        };
        let place = Place {
            objects: &self.lake.objects,
            root: &self.lake.root,
            names: &self.names,
            table: self.table,
            now: self.lake.clock.now(),
            limits: &self.lake.limits,
        };
        let table = Arc::new(commit(&place, edit).await?);
        self.lake.tables.put(table.snapshot.clone(), table.clone());
        Ok(Staged {
            snapshot: table.snapshot.clone(),
            changed: true,
            added,
            deleted: effect.rows,
            rows: table.rows(),
            sequence_max: taken.sequence_max.filter(|_| added > 0),
            schema: table.columns.read.clone(),
            writes: vec![pointer.moved(&self.lake.root, self.table, &table.snapshot.metadata)],
        })
    }

    /// What goes of the base, and what is written anew.
    async fn effect(&self, keyed: Option<Keyed>) -> Result<Effect> {
        let Some(base) = &self.base else {
            return Ok(Effect::default());
        };
        if matches!(self.apply, Apply::Overwrite) {
            let removed = (0..base.files.len()).collect();
            return Ok(Effect {
                rows: base.rows(),
                removed,
                ..Effect::default()
            });
        }
        let mut deleted = match keyed {
            Some(keyed) => self.probe(base, keyed).await?,
            None => BTreeMap::new(),
        };
        let rows = deleted.values().map(RoaringTreemap::len).sum();
        let folded = to_fold(base, &deleted, self.revived, &self.lake.limits);
        let emptied = (0..base.files.len()).filter(|at| {
            let more = deleted.get(at).map_or(0, RoaringTreemap::len);
            base.files[*at].live_rows() == more
        });
        let removed: BTreeSet<usize> = emptied.chain(folded.iter().copied()).collect();
        deleted.retain(|at, _| folded.contains(at) || !removed.contains(at));
        Ok(Effect {
            rows,
            deleted,
            removed,
            folded,
        })
    }

    async fn probe(&self, base: &Table, keyed: Keyed) -> Result<BTreeMap<usize, RoaringTreemap>> {
        let Some(mut ranges) = keyed.ranges.filter(|_| keyed.map.len() > 0) else {
            return Ok(BTreeMap::new());
        };
        ranges.finish();
        let columns = self.key.iter().map(|at| {
            let field = &self.draft.columns.iceberg.as_struct().fields()[*at];
            let kind = self.draft.columns.read.field(*at).data_type().clone();
            // By id: rows of old read NULL in a column that has come since.
            let old = base.columns.iceberg.field_by_id(field.id);
            (old.map(|old| old.name.clone()), kind)
        });
        let wanted = Wanted {
            columns: columns.collect(),
            set: keyed.map.into_set(),
            ranges,
        };
        probe(
            &self.lake.objects,
            &self.lake.footers,
            base,
            &Arc::new(wanted),
        )
        .await
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
            if !rewrite::copy(objects, footers, &file, columns, &writer).await? {
                break;
            }
        }
        writer.finish().await
    }

    fn remember(&self, files: &[NewFile]) {
        for file in files {
            self.lake
                .footers
                .put(file.path.clone(), file.footer.clone());
        }
    }

    fn operation(&self, added: u64, effect: &Effect) -> Operation {
        match (added, effect.rows) {
            (0, 0) => Operation::Replace,
            (0, _) => Operation::Delete,
            (_, 0) if effect.removed.is_empty() => Operation::Append,
            (_, _) => Operation::Overwrite,
        }
    }
}

/// Positions of the key columns, each of which the rows must have.
fn key_columns(
    table: &TableName,
    apply: &Apply,
    columns: &columns::Columns,
    incoming: &[Incoming],
) -> Result<Vec<usize>> {
    let invalid = |why: String| Error::new(Kind::Invalid, "find the key of", table).because(why);
    let key = match apply {
        Apply::Append | Apply::Overwrite => return Ok(Vec::new()),
        Apply::Merge { key } => key,
        Apply::DeleteInsert { key } if key.is_empty() => {
            return Err(invalid("delete+insert needs a unique_key".into()));
        }
        Apply::DeleteInsert { key } => key,
    };
    key.iter()
        .map(|name| {
            let delivered = incoming
                .iter()
                .any(|column| column.name.eq_ignore_ascii_case(name));
            let at = columns
                .position(name)
                .filter(|_| delivered)
                .ok_or_else(|| {
                    let have: Vec<_> = incoming.iter().map(|column| column.name.as_str()).collect();
                    let have = have.join(", ");
                    invalid(format!(
                        "unique_key column `{name}` is not in the query, which yields {have}"
                    ))
                })?;
            let kind = columns.read.field(at).data_type();
            match is_key(kind) {
                true => Ok(at),
                false => Err(invalid(format!(
                    "unique_key column `{name}` is a {kind}, which has no order"
                ))),
            }
        })
        .collect()
}

/// Whether a new field has the name of a field the table once had: files of old may still hold that one's values.
fn revives(base: &Table, fields: &[iceberg::spec::NestedFieldRef], last: i32) -> bool {
    let mut new = fields.iter().filter(|field| field.id > last);
    new.any(|field| {
        let mut schemas = base.metadata.schemas_iter();
        schemas.any(|old| {
            let mut fields = old.as_struct().fields().iter();
            fields.any(|old| old.name.eq_ignore_ascii_case(&field.name))
        })
    })
}
