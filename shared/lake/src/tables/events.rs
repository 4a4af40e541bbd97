//! Staging change events: reduce them to one per key, look at what the table and its tombstones hold of those keys, and
//! make the change that is left. The cost follows the batch, as a merge's does.

use arrow::{
    array::RecordBatch,
    datatypes::{DataType, Schema},
};
use domain::{DELETED, OnSchemaChange, SEQUENCE, TableName};
use ports::{
    Error, Kind, Result,
    tables::{Change, Deletes, Events as Apply, Staged, Tombstones},
};

use super::{
    Lake,
    columns::{self, Columns, Incoming, ORIGINS},
    fill, flags,
    gaps::Gaps,
    intake::{Keyed, Taken},
    mend,
    origins::{self, Origin},
    probe::Sought,
    rank::{Order, Rank},
    shape::position,
    stage::{Plan, Sealing, Stage, open},
    table::Table,
    tombstones::Graveyard,
    truncate, types,
    verdict::{Finds, Floors, Positions, Verdict, judge},
    winners::{Events, Places, Reduced},
};

/// Stages a change of events.
pub(super) async fn stage(lake: &Lake, apply: &Apply, change: Change) -> Result<Staged> {
    let table = &change.table;
    let (pointers, anew) = (&change.pointers, apply.rebuild);
    let opened = open(lake, table, change.base.as_ref(), pointers, anew).await?;
    let incoming = incoming(apply, table, &change.rows.schema, opened.1.as_deref())?;
    let plan = Plan {
        key: &apply.key,
        whole: apply.rebuild,
        // Rows that replace all others bring their own columns.
        policy: match apply.rebuild {
            true => OnSchemaChange::SyncAllColumns,
            false => change.on_schema_change,
        },
    };
    let stage = Stage::new(lake, table, opened, &plan, &incoming)?;
    let columns = &stage.draft.columns;
    let sequence = position(table, "cdc_seq", &apply.sequence, columns, &incoming)?;
    let kind = columns.read.field(sequence).data_type();
    let order = Order::new(table, &apply.sequence, kind)?;
    let graveyard = match &apply.deletes {
        Deletes::Hard {
            tombstones, base, ..
        } => {
            let opened = open(lake, tombstones, base.as_ref(), pointers, anew).await?;
            Some(Graveyard::new(&stage, tombstones, opened, apply, sequence)?)
        }
        Deletes::Soft => None,
    };
    let flag = match apply.deletes {
        Deletes::Hard { .. } => None,
        Deletes::Soft => Some(position(
            table,
            "soft deletes'",
            DELETED,
            columns,
            &incoming,
        )?),
    };
    let places = Places {
        op: op(apply, table, &change.rows.schema)?,
        sequence,
        flag,
        aside: match &graveyard {
            Some(graveyard) => graveyard.columns.clone(),
            None => kept_of_soft(columns, apply, sequence),
        },
    };
    let op = columns.position(&apply.op);
    let always: Vec<usize> = stage
        .key
        .iter()
        .copied()
        .chain([sequence])
        .chain(op)
        .collect();
    let gaps = Gaps::new(
        apply.unavailable.clone(),
        &columns.read,
        &always,
        flag.is_some(),
        columns.position(ORIGINS).is_some(),
    );
    let held = lake.limits.held_bytes;
    let events = Events::new(table.clone(), places, order, gaps, held);
    let buried = graveyard.as_ref().map_or(0, |yard| yard.stage.rows());
    let keyed = stage.keyed(true, stage.rows() + buried > 0);
    let taken = stage
        .take_in(change.rows, change.restamp_from, Some(keyed), Some(events))
        .await?;
    let known = Known::read(apply, table)?;
    settle(stage, graveyard, taken, change.properties, known).await
}

/// What is known of rows that are gone and have no tombstone. A rebuild knows nothing.
#[derive(Debug, Default)]
struct Known {
    collected: Option<Rank>,
    truncated: Option<Rank>,
}

impl Known {
    fn read(apply: &Apply, table: &TableName) -> Result<Self> {
        if apply.rebuild {
            return Ok(Self::default());
        }
        let collected = match &apply.deletes {
            Deletes::Hard { collected, .. } => collected.as_deref(),
            Deletes::Soft => None,
        };
        let read = |text: Option<&str>| {
            let rank = text.map(|text| {
                let corrupt = Error::new(Kind::Corrupt, "read what is gone of", table);
                let why = format!("`{text}` is no sequence");
                Rank::from_text(text).ok_or_else(|| corrupt.because(why))
            });
            rank.transpose()
        };
        Ok(Self {
            collected: read(collected)?,
            truncated: read(apply.truncated.as_deref())?,
        })
    }

    /// Takes note of a truncate; whether it is newer than all before it.
    fn truncate(&mut self, events: &Reduced) -> Result<bool> {
        let Some((_, new)) = events.truncates.last() else {
            return Ok(false);
        };
        if let Some(old) = &self.truncated {
            events.order.alike(old, new)?;
            if new <= old {
                return Ok(false);
            }
        }
        self.truncated = Some(new.clone());
        Ok(true)
    }
}

/// Decides about the events that were taken in, and writes what is left of them.
async fn settle(
    mut stage: Stage<'_>,
    graveyard: Option<Graveyard<'_>>,
    taken: Taken,
    properties: std::collections::BTreeMap<String, String>,
    mut known: Known,
) -> Result<Staged> {
    let Taken {
        rows,
        superseded,
        sequence_max,
        keyed,
        events,
        rest,
    } = taken;
    let events = events.expect("intake gives back the events it was given");
    let mut events = events.finish()?;
    // Of a table that has rows the column is the right one, and the events are to blame.
    let none = stage.rows() == 0 && events.winners.is_empty() && events.truncates.is_empty();
    if let Some(shown) = events.unread.as_ref().filter(|_| none) {
        return Err(events.order.wrong(shown));
    }
    let sought = keyed.and_then(Keyed::sought);
    let before = known.truncated.clone();
    let truncates = known.truncate(&events)?;
    let last_truncate = events.truncates.last().and_then(|(row, _)| *row);
    events.truncates.extend(before.map(|rank| (None, rank)));
    let floor = known.truncated.as_ref().filter(|_| truncates);
    let (stored, graves, emptied, unburied) = futures::try_join!(
        find(&stage, sought.as_ref(), &events, events.places.sequence),
        async {
            match &graveyard {
                Some(yard) => find(&yard.stage, sought.as_ref(), &events, yard.sequence).await,
                None => Ok(Finds::new()),
            }
        },
        async {
            match floor {
                Some(floor) => {
                    truncate::older(&stage, &events.order, events.places.sequence, floor).await
                }
                None => Ok(Positions::new()),
            }
        },
        async {
            match (floor, &graveyard) {
                (Some(floor), Some(yard)) => {
                    truncate::older(&yard.stage, &events.order, yard.sequence, floor).await
                }
                (Some(_), None) | (None, _) => Ok(Positions::new()),
            }
        }
    )?;
    let standing = truncate::standing(&stored, &emptied, &events);
    let mourned = truncate::standing(&graves, &unburied, &events);
    let floors = Floors {
        collected: known.collected.as_ref(),
        truncated: known.truncated.as_ref(),
    };
    let mut verdict = judge(&events, &standing, &mourned, graveyard.is_none(), floors)?;
    for (at, rows) in emptied {
        *verdict.gone.entry(at).or_default() |= rows;
    }
    for (at, rows) in unburied {
        *verdict.cleared.entry(at).or_default() |= rows;
    }
    let sequence_at = stage.draft.columns.position(SEQUENCE);
    let late = mend::late(&events, &standing, &verdict);
    let mut rows_of = events
        .gaps
        .bases(&events, (&stored, &graves), &verdict.unstored);
    for (at, rows) in mend::rows(&late) {
        *rows_of.entry(at).or_default() |= rows;
    }
    for (at, rows) in &verdict.flagged {
        rows_of.entry(*at).or_default().extend(rows.keys());
    }
    let origins = origins::of_rows(&stage, &events.gaps, rows_of).await?;
    verdict.unflag(|row, event| {
        let lacks = |origin: &Origin| {
            let since = origin.since.as_ref();
            !origin.known || events.truncated_by(Some(event), since).is_some()
        };
        let origins = origins.get(&row);
        origins.is_some_and(|origins| origins.iter().any(|(_, origin)| lacks(origin)))
    });
    let finds = (&stored, &graves);
    let known_of = (&origins, floors.collected);
    let gaps = &events.gaps;
    let mut filling = gaps.fill(&events, finds, &verdict.unstored, known_of);
    // Where it is what orders the events, a row has its newest event's whoever mends it.
    filling.place = sequence_at.filter(|at| *at != events.places.sequence);
    let to = (&mut verdict, &mut filling);
    mend::mend(&events, &late, &origins, to);
    let before = filling.rows.len();
    if let (Some(floor), Some(event)) = (floor, last_truncate) {
        let to = (&mut verdict, &mut filling);
        mend::truncate(&stage, gaps, (event, floor), to).await?;
    }
    let again = (filling.rows.len() - before) as u64;
    if filling.rows.iter().any(|row| !row.origins.is_empty()) {
        stage.keep_origins()?;
    }
    let flagged = verdict.flagged();
    let Verdict {
        unstored,
        gone,
        cleared,
        buried,
        flagged: rewritten,
        late,
    } = verdict;
    let added = rows - superseded.len() - unstored.len() + flagged + again;
    let (of_table, of_tombstones) = (properties.clone(), properties);
    let seal_table = async {
        if added == 0
            && gone.is_empty()
            && let Some(unchanged) = stage.unchanged()
        {
            return Ok((unchanged, fill::only(&stage, rest, &late).await?));
        }
        let without = superseded | unstored;
        let names = events.gaps.names;
        let written = fill::write(&stage, &filling, names, rest, without, &late).await?;
        flags::write(&stage, &events, &rewritten, &written.writer).await?;
        let sealing = Sealing {
            written: written.files,
            writer: written.writer,
            unstored: written.unstored,
            deleted: gone,
            added,
            sequence_max,
            properties: of_table,
        };
        Ok((stage.seal(sealing).await?, written.late))
    };
    let seal_tombstones = async {
        match graveyard {
            Some(yard) => yard.seal(&events, &buried, cleared, of_tombstones).await,
            None => Ok(None),
        }
    };
    let ((mut staged, late), tombstones) = futures::try_join!(seal_table, seal_tombstones)?;
    if let Some((table, tombstones)) = tombstones {
        staged.writes.extend(tombstones.writes);
        staged.tombstones = Some(Tombstones {
            table,
            snapshot: tombstones.snapshot,
            rows: tombstones.rows,
        });
    }
    let truncated = known.truncated.filter(|_| truncates);
    staged.truncated = truncated.map(|rank| rank.to_text());
    staged.refused = events.refused;
    staged.late = late.into_iter().map(shown).collect();
    staged.unavailable = filling.unknown;
    Ok(staged)
}

/// A batch of a table as readers are shown it.
fn shown(mut batch: RecordBatch) -> RecordBatch {
    if let Some(own) = columns::position(&batch.schema(), ORIGINS) {
        batch.remove_column(own);
    }
    batch
}

/// What a table holds of the keys of events.
async fn find(
    stage: &Stage<'_>,
    sought: Option<&Sought>,
    events: &Reduced,
    sequence: usize,
) -> Result<Finds> {
    match sought {
        Some(sought) => {
            stage
                .probe(sought, Some((events.order.clone(), sequence)))
                .await
        }
        None => Ok(Finds::new()),
    }
}

/// What is delivered, with the flag of soft deletes that is added to it.
fn incoming(
    apply: &Apply,
    table: &TableName,
    schema: &Schema,
    base: Option<&Table>,
) -> Result<Vec<Incoming>> {
    let mut incoming = columns::incoming(table, schema)?;
    let own = base.filter(|base| !apply.rebuild && base.columns.position(ORIGINS).is_some());
    let own = own.map(|_| Incoming::origins());
    let invalid =
        |why: String| Err(Error::new(Kind::Invalid, "apply change events to", table).because(why));
    let delivered = columns::position(schema, DELETED).is_some();
    let base = base.filter(|base| !apply.rebuild && base.rows() > 0);
    let flagged = base.map(|base| base.columns.position(DELETED).is_some());
    match (&apply.deletes, flagged) {
        (Deletes::Soft, _) if delivered => invalid(format!(
            "the query yields `{DELETED}`, which cdc_deletes=soft sets; leave it out or rename it with AS"
        )),
        (Deletes::Soft, Some(false)) => invalid(format!(
            "its rows have no `{DELETED}`, they were not kept with cdc_deletes=soft; rebuild it in full"
        )),
        (Deletes::Hard { .. }, Some(true)) if !delivered => invalid(format!(
            "its rows have `{DELETED}`, they were kept with cdc_deletes=soft; rebuild it in full"
        )),
        (Deletes::Hard { .. }, _) => {
            incoming.extend(own);
            Ok(incoming)
        }
        (Deletes::Soft, _) => {
            incoming.push(Incoming {
                name: DELETED.to_owned(),
                kind: Some(DataType::Boolean),
            });
            // Last, as where it came to be: columns that are synchronised stay where they are.
            incoming.extend(own);
            Ok(incoming)
        }
    }
}

/// Position of the operation in what is delivered.
fn op(apply: &Apply, table: &TableName, schema: &Schema) -> Result<usize> {
    let name = &apply.op;
    let invalid =
        |why: String| Error::new(Kind::Invalid, "apply change events to", table).because(why);
    let at = columns::position(schema, name)
        .ok_or_else(|| invalid(format!("cdc_op column `{name}` is not in the query")))?;
    match types::canonical(schema.field(at).data_type()) {
        Some(DataType::Utf8) => Ok(at),
        Some(other) => Err(invalid(format!(
            "cdc_op column `{name}` is a {}, not text; cast it",
            types::word(&other)
        ))),
        None => Err(invalid(format!(
            "cdc_op column `{name}` is not text; cast it"
        ))),
    }
}

/// The columns of a row that a soft delete changes, the flag aside.
fn kept_of_soft(columns: &Columns, apply: &Apply, sequence: usize) -> Vec<usize> {
    let others = [apply.op.as_str(), SEQUENCE];
    let others = others.into_iter().filter_map(|name| columns.position(name));
    let mut kept: Vec<usize> = others.chain([sequence]).collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}
