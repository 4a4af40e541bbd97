//! Tombstones of hard deletes: a table of its own beside the model's, one row per deleted key with the delete's sequence,
//! so that an older event that arrives late does not bring the row back. It is changed with the model, in one transaction.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, TimestampMicrosecondArray, UInt64Array},
    compute::take,
    datatypes::{DataType, TimeUnit},
};
use domain::{OnSchemaChange, TableName};
use ports::{
    Error, Kind, Result,
    tables::{Events as Apply, Staged},
};
use roaring::RoaringTreemap;

use super::{
    columns::{Incoming, batch_of, position},
    stage::{Opened, Plan, Sealing, Stage},
    verdict::Positions,
    winners::Reduced,
    write::Writer,
};

/// When a delete was applied: what a tombstone's age is told from. NULL in tombstones of before there was such a time.
pub(super) const BURIED: &str = "_buried_at";

/// The tombstones of a table on their way.
pub(super) struct Graveyard<'a> {
    /// The change of them.
    pub stage: Stage<'a>,
    /// Their columns, by position in the model's table: its key and its sequence.
    pub columns: Vec<usize>,
    /// Position of the sequence among them.
    pub sequence: usize,
}

impl<'a> Graveyard<'a> {
    /// Of a model whose sequence is column `sequence`.
    pub(super) fn new(
        of: &Stage<'a>,
        table: &'a TableName,
        opened: Opened,
        apply: &Apply,
        sequence: usize,
    ) -> Result<Self> {
        let mut columns = of.key.clone();
        if !columns.contains(&sequence) {
            columns.push(sequence);
        }
        let fields = columns.iter().map(|at| of.draft.columns.read.field(*at));
        let incoming: Vec<Incoming> = fields
            .map(|field| Incoming {
                name: field.name().clone(),
                kind: Some(field.data_type().clone()),
            })
            .collect();
        let buried = Incoming {
            name: BURIED.to_owned(),
            kind: Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
        };
        let plan = Plan {
            key: &apply.key,
            whole: apply.rebuild,
            // Tombstones of before have no time, and stay.
            policy: OnSchemaChange::AppendNewColumns,
        };
        if let Some(base) = opened.1.as_ref().filter(|_| !apply.rebuild) {
            let kept = &base.columns;
            let timed = usize::from(kept.position(BURIED).is_some());
            let same = kept.read.fields().len() == incoming.len() + timed
                && incoming.iter().all(|column| {
                    let at = kept.position(&column.name);
                    at.map(|at| kept.read.field(at).data_type()) == column.kind.as_ref()
                });
            if !same {
                return Err(Error::new(Kind::Invalid, "apply change events to", of.table).because(
                    format!(
                        "its tombstones in {table} were kept for another unique_key or cdc_seq; rebuild it in full"
                    ),
                ));
            }
        }
        let incoming: Vec<Incoming> = incoming.into_iter().chain([buried]).collect();
        let stage = Stage::new(of.lake, table, opened, &plan, &incoming)?;
        let name = of.draft.columns.read.field(sequence).name();
        let sequence = stage
            .draft
            .columns
            .position(name)
            .expect("it is one of the columns");
        Ok(Self {
            stage,
            columns,
            sequence,
        })
    }

    /// Adds tombstones of the events `buried` and removes those `cleared`; none when there is neither.
    pub(super) async fn seal(
        self,
        events: &Reduced,
        buried: &[u64],
        cleared: Positions,
        properties: BTreeMap<String, String>,
    ) -> Result<Option<(TableName, Staged)>> {
        let idle = buried.is_empty() && cleared.is_empty();
        if idle && self.stage.unchanged().is_some() {
            return Ok(None);
        }
        let writer = Writer::new(self.stage.target());
        if let Some(aside) = events.aside.as_ref().filter(|_| !buried.is_empty()) {
            let rows: UInt64Array = buried.iter().map(|row| events.aside_rows[row]).collect();
            let failed = |e| Error::new(Kind::Corrupt, "pick", "deletes").because(e);
            let to = &self.stage.draft.columns.file;
            let now = self.stage.lake.clock.now();
            let column = |name: &str| {
                if name.eq_ignore_ascii_case(BURIED) {
                    let now = TimestampMicrosecondArray::from_value(now.0, rows.len());
                    return Ok(Arc::new(now) as ArrayRef);
                }
                let at = position(&aside.schema(), name).expect("it was kept of deletes");
                take(aside.column(at), &rows, None).map_err(failed)
            };
            let columns = to.fields().iter().map(|field| column(field.name()));
            let batch = batch_of(to, columns.collect::<Result<_>>()?, rows.len())?;
            writer.write(batch).await;
        }
        let sealing = Sealing {
            written: Vec::new(),
            writer,
            unstored: RoaringTreemap::new(),
            deleted: cleared,
            added: buried.len() as u64,
            sequence_max: None,
            properties,
        };
        let table = self.stage.table.clone();
        Ok(Some((table, self.stage.seal(sealing).await?)))
    }
}
