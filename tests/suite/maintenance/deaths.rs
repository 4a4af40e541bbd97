//! Maintenance that is cut short anywhere, or done by two at once.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result, ensure};
use domain::{Duration, Timestamp};
use object_store::memory::InMemory;
use ports::{
    Objects, State,
    state::{Expect, Item, Write},
};
use testkit::{Faults, FaultyObjects, FaultyState, MemoryState};
use tests::world::{Lab, START};

use super::{ALL, bursts, chained, models, post, reads, upkeep};

/// The stores of a process that has died, for others to begin with.
struct Stores {
    state: Arc<MemoryState>,
    objects: InMemory,
}

impl Stores {
    async fn copy(&self) -> Result<Self> {
        let state = MemoryState::new();
        for some in self.state.items().chunks(100) {
            let write = |item: &Item| Write::Put {
                key: item.key.clone(),
                value: item.value.clone(),
                expect: Expect::Any,
            };
            let writes = some.iter().map(write).collect();
            ensure!(
                state
                    .transact(writes)
                    .await
                    .map_err(chained)?
                    .is_committed()
            );
        }
        Ok(Self {
            state: Arc::new(state),
            objects: self.objects.fork(),
        })
    }

    fn lab(&self, faults: &Arc<Faults>, now: Timestamp) -> Result<Lab> {
        let objects: Objects = Arc::new(self.objects.clone());
        let lab = Lab::on(
            Arc::new(FaultyState::new(self.state.clone(), faults.clone())),
            Arc::new(FaultyObjects::new(objects, faults.clone())),
            "memory:///",
            None,
            &models(),
            domain::LiveSettings::default(),
        )?;
        // Ids of two processes differ; those of labs differ by the moment alone.
        static LABS: AtomicU64 = AtomicU64::new(1);
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        lab.clock.set(now + Duration::from_millis(number));
        Ok(lab)
    }
}

/// Stores in which every kind of step has something to do.
async fn busy() -> Result<(Stores, Timestamp)> {
    let stores = Stores {
        state: Arc::new(MemoryState::new()),
        objects: InMemory::new(),
    };
    let lab = stores.lab(&Arc::new(Faults::none()), START)?;
    for n in 0..20 {
        post(&lab, n, "eu", 1, Some(format!("key{n}"))).await?;
    }
    bursts(&lab, 36, Duration::from_secs(120)).await?;
    lab.clock.advance(Duration::from_secs(2 * 3_600));
    upkeep(&lab, &ALL).await?;
    bursts(&lab, 16, Duration::from_secs(120)).await?;
    lab.clock.advance(Duration::from_secs(8 * 86_400));
    let now = lab.world.clock.now();
    Ok((stores, now))
}

pub(super) async fn crashes() -> Result<()> {
    let (stores, now) = busy().await?;
    let quiet = Arc::new(Faults::none());
    let before = reads(&stores.lab(&quiet, now)?).await?;
    let (mut call, mut after, mut died) = (0, false, 0);
    loop {
        let copy = stores.copy().await?;
        let faults = Arc::new(Faults::none());
        let lab = copy.lab(&faults, now)?;
        match after {
            false => faults.crash_after(call),
            true => faults.crash_after_effect(call),
        }
        let ended = faults.until_crash(upkeep(&lab, &ALL)).await;
        faults.restart();
        let at = || format!("dead at call {call}, after its effect: {after}");
        let lab = copy.lab(&faults, now)?;
        ensure!(reads(&lab).await? == before, "{}: a read changed", at());
        for _ in 0..2 {
            upkeep(&lab, &ALL).await.with_context(at)?;
            lab.clock.advance(Duration::from_secs(3_600));
        }
        ensure!(
            reads(&lab).await? == before,
            "{}: a read changed later",
            at()
        );
        if let Some(report) = ended {
            let report = report?;
            ensure!(
                report.folds > 0
                    && report.snapshots > 0
                    && report.garbage_removed > 0
                    && report.keys_forgotten == 20,
                "there was not everything to do: {report:?}"
            );
            println!("{died} deaths; {report:?}");
            return Ok(());
        }
        died += 1;
        // Every call at first; later ones are of the same kinds.
        call += if after { 1 + call / 40 } else { 0 };
        after = !after;
    }
}

pub(super) async fn two() -> Result<()> {
    let (stores, now) = busy().await?;
    let quiet = Arc::new(Faults::none());
    let before = reads(&stores.lab(&quiet, now)?).await?;
    for _ in 0..5 {
        let copy = stores.copy().await?;
        let (one, other) = (copy.lab(&quiet, now)?, copy.lab(&quiet, now)?);
        for _ in 0..3 {
            let (a, b) = futures::join!(upkeep(&one, &ALL), upkeep(&other, &ALL));
            a?;
            b?;
            ensure!(reads(&one).await? == before, "a read changed");
            one.clock.advance(Duration::from_secs(1_200));
            other.clock.advance(Duration::from_secs(1_200));
        }
    }
    Ok(())
}
