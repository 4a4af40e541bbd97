//! Rows that nobody wants: out of every build, whatever it builds and why.

use domain::items::{self, BadRow};
use engine::{batch, cycle::Silent, refresh::Refreshed};
use ports::state::{Expect, Key, Write};

use super::*;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "quarantine::a_dropped_row_comes_back_with_no_build",
            for_good,
        ),
        test_async(
            "quarantine::a_row_is_out_since_it_broke_the_model_first",
            since,
        ),
        test_async(
            "quarantine::what_was_dropped_of_one_input_is_not_of_another",
            another,
        ),
        test_async(
            "quarantine::rows_of_an_input_before_are_dropped_with_the_others",
            both,
        ),
        test_async(
            "quarantine::a_dropped_row_of_a_model_of_batch_runs_is_taken_back",
            of_batches,
        ),
        test_async(
            "quarantine::dropped_rows_are_taken_back_as_far_as_there_is_room",
            at_once,
        ),
        test_async(
            "quarantine::an_edit_of_an_auto_model_tries_every_row_again",
            edited,
        ),
        test_async(
            "quarantine::a_full_run_of_one_model_rebuilds_that_one",
            only_named,
        ),
    ]
}

async fn full(site: &Site, only: &[&str]) -> Result<engine::cycle::Report> {
    let only: Vec<_> = only.iter().map(|name| table(name)).collect::<Result<_>>()?;
    let run = batch::run(&site.lab.world, &only, true, &Silent).await;
    run.map_err(|error| rows::chain(&error))
}

async fn drop_rows(site: &Site, ids: &[u64]) -> Result<()> {
    let silver = table("silver.orders")?;
    let done = engine::quarantine::drop_rows(&site.lab.world, &silver, Some(ids)).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.dropped == ids.len() as u64, "{done:?}");
    Ok(())
}

async fn ids(site: &Site, of: &str, expected: Value) -> Result<()> {
    let sql = format!("SELECT id FROM {of} ORDER BY id");
    expect(&site.lab, &sql, expected).await
}

async fn for_good() -> Result<()> {
    let mut site = Site::in_memory(&[orders(STRICT), copy()], "")?;
    send(&site, &[(1, "10"), (2, "two"), (3, "three")]).await?;
    site.cycle().await?;
    drop_rows(&site, &[2]).await?;
    full(&site, &[]).await?;
    let left = listed(&site).await?;
    ensure!(left.len() == 1 && left[0].0 == 3, "{left:?}");
    // It would fit now, and is not wanted all the same.
    site.lab.set_models(&[orders(LENIENT), copy()])?;
    for only in [&["silver.orders"][..], &["gold.copy"], &[]] {
        full(&site, only).await?;
        ids(&site, "silver.orders", json!([[1], [3]])).await?;
    }
    ids(&site, "gold.copy", json!([[1], [3]])).await?;
    ensure!(listed(&site).await?.is_empty(), "it fits");
    send(&site, &[(4, "40")]).await?;
    site.cycle().await?;
    ids(&site, "gold.copy", json!([[1], [3], [4]])).await?;
    // Who names it takes it back.
    let silver = table("silver.orders")?;
    let done = engine::quarantine::replay(&site.lab.world, &silver, None).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.replayed == 0, "not all: {done:?}");
    // With one that is not there nothing happens.
    let done = engine::quarantine::replay(&site.lab.world, &silver, Some(&[2, 99])).await;
    let told = done.err().map(|error| error.chain()).unwrap_or_default();
    ensure!(told.contains("99"), "{told}");
    ensure!(listed(&site).await?.is_empty(), "it stays dropped");
    let done = engine::quarantine::replay(&site.lab.world, &silver, Some(&[2])).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.replayed == 1 && done.added == 1, "{done:?}");
    site.cycle().await?;
    ids(&site, "gold.copy", json!([[1], [2], [3], [4]])).await
}

async fn another() -> Result<()> {
    let mut site = Site::in_memory(&[orders(STRICT)], "")?;
    send(&site, &[(1, "one"), (2, "2")]).await?;
    let headers = [("content-type", "application/x-ndjson")];
    let path = "/api/ingest/webhook/others";
    let line = r#"{"id": 7, "amount": 70}"#;
    let answer = site.send("POST", path, &headers, line).await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    site.cycle().await?;
    drop_rows(&site, &[1]).await?;
    let others = STRICT.replace("landing.orders", "landing.others");
    site.lab.set_models(&[orders(&others)])?;
    full(&site, &[]).await?;
    ids(&site, "silver.orders", json!([[7]])).await
}

/// Rows of the input before are listed first; those of this one are dropped for good all the same.
async fn both() -> Result<()> {
    let mut site = Site::in_memory(&[orders(STRICT)], "")?;
    send(&site, &[(1, "one")]).await?;
    site.cycle().await?;
    let headers = [("content-type", "application/x-ndjson")];
    let path = "/api/ingest/webhook/others";
    let lines = "{\"id\": 6, \"amount\": 60}\n{\"id\": 7, \"amount\": \"seven\"}\n";
    let answer = site.send("POST", path, &headers, lines).await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    let others = |sql: &str| orders(&sql.replace("landing.orders", "landing.others"));
    site.lab.set_models(&[others(STRICT)])?;
    site.cycle().await?;
    let list = listed(&site).await?;
    ensure!(list.len() == 2, "{list:?}");
    let silver = table("silver.orders")?;
    let done = engine::quarantine::drop_rows(&site.lab.world, &silver, None).await;
    done.map_err(|error| rows::chain(&error))?;
    ensure!(listed(&site).await?.is_empty(), "all are dropped");
    // It would fit now.
    site.lab.set_models(&[others(LENIENT)])?;
    full(&site, &[]).await?;
    ids(&site, "silver.orders", json!([[6]])).await
}

async fn of_batches() -> Result<()> {
    let silver = model(
        "silver.orders",
        json!({ "live": "false", "incremental_filter": null }),
        STRICT,
        &[],
    );
    let site = Site::in_memory(&[silver], "")?;
    send(&site, &[(1, "one"), (2, "20")]).await?;
    let run = batch::run(&site.lab.world, &[], false, &Silent).await;
    run.map_err(|error| rows::chain(&error))?;
    drop_rows(&site, &[1]).await?;
    full(&site, &[]).await?;
    ensure!(listed(&site).await?.is_empty(), "it is dropped");
    let silver = table("silver.orders")?;
    let done = engine::quarantine::replay(&site.lab.world, &silver, Some(&[1])).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(
        done.left.len() == 1,
        "it breaks the model as before: {done:?}"
    );
    Ok(())
}

async fn edited() -> Result<()> {
    let sums = |cast: &str| {
        let sql = format!(
            "SELECT (payload->>'id')::BIGINT AS id, sum({cast}) AS total FROM landing.orders GROUP BY 1"
        );
        let extra = json!({ "incremental_strategy": "auto", "incremental_filter": null, "unique_key": null });
        model("silver.orders", extra, &sql, &[])
    };
    let mut site = Site::in_memory(&[sums("(payload->>'amount')::BIGINT")], "")?;
    send(&site, &[(1, "10"), (2, "two")]).await?;
    site.cycle().await?;
    ensure!(listed(&site).await?.len() == 1, "not listed");
    site.lab
        .set_models(&[sums("TRY_CAST(payload->>'amount' AS BIGINT)")])?;
    send(&site, &[(3, "30")]).await?;
    site.cycle().await?;
    let all = "SELECT id, total FROM silver.orders ORDER BY id";
    expect(&site.lab, all, json!([[1, 10], [2, null], [3, 30]])).await?;
    ensure!(listed(&site).await?.is_empty(), "it is in the model");
    Ok(())
}

async fn since() -> Result<()> {
    let site = Site::in_memory(&[orders(STRICT)], "")?;
    send(&site, &[(1, "one")]).await?;
    site.cycle().await?;
    let silver = table("silver.orders")?;
    let at = async || {
        let listing = engine::quarantine::list(&site.lab.world, Some(&silver)).await;
        let listing = listing.map_err(|error| rows::chain(&error))?;
        let row = listing.models[0].rows.first().context("a row")?;
        anyhow::Ok(row.at.clone())
    };
    let first = at().await?;
    site.lab.clock.advance(domain::Duration::from_secs(60));
    let done = engine::quarantine::replay(&site.lab.world, &silver, None).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.left.len() == 1, "{done:?}");
    ensure!(at().await? == first, "{} is not {first}", at().await?);
    Ok(())
}

async fn only_named() -> Result<()> {
    let site = Site::in_memory(&[orders(STRICT), copy()], "")?;
    send(&site, &[(1, "10")]).await?;
    site.cycle().await?;
    let (silver, gold) = (table("silver.orders")?, table("gold.copy")?);
    let report = full(&site, &["gold.copy"]).await?;
    let idle = matches!(report.models.get(&silver), Some(Refreshed::Idle));
    let built = matches!(report.models.get(&gold), Some(Refreshed::Built { .. }));
    ensure!(idle && built, "{:?}", report.models);
    // What it reads is brought up to date all the same.
    send(&site, &[(2, "20")]).await?;
    full(&site, &["gold.copy"]).await?;
    ids(&site, "gold.copy", json!([[1], [2]])).await
}

/// Has so many first rows of the input be in quarantine, and the others dropped.
async fn put_out(site: &Site, held: u64, all: u64) -> Result<()> {
    let silver = table("silver.orders")?;
    let input = table("landing.orders")?;
    let row = |sequence| BadRow {
        input: input.clone(),
        sequence,
        at: tests::world::START,
        reason: String::from("a test"),
    };
    let list = items::Quarantine {
        rows: (1..=held).map(row).collect(),
        dropped: (held + 1..=all).collect(),
        dropped_of: Some(input.clone()),
    };
    let key = Key::new(items::model(&silver), items::QUARANTINE);
    let write = Write::put(key, &list, Expect::Any);
    let outcome = site.lab.world.state.transact(vec![write]).await?;
    ensure!(outcome.is_committed());
    Ok(())
}

async fn at_once() -> Result<()> {
    let mut site = Site::in_memory(&[orders(STRICT)], "")?;
    let events: Vec<(u64, &str)> = (1..=1_200).map(|id| (id, "ten")).collect();
    send(&site, &events).await?;
    let silver = table("silver.orders")?;
    let replay = async |site: &Site, ids: &[u64]| {
        engine::quarantine::replay(&site.lab.world, &silver, Some(ids)).await
    };
    // Full of others, it takes none back.
    site.lab.set_models(&[orders(LENIENT)])?;
    site.cycle().await?;
    put_out(&site, 1_000, 1_200).await?;
    let error = replay(&site, &[1_001]).await.err();
    let error = error.context("it was taken back")?;
    ensure!(error.kind == ports::Kind::TooLarge, "{}", error.chain());
    ensure!(listed(&site).await?.len() == 1_000);
    // Those for which there is room come first, and the others when they are named again.
    put_out(&site, 0, 1_200).await?;
    let all: Vec<u64> = (1..=1_200).collect();
    let done = replay(&site, &all).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.replayed == 1_000 && done.left.is_empty(), "{done:?}");
    ensure!(done.dropped == all[1_000..], "{done:?}");
    let done = replay(&site, &done.dropped).await;
    let done = done.map_err(|error| rows::chain(&error))?;
    ensure!(done.replayed == 200 && done.dropped.is_empty(), "{done:?}");
    ensure!(listed(&site).await?.is_empty());
    Ok(())
}
