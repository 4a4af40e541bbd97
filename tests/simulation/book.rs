//! What every committed transaction did, written down beside the store, and the rules it has to keep.
//!
//! * **S-1** sequences of a table are contiguous from 1 and fixed at commit
//! * **W-1** a watermark never moves down, **W-2** and moves in the transaction that moves the data
//! * **C-1** what a model consumed is a position that its input has had, and no further than a cycle fixed

use std::collections::{BTreeMap, BTreeSet};

use arrow::{array::RecordBatch, ipc::reader::StreamReader};
use bytes::Bytes;
use domain::{
    Position, TableName,
    items::{self, Advance, BatchData, Consumed, Cycle, Head},
};
use ports::state::{Item, Key, Write};
use serde::de::DeserializeOwned;

use crate::{
    frame::{self, Cell},
    shelf::Shelf,
};

/// A row of a landing table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    pub(crate) op: String,
    pub(crate) lsn: i64,
    pub(crate) item: i64,
    pub(crate) grp: i64,
    pub(crate) amt: i64,
    /// The number of the event, from its payload.
    pub(crate) event: u64,
}

/// Everything that was committed.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Rows of landing tables and of quarantines, in sequence order.
    pub(crate) landed: BTreeMap<TableName, Vec<Landed>>,
    pub(crate) heads: BTreeMap<TableName, Head>,
    pub(crate) consumed: BTreeMap<(TableName, TableName), Consumed>,
    /// Every position a head has been at, with its snapshots.
    past: BTreeMap<TableName, BTreeMap<(u64, u64), BTreeSet<i64>>>,
    /// The furthest that a cycle has fixed.
    targets: BTreeMap<TableName, u64>,
    pub(crate) commits: u64,
    /// Rows and leases of entries.
    pub(crate) shelf: Shelf,
    /// Number of the cycle last written.
    cycle: u64,
}

type Puts<'a> = BTreeMap<&'a Key, &'a Bytes>;

fn json<T: DeserializeOwned>(key: &Key, value: &Bytes) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| format!("{key:?} cannot be read: {error}"))
}

fn name(text: &str) -> Result<TableName, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

impl Book {
    /// Writes a committed transaction down. Tells which models have to be compared now.
    ///
    /// # Errors
    /// The rule that was broken.
    pub(crate) fn note(&mut self, writes: &[Write], by: &str) -> Result<Vec<TableName>, String> {
        self.commits += 1;
        let mut puts = Puts::new();
        for write in writes {
            match write {
                Write::Put { key, value, .. } => drop(puts.insert(key, value)),
                Write::Delete { key, .. } => {
                    let kept = key.sort == items::HEAD || key.sort.starts_with("consumed#");
                    if kept {
                        return Err(format!("W-1: {key:?} was deleted"));
                    }
                }
                Write::Check { .. } => {}
            }
        }
        let mut due = BTreeSet::new();
        for (key, value) in &puts {
            if let Some(table) = key.partition.strip_prefix("table#")
                && key.sort == items::HEAD
            {
                let table = name(table)?;
                let head: Head = json(key, value)?;
                if self.head(&table, head, &puts)? {
                    due.insert(table);
                }
            }
            if key.partition == items::CYCLE {
                self.cycle(&json(key, value)?)?;
            }
        }
        // After the heads: what is consumed may be a position of this very transaction.
        for (key, value) in &puts {
            if let Some(model) = key.partition.strip_prefix("model#")
                && let Some(input) = key.sort.strip_prefix("consumed#")
            {
                let (model, input) = (name(model)?, name(input)?);
                let consumed: Consumed = json(key, value)?;
                self.watermark(&model, &input, consumed, &puts, by)?;
                due.insert(model);
            }
        }
        Ok(due.into_iter().collect())
    }

    /// Whether a model's table may have changed.
    fn head(&mut self, table: &TableName, head: Head, puts: &Puts<'_>) -> Result<bool, String> {
        let before = self.heads.get(table);
        let old = before.map(|head| head.position).unwrap_or_default();
        let new = head.position;
        let moved = new != old || before.is_none();
        if new.sequence < old.sequence || new.commits < old.commits {
            return Err(format!(
                "W-1: the head of {table} went from {old:?} to {new:?}"
            ));
        }
        let is_model = head.snapshot.is_some();
        if new != old {
            if new.commits != old.commits + 1 {
                return Err(format!(
                    "S-1: {table} went from {old:?} to {new:?} in one commit"
                ));
            }
            match is_model {
                false => self.land(table, old, new, puts)?,
                true if table.name().ends_with("__tombstones") => {}
                true => model_commit(table, before.is_some(), &head, puts)?,
            }
        }
        let place = self.past.entry(table.clone()).or_default();
        let snapshots = place.entry((new.sequence, new.commits)).or_default();
        snapshots.extend(head.snapshot.as_ref().map(|snapshot| snapshot.id));
        self.heads.insert(table.clone(), head);
        Ok(is_model && (moved || puts.keys().any(|key| key.partition == items::CATALOG)))
    }

    fn land(
        &mut self,
        table: &TableName,
        old: Position,
        new: Position,
        puts: &Puts<'_>,
    ) -> Result<(), String> {
        let key = Key::new(items::table(table), items::advance(new.sequence));
        let Some(value) = puts.get(&key) else {
            return Err(format!("S-1: {table} moved to {new:?} without its commit"));
        };
        let item = Item {
            key,
            version: 0,
            value: Bytes::clone(value),
        };
        let (advance, bytes): (Advance, Bytes) = item.unpack().map_err(|error| error.chain())?;
        let count = new.sequence - old.sequence;
        if (advance.from, advance.to, advance.rows) != (old.sequence, new.sequence, count) {
            return Err(format!("S-1: {table} moved from {old:?} by {advance:?}"));
        }
        if advance.data != Some(BatchData::Inline) {
            return Err(format!(
                "{table}: rows of the simulation are few and ride inline"
            ));
        }
        let rows = decode(bytes).map_err(|error| format!("{table}: {error}"))?;
        if rows.len() as u64 != count {
            return Err(format!(
                "S-1: a commit of {table} has {} rows: {advance:?}",
                rows.len()
            ));
        }
        self.landed.entry(table.clone()).or_default().extend(rows);
        Ok(())
    }

    fn cycle(&mut self, cycle: &Cycle) -> Result<(), String> {
        let (before, number) = (self.cycle, cycle.number);
        if number < before {
            return Err(format!(
                "C-1: cycle {number} was written over cycle {before}"
            ));
        }
        self.cycle = number;
        for (table, target) in &cycle.targets {
            self.had(table, *target, None)
                .map_err(|why| format!("C-1: a target of cycle {}: {why}", cycle.number))?;
            let furthest = self.targets.entry(table.clone()).or_default();
            *furthest = target.sequence.max(*furthest);
        }
        Ok(())
    }

    /// Whether a table has been at a position, and had the snapshot there.
    fn had(&self, table: &TableName, at: Position, snapshot: Option<i64>) -> Result<(), String> {
        if at == Position::default() {
            return Ok(());
        }
        let found = self
            .past
            .get(table)
            .and_then(|past| past.get(&(at.sequence, at.commits)));
        match (found, snapshot) {
            (None, _) => Err(format!("{table} has never been at {at:?}")),
            (Some(had), Some(id)) if !had.contains(&id) => {
                Err(format!("{table} has never had snapshot {id} at {at:?}"))
            }
            (Some(_), _) => Ok(()),
        }
    }

    fn watermark(
        &mut self,
        model: &TableName,
        input: &TableName,
        consumed: Consumed,
        puts: &Puts<'_>,
        by: &str,
    ) -> Result<(), String> {
        let key = (model.clone(), input.clone());
        let old = self.consumed.get(&key).map(|before| before.position);
        let (old, new) = (old.unwrap_or_default(), consumed.position);
        let what = format!("what {model} consumed of {input} went from {old:?} to {new:?}");
        if new.sequence < old.sequence || new.commits < old.commits {
            return Err(format!("W-1: {what}"));
        }
        let snapshot = consumed.snapshot.as_ref().map(|snapshot| snapshot.id);
        self.had(input, new, snapshot)
            .map_err(|why| format!("C-1: {what}: {why}"))?;
        let target = self.targets.get(input).copied().unwrap_or(0);
        // A runner writes its cycle down beside its first refreshes; orders name one that was written.
        if by.starts_with("refresh") && input.is_landing() && new.sequence > target {
            return Err(format!("C-1: {what}, and cycles fixed {target}"));
        }
        if !puts.contains_key(&Key::new(items::model(model), items::STATE)) {
            return Err(format!("W-2: {what} apart from the refresh that did so"));
        }
        self.consumed.insert(key, consumed);
        Ok(())
    }

    /// Commits of a model that changed it.
    pub(crate) fn refreshes(&self, model: &str) -> u64 {
        let mut heads = self.heads.iter();
        let found = heads.find(|(table, _)| table.to_string() == model);
        found.map_or(0, |(_, head)| head.position.commits)
    }

    /// What a model has consumed of an input.
    pub(crate) fn consumed(&self, model: &TableName, input: &TableName) -> Consumed {
        let key = (model.clone(), input.clone());
        self.consumed.get(&key).cloned().unwrap_or_default()
    }
}

/// A commit of a model has all its parts.
fn model_commit(
    table: &TableName,
    exists: bool,
    head: &Head,
    puts: &Puts<'_>,
) -> Result<(), String> {
    let commits = head.position.commits;
    let has = |key: Key| puts.contains_key(&key);
    let own = items::model(table);
    let consumes = puts
        .keys()
        .any(|key| key.partition == own && key.sort.starts_with("consumed#"));
    let parts = [
        (
            "commit",
            has(Key::new(items::table(table), items::commit(commits))),
        ),
        (
            "catalog pointer",
            puts.keys().any(|key| key.partition == items::CATALOG),
        ),
        ("state", has(Key::new(own.clone(), items::STATE))),
        // A rebuild reads again what was consumed already.
        ("watermarks", consumes || !exists || head.rebuilt == commits),
    ];
    match parts.iter().find(|(_, there)| !there) {
        Some((part, _)) => Err(format!(
            "W-2: commit {commits} of {table} without its {part}"
        )),
        None => Ok(()),
    }
}

fn decode(bytes: Bytes) -> Result<Vec<Landed>, String> {
    let reader = StreamReader::try_new(bytes.as_ref(), None).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for batch in reader {
        rows.extend(landed(&batch.map_err(|e| e.to_string())?));
    }
    Ok(rows)
}

/// The rows of a batch of a landing table.
pub(crate) fn landed(batch: &RecordBatch) -> Vec<Landed> {
    let columns = ["op", "lsn", "item", "grp", "amt", "payload"];
    let row = |row: Vec<Cell>| Landed {
        op: text(&row[0]).to_owned(),
        lsn: row[1].int(),
        item: row[2].int(),
        grp: row[3].int(),
        amt: row[4].int(),
        event: event(text(&row[5])),
    };
    frame::rows(batch, &columns).into_iter().map(row).collect()
}

fn text(cell: &Cell) -> &str {
    match cell {
        Cell::Text(text) => text,
        Cell::Null | Cell::Int(_) | Cell::Bool(_) => "",
    }
}

fn event(payload: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(payload).unwrap_or_default();
    value["event"].as_u64().unwrap_or(0)
}
