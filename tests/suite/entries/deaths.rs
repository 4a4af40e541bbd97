//! Builders that die between any two calls of a port, and answers that never came: nothing is served that is not whole
//! (E-2), nothing is committed late (E-3), and nothing is left for good.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use domain::{
    Duration, EntrySettings,
    entry::{EntryId, Mode, Spec},
    fingerprint::Call,
};
use engine::entries::{Ask, Claim, Claimed, Commit, Found, Refused, Registry};
use futures::{StreamExt, TryStreamExt, stream};
use libtest_mimic::Trial;
use ports::tables::Rows;
use serde_json::{Value, json};
use testkit::{Fault, Faults, FaultyObjects, FaultyState, MemoryState, Operation};
use tests::{parquet, world::Lab};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("entries::a_builder_may_die_between_any_two_calls", builders),
        test_async(
            "entries::an_eviction_may_die_between_any_two_calls",
            evictions,
        ),
        test_async("entries::answers_that_never_came_change_nothing", lost),
    ]
}

/// Calls of a build or an eviction, at most.
const CALLS_MAX: u64 = 40;
const LEASE: Duration = Duration::from_secs(60);

struct Mortal {
    faults: Arc<Faults>,
    lab: Lab,
    registry: Registry,
    id: EntryId,
}

impl Mortal {
    fn new() -> Result<Self> {
        let faults = Arc::new(Faults::none());
        let state = Arc::new(FaultyState::new(
            Arc::new(MemoryState::new()),
            faults.clone(),
        ));
        let memory = Arc::new(object_store::memory::InMemory::new());
        let objects = Arc::new(FaultyObjects::new(memory, faults.clone()));
        let live = domain::LiveSettings::default();
        let lab = Lab::on(state, objects, "memory:///", None, &[], live)?;
        let settings = EntrySettings {
            grace: Duration::ZERO,
            ..EntrySettings::default()
        };
        Ok(Self {
            faults,
            registry: Registry::new(lab.world.clone(), settings),
            lab,
            id: EntryId::new(Call::new("f", 0).fingerprint()?, None)?,
        })
    }

    fn claim(&self) -> Claim {
        Claim {
            ask: Ask::default(),
            spec: Spec {
                ttl_ms: Some(1_000),
                mode: Mode::Strict,
                ..Spec::default()
            },
            holder: String::from("test"),
            lease: Some(LEASE),
            wait: Duration::ZERO,
        }
    }

    async fn lease(&self) -> Result<String> {
        match self.registry.claim(&self.id, &self.claim()).await? {
            Claimed::Build(granted) => Ok(granted.token),
            other => bail!("no lease but {other:?}"),
        }
    }

    /// Rows that say who built them.
    fn rows(&self, builder: u64) -> Result<Rows> {
        let batch =
            parquet::batch(&[json!({ "builder": builder }), json!({ "builder": builder })])?;
        Ok(Rows {
            schema: batch.schema(),
            stream: stream::iter([Ok(batch)]).boxed(),
        })
    }

    async fn build(&self, builder: u64) -> Result<()> {
        let token = self.lease().await?;
        self.registry
            .store(&self.id, &token, self.rows(builder)?)
            .await?;
        // Not inline, so that the data counts.
        let commit = Commit {
            inline_max: Some(0),
        };
        self.registry.commit(&self.id, &token, commit).await?;
        Ok(())
    }

    /// Who built what is served; none when nothing is. What is served is whole.
    async fn served(&self) -> Result<Option<Value>> {
        match self.registry.lookup(&self.id, Ask::default()).await? {
            Found::Hit(entry) | Found::Stale(entry) => {
                let rows = self.registry.rows(&entry).await?;
                let rows = rows.context("E-2: a ready row without data")?;
                let batches: Vec<_> = rows.stream.try_collect().await?;
                let count: usize = batches
                    .iter()
                    .map(arrow::array::RecordBatch::num_rows)
                    .sum();
                ensure!(count == 2, "{count} rows are served");
                Ok(Some(json!(count)))
            }
            Found::Building | Found::Miss => Ok(None),
        }
    }

    /// Nothing is left that nobody names, and nothing is named that is not there.
    async fn tidy(&self) -> Result<()> {
        self.registry.sweep().await?;
        self.registry.reconcile().await?;
        let sets = self.lab.world.entries.list().await?;
        let row = self.registry.lookup(&self.id, Ask::default()).await?;
        let named = match row {
            Found::Hit(entry) | Found::Stale(entry) => vec![entry.content.generation.clone()],
            Found::Building | Found::Miss => Vec::new(),
        };
        let stored: Vec<_> = sets.into_iter().map(|set| set.generation).collect();
        ensure!(stored == named, "stored {stored:?}, named {named:?}");
        let again = self.registry.reconcile().await?;
        ensure!(again.deleted + again.lost == 0, "{again:?}");
        Ok(())
    }
}

async fn builders() -> Result<()> {
    for after in [false, true] {
        let mut survived = false;
        for calls in 0..CALLS_MAX {
            let mortal = Mortal::new()?;
            match after {
                true => mortal.faults.crash_after_effect(calls),
                false => mortal.faults.crash_after(calls),
            }
            let ended = mortal.faults.until_crash(mortal.build(1)).await;
            mortal.faults.restart();
            survived = ended.is_some();
            let said = || format!("dead after call {calls}, its effect {after}");
            mortal.served().await.with_context(said)?;
            // Over: whoever comes takes over, or finds the entry, whose second is over too.
            mortal.lab.clock.advance(LEASE);
            mortal.build(2).await.with_context(said)?;
            ensure!(mortal.served().await?.is_some());
            mortal.tidy().await.with_context(said)?;
            if survived {
                break;
            }
        }
        ensure!(survived, "a build makes {CALLS_MAX} calls or more");
    }
    Ok(())
}

async fn evictions() -> Result<()> {
    for after in [false, true] {
        let mut survived = false;
        for calls in 0..CALLS_MAX {
            let mortal = Mortal::new()?;
            mortal.build(1).await?;
            match after {
                true => mortal.faults.crash_after_effect(calls),
                false => mortal.faults.crash_after(calls),
            }
            let ended = mortal
                .faults
                .until_crash(mortal.registry.evict(&mortal.id))
                .await;
            mortal.faults.restart();
            survived = ended.is_some();
            let said = || format!("dead after call {calls}, its effect {after}");
            mortal.served().await.with_context(said)?;
            mortal.tidy().await.with_context(said)?;
            mortal.registry.evict(&mortal.id).await.with_context(said)?;
            mortal.build(2).await.with_context(said)?;
            if survived {
                break;
            }
        }
        ensure!(survived, "an eviction makes {CALLS_MAX} calls or more");
    }
    Ok(())
}

async fn lost() -> Result<()> {
    // The commit happened and nobody was told: saying it again finds it done.
    let mortal = Mortal::new()?;
    let token = mortal.lease().await?;
    mortal
        .registry
        .store(&mortal.id, &token, mortal.rows(1)?)
        .await?;
    mortal.faults.inject(Operation::Transact, 0, Fault::After);
    let unknown = mortal
        .registry
        .commit(&mortal.id, &token, Commit::default())
        .await;
    ensure!(matches!(unknown, Err(Refused::Port(_))), "{unknown:?}");
    mortal
        .registry
        .commit(&mortal.id, &token, Commit::default())
        .await?;
    mortal.tidy().await?;
    // The commit did not happen, others are in the way: it is tried again.
    mortal.lab.clock.advance(LEASE);
    let token = mortal.lease().await?;
    mortal
        .registry
        .store(&mortal.id, &token, mortal.rows(2)?)
        .await?;
    mortal
        .faults
        .inject(Operation::Transact, 0, Fault::Conflict);
    mortal
        .faults
        .inject(Operation::Transact, 0, Fault::Conflict);
    mortal
        .registry
        .commit(&mortal.id, &token, Commit::default())
        .await?;
    mortal.tidy().await?;
    // The disk is full while it is written: the lease can be given back, and nothing is left.
    mortal.lab.clock.advance(LEASE);
    let token = mortal.lease().await?;
    mortal
        .faults
        .inject(Operation::PutObject, 0, Fault::DiskFull);
    let full = mortal
        .registry
        .store(&mortal.id, &token, mortal.rows(3)?)
        .await;
    ensure!(full.is_err());
    mortal.registry.abort(&mortal.id, &token).await?;
    mortal.tidy().await
}
