//! A full disk: what does not fit is refused as 503, the process lives, and what was acknowledged is there.

use std::{collections::BTreeSet, process::Command, sync::Arc};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;
use testkit::{Fault, Faults, FaultyObjects, FaultyState, Operation};
use tests::{
    folder::Folder,
    program::{self, Served},
    site::Site,
    world::Lab,
};

use crate::{bugs::merged, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("full_disk::under_the_objects", full_objects),
        test_async("full_disk::under_the_state", full_state),
        test_async("full_disk::under_the_real_program", full_disk),
        test_async("full_disk::health_tells_that_nothing_is_stored", health),
    ]
}

/// A site whose objects and state go wrong on demand.
fn faulty(faults: &Arc<Faults>) -> Result<Site> {
    let state = Arc::new(FaultyState::new(
        Arc::new(testkit::MemoryState::new()),
        faults.clone(),
    ));
    let objects: ports::Objects = Arc::new(object_store::memory::InMemory::new());
    let objects: ports::Objects = Arc::new(FaultyObjects::new(objects, faults.clone()));
    let model = merged(
        "silver.x",
        "id",
        "SELECT payload->>'id' AS id, payload, _seq FROM landing.x",
    );
    Site::new(
        Lab::on(
            state,
            objects,
            "memory:///",
            None,
            &[model],
            domain::LiveSettings::default(),
        )?,
        "",
    )
}

/// Posts, with and without room; what is refused is refused as 503, and what was acknowledged is there.
async fn fill(operation: Operation, size: usize) -> Result<()> {
    let faults = Arc::new(Faults::none());
    let site = faulty(&faults)?;
    // A writer that waits for room waits on the clock: time goes by while it does.
    let clock = site.lab.clock.clone();
    let time = tokio::spawn(async move {
        loop {
            clock.advance(domain::Duration::from_millis(50));
            tokio::task::yield_now().await;
        }
    });
    let mut acknowledged = 0;
    for id in 0..12 {
        if id % 3 == 1 {
            faults.inject(operation, 0, Fault::DiskFull);
        }
        let answer = site
            .webhook(
                "x",
                json!({ "id": id, "text": "x".repeat(size) }).to_string(),
            )
            .await?;
        match answer.status {
            202 => acknowledged += 1,
            503 => ensure!(id % 3 == 1, "{id}: {}", answer.text()),
            other => anyhow::bail!("{id}: {other} {}", answer.text()),
        }
    }
    ensure!(
        (8..=12).contains(&acknowledged),
        "{acknowledged} acknowledged"
    );
    ensure!(
        site.cells("SELECT _seq FROM landing.x").await?.len() == acknowledged,
        "acknowledged events are lost"
    );
    time.abort();
    // A refresh that finds the disk full commits nothing, and the next one after its backoff does all.
    faults.inject(operation, 0, Fault::DiskFull);
    let report = engine::cycle::run(&site.lab.world, &engine::cycle::Silent).await;
    ensure!(
        report.is_err() || site.cells("SELECT * FROM silver.x").await.is_err(),
        "a refresh without room succeeded"
    );
    site.lab.clock.advance(domain::Duration::from_secs(600));
    site.cycle().await?;
    ensure!(
        site.cells("SELECT id FROM silver.x").await?.len() == acknowledged,
        "silver misses rows"
    );
    Ok(())
}

async fn full_objects() -> Result<()> {
    // Large enough not to ride inline in the state.
    fill(Operation::PutObject, 600_000).await
}

async fn full_state() -> Result<()> {
    fill(Operation::Transact, 10).await
}

/// What `/healthz` answers: its status, and why.
async fn healthy(site: &Site) -> Result<(u16, String)> {
    let answer = site.send("GET", "/healthz", &[], "").await?;
    Ok((answer.status, answer.text()))
}

async fn health() -> Result<()> {
    for kind in [Operation::Transact, Operation::PutObject] {
        let faults = Arc::new(Faults::none());
        let site = faulty(&faults)?;
        ensure!(healthy(&site).await?.0 == 200, "nothing was tried");
        faults.set_rates(testkit::Rates {
            disk_full: 1.0,
            ..testkit::Rates::default()
        });
        let size = if kind == Operation::PutObject {
            600_000
        } else {
            10
        };
        let event = || json!({ "id": 1, "text": "x".repeat(size) }).to_string();
        let answer = {
            let posted = site.webhook("x", event());
            futures::pin_mut!(posted);
            loop {
                if let std::task::Poll::Ready(answer) = futures::poll!(posted.as_mut()) {
                    break answer?;
                }
                site.lab.clock.advance(domain::Duration::from_millis(50));
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        ensure!(answer.status == 503, "{} {}", answer.status, answer.text());
        let (status, why) = healthy(&site).await?;
        ensure!(
            status == 503 && why.contains("cannot be stored"),
            "{status} {why}"
        );
        // Whoever is sent nothing any more is tried again, and is well as soon as something is stored.
        site.lab.clock.advance(domain::Duration::from_secs(31));
        ensure!(healthy(&site).await?.0 == 200, "it is not tried again");
        faults.set_rates(testkit::Rates::default());
        ensure!(
            site.webhook("x", event()).await?.status == 202,
            "there is room"
        );
        ensure!(healthy(&site).await?.0 == 200, "it is stored");
    }
    Ok(())
}

/// The program under a limit on the size of any file it writes, which is what a full disk is to it.
async fn full_disk() -> Result<()> {
    let folder = Folder::new("name: test\n", &[])?;
    let mut command = Command::new("sh");
    // Blocks of 512 bytes or 1 KiB, as the shell likes: 2 to 4 MB. Ignored signals stay ignored across exec.
    command
        .arg("-c")
        .arg("trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\"")
        .arg(program::binary()?);
    command
        .arg("--project")
        .arg(folder.path())
        .args(["serve", "--listen", "127.0.0.1:0"]);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HEADWATER_"))
    {
        command.env_remove(name);
    }
    let mut served = Served::spawn(command, &[]).await?;
    let client = served.client();
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    for id in 0..4_000_u64 {
        let event = json!({ "id": id, "text": "x".repeat(3_000) });
        let answer = client
            .post("/api/ingest/webhook/x", &event)
            .await
            .with_context(|| format!("event {id}"))?;
        match answer.status {
            202 => acknowledged.push(id),
            503 => refused += 1,
            other => anyhow::bail!("event {id}: {other} {}", answer.text()),
        }
        if refused == 20 {
            break;
        }
    }
    ensure!(served.is_alive()?, "the server is gone");
    served.kill()?;
    let served = Served::start(folder.path(), &[])
        .await
        .context("start again with room")?;
    let rows = served
        .client()
        .query("SELECT DISTINCT (payload->>'id')::BIGINT AS id FROM landing.x")
        .await?;
    let found: BTreeSet<u64> = rows.iter().filter_map(|row| row["id"].as_u64()).collect();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|id| !found.contains(id))
        .collect();
    ensure!(
        lost.is_empty(),
        "{refused} refused, {} of {} lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    ensure!(
        refused > 0,
        "the limit was never met: {} acknowledged",
        acknowledged.len()
    );
    Ok(())
}
