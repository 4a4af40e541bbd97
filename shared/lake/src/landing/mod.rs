//! Landing tables: append-only, their sequences fixed at commit.
//!
//! A commit is one transaction: the head, moved from the version it was read at; the commit's own `advance#<to>`; and
//! one mark per idempotency key or incoming file. Small batches ride in the advance item itself, larger ones are a
//! parquet object that is put before. Appends of one process to one table share commits. Maintenance folds runs of small
//! commits into one.
//!
//! ## Invariants
//! * **S-1** sequences of a table are contiguous from 1 and fixed at commit
//! * **Q-1** nothing is dropped silently: an append is stored once, or refused with a reason

mod commit;
mod copy;
mod draft;
mod fold;
mod forget;
mod group;
mod incoming;
mod lane;
mod reader;
mod scan;
mod schema;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use domain::{TableName, Timestamp, items::Column};
use ports::{
    Chance, Clock, Error, Kind, Landing, Objects, Result, State,
    landing::{Advanced, Append, Appended},
    upkeep::{Fold, Folded, Forgotten, Sweep, Swept},
};

pub use scan::{pin, scan};

use crate::garbage;
use lane::Lane;

/// Landing tables over a state store and an object store.
#[derive(Debug)]
pub struct LandingLake {
    world: Arc<World>,
    lanes: Mutex<HashMap<TableName, Arc<Lane>>>,
}

/// What a commit needs of the world.
#[derive(Debug)]
struct World {
    state: Arc<dyn State>,
    objects: Objects,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    /// When and why the last commit of appended rows failed, unless one was made since.
    trouble: Mutex<Option<(Timestamp, String)>>,
}

impl World {
    /// Notes how a commit of appended rows ended.
    fn note(&self, failed: Option<&Error>) {
        // What is wrong with rows or with what is stored says nothing about whether the store is back.
        if failed.is_some_and(|error| error.kind != Kind::Unavailable) {
            return;
        }
        let trouble = failed.map(|error| (self.clock.now(), error.chain()));
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

impl LandingLake {
    /// Landing tables of one process. Commits run as tasks of the Tokio runtime that appends are called in.
    #[must_use]
    pub fn new(
        state: Arc<dyn State>,
        objects: Objects,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Self {
        let world = Arc::new(World {
            state,
            objects,
            clock,
            chance,
            trouble: Mutex::default(),
        });
        Self {
            world,
            lanes: Mutex::default(),
        }
    }

    fn lane(&self, table: &TableName) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(table) {
            return Arc::clone(lane);
        }
        let lane = Arc::new(Lane::new(table.clone()));
        lanes.insert(table.clone(), Arc::clone(&lane));
        lane
    }
}

#[async_trait]
impl Landing for LandingLake {
    async fn append(&self, append: Append) -> Result<Appended> {
        lane::append(&self.world, self.lane(&append.table), append).await
    }

    fn trouble(&self) -> Option<(Timestamp, String)> {
        let trouble = self.world.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn declare(&self, table: &TableName, columns: &[Column]) -> Result<()> {
        let lane = self.lane(table);
        let mut known = lane.known.lock().await;
        commit::declare(&self.world, table, &mut known, columns).await
    }

    async fn advance(&self, table: &TableName, now: Timestamp) -> Result<Option<Advanced>> {
        incoming::advance(&self.world, &self.lane(table), now).await
    }

    async fn fold(&self, table: &TableName, fold: &Fold) -> Result<Folded> {
        fold::fold(&self.world, table, fold).await
    }

    async fn forget(&self, table: &TableName, before: Timestamp) -> Result<Forgotten> {
        forget::forget(&*self.world.state, table, before).await
    }

    async fn sweep(&self, table: &TableName, sweep: &Sweep) -> Result<Swept> {
        let place = garbage::Place {
            state: &*self.world.state,
            objects: &self.world.objects,
            chance: &*self.world.chance,
            table,
            folder: draft::folder(table),
        };
        garbage::sweep(&place, sweep, || fold::references(&self.world, table)).await
    }
}
