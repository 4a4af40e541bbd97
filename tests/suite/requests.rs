//! What an operation may cost: requests to the state store, the object store and the queues, counted. On a cloud each is
//! money and some milliseconds. What functions ask is written down in `infra/requests.json`, which `infra/prices.py` reads.

mod deployed;

use std::sync::Arc;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;
use testkit::{CountedObjects, CountedState, MemoryState, ObjectCounts, StateCounts};
use tests::{site::Site, world::Lab};

use crate::{bugs::merged, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = deployed::trials();
    trials.extend([
        test_async("requests::a_small_event_rides_in_the_state", small_event),
        test_async("requests::a_large_event_is_one_object", large_event),
        test_async("requests::a_refresh_of_a_small_model", refresh),
        test_async("requests::an_idle_cycle_writes_nothing", idle),
    ]);
    trials
}

struct Counted {
    site: Site,
    state: Arc<CountedState>,
    objects: Arc<CountedObjects>,
}

impl Counted {
    fn new() -> Result<Self> {
        let state = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
        let objects = Arc::new(CountedObjects::new(Arc::new(
            object_store::memory::InMemory::new(),
        )));
        let model = merged(
            "silver.x",
            "id",
            "SELECT payload->>'id' AS id, _seq FROM landing.x",
        );
        let live = domain::LiveSettings::default();
        let lab = Lab::on(
            state.clone(),
            objects.clone(),
            "memory:///",
            None,
            &[model],
            live,
        )?;
        Ok(Self {
            site: Site::new(lab, "")?,
            state,
            objects,
        })
    }

    /// What has been asked since the last call.
    fn take(&self) -> (StateCounts, ObjectCounts) {
        let counts = (self.state.take(), self.objects.take());
        println!("{counts:?}");
        counts
    }

    async fn event(&self, id: u64) -> Result<()> {
        self.site
            .event("x", json!({ "id": id }).to_string())
            .await
            .map(|_| ())
    }
}

async fn small_event() -> Result<()> {
    let counted = Counted::new()?;
    counted.event(1).await?;
    counted.take();
    counted.event(2).await?;
    let (state, objects) = counted.take();
    ensure!(state.transacts == 1, "{state:?}");
    ensure!(state.gets + state.queries <= 1, "{state:?}");
    ensure!(objects.requests() == 0, "{objects:?}");
    Ok(())
}

async fn large_event() -> Result<()> {
    let counted = Counted::new()?;
    counted.event(1).await?;
    counted.take();
    counted
        .site
        .event(
            "x",
            json!({ "id": 2, "text": "x".repeat(1 << 20) }).to_string(),
        )
        .await?;
    let (state, objects) = counted.take();
    ensure!(state.transacts == 1, "{state:?}");
    ensure!(state.gets + state.queries <= 1, "{state:?}");
    ensure!(objects.puts == 1 && objects.requests() == 1, "{objects:?}");
    Ok(())
}

async fn refresh() -> Result<()> {
    let counted = Counted::new()?;
    for id in 1..=3 {
        counted.event(id).await?;
        counted.site.cycle().await?;
    }
    counted.event(2).await?;
    counted.take();
    counted.site.cycle().await?;
    let (state, objects) = counted.take();
    // Data and delete file, their two manifests, the list and the metadata.
    ensure!(objects.puts <= 6, "{objects:?}");
    ensure!(objects.gets + objects.heads <= 12, "{objects:?}");
    ensure!(objects.lists == 0 && objects.deletes == 0, "{objects:?}");
    // The cycle's opening and end, and the one commit between them.
    ensure!(state.transacts <= 4, "{state:?}");
    ensure!(state.gets + state.queries <= 16, "{state:?}");
    Ok(())
}

async fn idle() -> Result<()> {
    let counted = Counted::new()?;
    counted.event(1).await?;
    counted.site.cycle().await?;
    counted.take();
    counted.site.cycle().await?;
    let (state, objects) = counted.take();
    ensure!(objects.requests() == 0, "{objects:?}");
    ensure!(state.transacts == 0, "{state:?}");
    ensure!(state.gets + state.queries <= 8, "{state:?}");
    Ok(())
}
