//! What maintenance does for model tables, and what others have read of a table.

use std::collections::BTreeSet;

use domain::{
    TableName, Timestamp,
    items::{self, Consumed, Head},
};
use ports::{
    Result,
    state::{Expect, Item, Key, Span, Write, query_all},
    upkeep::Keep,
};

use super::Round;
use crate::{load, refresh::events};

/// Snapshots of a table that stay whatever their age.
const SNAPSHOTS_KEPT: usize = 20;
/// Bytes of data files written anew in one step.
const COMPACT_BYTES: u64 = 32 << 20;
/// Items listed by one request.
const PAGE: usize = 100;

impl Round<'_> {
    pub(super) async fn model(&mut self, table: &TableName, head: Option<&Head>) -> Result<()> {
        let commits = head.map_or(0, |head| head.position.commits);
        let Some(mark) = self.sweep_due(table, commits).await? else {
            return Ok(());
        };
        if head.is_some() {
            self.collect(table).await?;
            self.compact(table).await?;
            self.expire(table).await?;
        }
        let swept = self.world.tables.sweep(table, &self.sweep()).await?;
        self.swept(table, mark, commits, swept).await
    }

    /// Removes tombstones of a model's that have been kept long enough, and remembers the greatest sequence among them.
    async fn collect(&mut self, table: &TableName) -> Result<()> {
        let owner = self.world.project.models.values().find_map(|model| {
            let theirs = events::tombstones(model).ok().flatten()?;
            let cdc = model.config.cdc.as_ref()?;
            (theirs == *table).then(|| (model.name.clone(), events::sequence(cdc)))
        });
        let Some((model, sequence)) = owner else {
            return Ok(());
        };
        if !self.step() {
            return Ok(());
        }
        let key = load::collected(&model);
        let item = self.world.state.get(&key).await?;
        let known: Option<items::Collected> = item.as_ref().map(Item::decode).transpose()?;
        let keep = i64::try_from(self.world.live.tombstone_retention.as_micros());
        let before = Timestamp(self.now.0.saturating_sub(keep.unwrap_or(i64::MAX)));
        let through = known.as_ref().and_then(|known| known.through.as_deref());
        let tables = &self.world.tables;
        let collected = tables.collect(table, &sequence, before, through).await?;
        let Some(collected) = collected else {
            return Ok(());
        };
        let note = items::Collected {
            through: Some(collected.through),
            rows: known.as_ref().map_or(0, |known| known.rows) + collected.rows,
            at: self.now,
            truncated: known.and_then(|known| known.truncated),
        };
        let mut writes = collected.writes;
        writes.push(Write::put(key, &note, Expect::as_read(item.as_ref())));
        match self.world.state.transact(writes).await?.is_committed() {
            true => self.report.tombstones += collected.rows,
            false => self.report.conflicts += 1,
        }
        Ok(())
    }

    async fn compact(&mut self, table: &TableName) -> Result<()> {
        if !self.step() {
            return Ok(());
        }
        let model = self.world.project.models.get(table);
        let key = model.map_or(&[][..], |model| model.config.unique_key.as_slice());
        let compacted = self.world.tables.compact(table, key, COMPACT_BYTES).await?;
        self.report.compacted_files += compacted.files;
        self.report.compacted_bytes += compacted.bytes;
        self.report.conflicts += u64::from(compacted.conflict);
        Ok(())
    }

    async fn expire(&mut self, table: &TableName) -> Result<()> {
        if !self.step() {
            return Ok(());
        }
        let mut held = BTreeSet::new();
        for consumed in self.consumed(table).await? {
            held.extend(consumed.snapshot.map(|snapshot| snapshot.id));
        }
        let keep = Keep {
            now: self.now,
            last: SNAPSHOTS_KEPT,
            retention: self.settings().retention,
            held,
        };
        match self.world.tables.expire(table, &keep).await? {
            Some(expired) => self.report.snapshots += expired,
            None => self.report.conflicts += 1,
        }
        Ok(())
    }

    /// Sequences of a landing table up to which some model has read, or is about to.
    pub(super) async fn cuts(&self, table: &TableName) -> Result<BTreeSet<u64>> {
        let mut cuts: BTreeSet<u64> = self
            .consumed(table)
            .await?
            .into_iter()
            .map(|consumed| consumed.position.sequence)
            .collect();
        if let Some(item) = self.world.state.get(&load::cycle()).await? {
            let cycle: items::Cycle = item.decode()?;
            let target = cycle.targets.get(table).filter(|_| !cycle.closed);
            cuts.extend(target.map(|target| target.sequence));
        }
        Ok(cuts)
    }

    /// What every model of the project or of the lake has consumed of a table.
    async fn consumed(&self, table: &TableName) -> Result<Vec<Consumed>> {
        let state = &*self.world.state;
        let listed = query_all(state, Span::prefix(items::TABLES, "", super::PAGE)).await?;
        let mut models: BTreeSet<TableName> = listed
            .iter()
            .filter_map(|item| item.key.sort.parse().ok())
            .collect();
        models.extend(self.world.project.models.keys().cloned());
        let keys: Vec<Key> = models
            .iter()
            .map(|model| load::consumed(model, table))
            .collect();
        let mut consumed = Vec::new();
        for some in keys.chunks(PAGE) {
            let found: Vec<Item> = state.get_many(some).await?.into_iter().flatten().collect();
            for item in &found {
                consumed.push(item.decode()?);
            }
        }
        Ok(consumed)
    }
}
