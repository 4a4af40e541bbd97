//! Reconcile: data that no row names goes, and rows whose data is gone.

use std::collections::{BTreeMap, BTreeSet};

use domain::entry::{EntryId, IndexState, SUPERSEDED};
use ports::{
    Result,
    entries::DataSet,
    state::{Expect, Span, Write, query_all},
};
use serde::Serialize;

use super::{
    Filter, Registry,
    index::{Held, key},
    list::PAGE_MAX,
    stored::Superseded,
};

/// What a reconcile did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reconciled {
    /// Data sets that nothing named.
    pub deleted: u64,
    /// Rows whose data was gone.
    pub lost: u64,
    /// Files of indexes that nothing named, and indexes whose file was gone.
    pub indexes: u64,
}

impl Registry {
    /// Compares the registry with the data there is, both ways.
    ///
    /// A data set is listed before its row and lease are read, in one read: what is being built is named by its lease then,
    /// what was committed by its row, what was superseded by the list of those. Whatever is left nobody can name again,
    /// since tokens are never given twice.
    ///
    /// # Errors
    /// What the ports answer.
    pub async fn reconcile(&self) -> Result<Reconciled> {
        let mut done = Reconciled::default();
        let mut stored: BTreeMap<EntryId, Vec<DataSet>> = BTreeMap::new();
        for set in self.world.entries.list().await? {
            stored.entry(set.id.clone()).or_default().push(set);
        }
        let mut unnamed = Vec::new();
        for (id, sets) in &stored {
            let both = self.both(id).await?;
            let named = both.content().map(|content| content.generation.as_str());
            let begun = both.lease().filter(|lease| !lease.resting);
            let begun = begun.map(|lease| lease.token.as_str());
            unnamed.extend(sets.iter().filter(|set| {
                let generation = Some(set.generation.as_str());
                generation != named && generation != begun
            }));
        }
        // Last of all, so that what was superseded meanwhile is among them.
        let mut waiting = BTreeSet::new();
        for item in query_all(&*self.world.state, Span::prefix(SUPERSEDED, "", PAGE_MAX)).await? {
            waiting.insert(item.decode::<Superseded>()?.generation);
        }
        for set in unnamed {
            if !waiting.contains(&set.generation) {
                self.world.entries.delete(set).await?;
                done.deleted += 1;
            }
        }
        self.find_lost(&stored, &mut done).await?;
        for sets in stored.values() {
            self.match_indexes(sets, &mut done).await?;
        }
        Ok(done)
    }

    /// Files of indexes that no job names go: files are listed before the jobs are read, and a job is named before it
    /// writes. Indexes whose file is gone go too, and are built when they are next asked for.
    async fn match_indexes(&self, sets: &[DataSet], done: &mut Reconciled) -> Result<()> {
        let Some(id) = sets.first().map(|set| &set.id) else {
            return Ok(());
        };
        let Some(entry) = self.row(id).await?.and_then(|row| row.ready(id)) else {
            return Ok(());
        };
        if entry.row.spec.indexes.is_empty() {
            return Ok(());
        }
        let set = entry.set();
        let files = self.world.entries.beside(&set).await?;
        let held = self.held(id).await?;
        let current = |held: &&Held| held.index.generation == set.generation;
        for file in &files {
            if !held
                .iter()
                .filter(current)
                .any(|held| held.index.file() == *file)
            {
                self.world.entries.remove(&set, file).await?;
                done.indexes += 1;
            }
        }
        for one in held.iter().filter(current) {
            let is_ready = matches!(one.index.state, IndexState::Ready { .. });
            // It may be newer than the list of files.
            let is_gone = is_ready
                && !files.contains(&one.index.file())
                && !self
                    .world
                    .entries
                    .beside(&set)
                    .await?
                    .contains(&one.index.file());
            if is_gone {
                let delete = Write::Delete {
                    key: key(id, &one.index.spec),
                    expect: Expect::Version(one.version),
                };
                done.indexes += u64::from(self.transact(vec![delete]).await?);
            }
        }
        Ok(())
    }

    /// Rows that name data which is not there, and have no payload that stands for it.
    async fn find_lost(
        &self,
        stored: &BTreeMap<EntryId, Vec<DataSet>>,
        done: &mut Reconciled,
    ) -> Result<()> {
        let ready = Filter {
            ready: Some(true),
            ..Filter::default()
        };
        let mut after = None;
        loop {
            let page = self.list(&ready, after.as_deref(), PAGE_MAX).await?;
            for listed in &page.entries {
                let sets = stored
                    .get(&listed.id)
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let generation = listed.summary.generation.as_deref();
                if sets
                    .iter()
                    .any(|set| Some(set.generation.as_str()) == generation)
                {
                    continue;
                }
                // It may be newer than the listing of the data: look again.
                let Some(entry) = self
                    .row(&listed.id)
                    .await?
                    .and_then(|row| row.ready(&listed.id))
                else {
                    continue;
                };
                if entry.payload.is_none()
                    && self.world.entries.find(&entry.set()).await?.is_none()
                    && self.lost(&entry).await?
                {
                    done.lost += 1;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }
}
