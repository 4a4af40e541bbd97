//! What looking up, missing and building may ask of the stores.

use std::sync::Arc;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;
use testkit::{CountedObjects, CountedState, MemoryState, ObjectCounts, StateCounts};
use tests::{parquet, site::Site, world::Lab};

use super::{Desk, rows};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("entries::a_hit_that_rides_inline_is_one_read", hit),
        test_async("entries::a_build_is_few_requests", build),
    ]
}

struct Counted {
    desk: Desk,
    state: Arc<CountedState>,
    objects: Arc<CountedObjects>,
}

impl Counted {
    fn new() -> Result<Self> {
        let state = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
        let memory = Arc::new(object_store::memory::InMemory::new());
        let objects = Arc::new(CountedObjects::new(memory));
        let live = domain::LiveSettings::default();
        let lab = Lab::on(
            state.clone(),
            objects.clone(),
            "memory:///",
            None,
            &[],
            live,
        )?;
        let desk = Desk::on(Site::new(lab, "")?)?;
        Ok(Self {
            desk,
            state,
            objects,
        })
    }

    fn take(&self) -> (StateCounts, ObjectCounts) {
        let counts = (self.state.take(), self.objects.take());
        println!("{counts:?}");
        counts
    }
}

async fn hit() -> Result<()> {
    let counted = Counted::new()?;
    counted.desk.build(json!({}), &rows()).await?;
    counted.take();
    for accept in [
        "application/json",
        "text/csv",
        "application/vnd.apache.arrow.stream",
    ] {
        let found = counted
            .desk
            .with("GET", "", &[("accept", accept)], json!({}))
            .await?;
        ensure!(found.status == 200, "{}", found.text());
        let (state, objects) = counted.take();
        ensure!(
            (state.gets, state.keys, state.requests()) == (1, 1, 1),
            "{state:?}"
        );
        ensure!(objects.requests() == 0, "{objects:?}");
    }
    let lease = counted.desk.send("POST", "/lease", json!({})).await?;
    ensure!(lease.status == 200, "{}", lease.text());
    ensure!(counted.take().0.requests() == 1);
    Ok(())
}

async fn build() -> Result<()> {
    let counted = Counted::new()?;
    let token = counted.desk.lease(json!({})).await?;
    let (state, objects) = counted.take();
    ensure!(
        (state.gets, state.transacts, objects.requests()) == (2, 1, 0),
        "{state:?}"
    );
    counted
        .desk
        .upload(&token, parquet::of_objects(&rows())?)
        .await?;
    let (state, objects) = counted.take();
    ensure!(
        (state.requests(), objects.puts) == (1, 1),
        "{state:?} {objects:?}"
    );
    ensure!(objects.requests() <= 4, "{objects:?}");
    counted.desk.commit(&token).await?;
    let (state, objects) = counted.take();
    ensure!((state.gets, state.transacts) == (3, 1), "{state:?}");
    ensure!(objects.requests() <= 8, "{objects:?}");
    Ok(())
}
