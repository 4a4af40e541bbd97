//! Who builds: one at a time, and only with the token of the lease (E-3).

use anyhow::{Result, ensure};
use domain::Duration;
use libtest_mimic::Trial;
use serde_json::json;
use tests::parquet;

use super::{Desk, kind, rows};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "entries::a_builder_that_was_taken_over_commits_nothing",
            fenced,
        ),
        test_async("entries::an_evicted_build_commits_nothing", evicted),
        test_async("entries::a_build_that_fails_leaves_what_was_there", failed),
        test_async("entries::committing_twice_is_committing_once", twice),
        test_async("entries::builds_that_were_given_up_are_swept", abandoned),
        test_async("entries::tenants_share_nothing", tenants),
        test_async("entries::lists_have_filters_and_pages", lists),
    ]
}

async fn fenced() -> Result<()> {
    let desk = Desk::new()?;
    let old = desk.lease(json!({ "lease": 10 })).await?;
    ensure!(
        desk.upload(&old, parquet::of_objects(&[json!({ "n": 1 })])?)
            .await?
            .status
            == 200
    );
    let waiting = desk.send("POST", "/lease", json!({})).await?;
    ensure!(waiting.status == 202, "{}", waiting.text());
    // The builder was killed; its time is over.
    desk.site.lab.clock.advance(Duration::from_secs(10));
    let new = desk.lease(json!({})).await?;
    for call in ["/commit", "/abort"] {
        let late = desk.send("POST", call, json!({ "token": old })).await?;
        ensure!(
            late.status == 409 && kind(&late)?.ends_with("lease-lost"),
            "{}",
            late.text()
        );
    }
    let late = desk.upload(&old, parquet::of_objects(&rows())?).await?;
    ensure!(late.status == 409, "{}", late.text());
    ensure!(
        desk.upload(&new, parquet::of_objects(&[json!({ "n": 2 })])?)
            .await?
            .status
            == 200
    );
    ensure!(desk.commit(&new).await?.status == 200);
    ensure!(desk.commit(&old).await?.status == 409);
    ensure!(desk.query("SELECT n FROM this").await? == json!([{ "n": 2 }]));
    // What the killed one uploaded is named by nothing, and goes.
    ensure!(desk.data_sets().await? == 2);
    let call = |what: &'static str| desk.site.send("POST", what, &[], "");
    let swept = call("/api/materialize/sweep").await?.json()?;
    ensure!(swept["superseded"] == 1, "{swept}");
    ensure!(desk.data_sets().await? == 1);
    let done = call("/api/materialize/reconcile").await?;
    ensure!(
        done.json()? == json!({ "deleted": 0, "lost": 0, "indexes": 0 }),
        "{}",
        done.text()
    );
    ensure!(desk.query("SELECT n FROM this").await? == json!([{ "n": 2 }]));
    Ok(())
}

async fn evicted() -> Result<()> {
    let desk = Desk::new()?;
    let token = desk.lease(json!({})).await?;
    desk.upload(&token, parquet::of_objects(&rows())?).await?;
    ensure!(desk.send("DELETE", "", json!({})).await?.status == 200);
    let late = desk.commit(&token).await?;
    ensure!(late.status == 409, "{}", late.text());
    ensure!(desk.get().await?.status == 404);
    ensure!(desk.listed().await? == 0 && desk.data_sets().await? == 0);
    ensure!(desk.send("DELETE", "", json!({})).await?.status == 404);
    Ok(())
}

async fn failed() -> Result<()> {
    let desk = Desk::new()?;
    let spec = json!({ "ttl": 60, "mode": "swr" });
    desk.build(spec.clone(), &rows()).await?;
    desk.site.lab.clock.advance(Duration::from_secs(61));
    let token = desk.lease(spec.clone()).await?;
    desk.upload(&token, parquet::of_objects(&[json!({ "n": 1 })])?)
        .await?;
    ensure!(
        desk.send("POST", "/abort", json!({ "token": token }))
            .await?
            .status
            == 200
    );
    let found = desk.get().await?;
    ensure!(
        found.header("headwater-entry") == "stale",
        "{}",
        found.text()
    );
    ensure!(desk.data_sets().await? == 1);
    // For a while nobody else is sent to try; then one is.
    let next = desk.send("POST", "/lease", spec.clone()).await?;
    ensure!(
        next.status == 200 && next.json()?.get("lease").is_none(),
        "{}",
        next.text()
    );
    desk.site.lab.clock.advance(Duration::from_secs(5));
    desk.lease(spec).await?;
    Ok(())
}

async fn twice() -> Result<()> {
    let desk = Desk::new()?;
    let token = desk.lease(json!({})).await?;
    desk.upload(&token, parquet::of_objects(&rows())?).await?;
    let (first, second) = (desk.commit(&token).await?, desk.commit(&token).await?);
    ensure!(
        (first.status, second.status) == (200, 200),
        "{}",
        second.text()
    );
    ensure!(first.json()? == second.json()?);
    Ok(())
}

async fn abandoned() -> Result<()> {
    let desk = Desk::new()?;
    let token = desk.lease(json!({ "lease": 10 })).await?;
    desk.upload(&token, parquet::of_objects(&rows())?).await?;
    let sweep = || desk.site.send("POST", "/api/materialize/sweep", &[], "");
    ensure!(sweep().await?.json()?["abandoned"] == 0);
    ensure!(desk.get().await?.status == 202);
    desk.site.lab.clock.advance(Duration::from_secs(10));
    ensure!(sweep().await?.json()?["abandoned"] == 1);
    ensure!(desk.listed().await? == 0 && desk.data_sets().await? == 0);
    ensure!(desk.commit(&token).await?.status == 409);
    Ok(())
}

async fn tenants() -> Result<()> {
    let desk = Desk::new()?;
    let print = desk.id.clone();
    desk.build(json!({ "key": "r" }), &rows()).await?;
    let other = Desk {
        id: format!("{print}@shop"),
        ..desk
    };
    ensure!(other.get().await?.status == 404);
    other
        .build(json!({ "key": "r" }), &[json!({ "n": 1 })])
        .await?;
    let list = other
        .site
        .send("GET", "/api/materialize?tenant=shop", &[], "")
        .await?
        .json()?;
    ensure!(
        list["entries"].as_array().is_some_and(|all| all.len() == 1),
        "{list}"
    );
    ensure!(list["entries"][0]["tenant"] == "shop", "{list}");
    other.send("DELETE", "", json!({})).await?;
    let first = Desk { id: print, ..other };
    ensure!(first.get().await?.status == 200);
    Ok(())
}

async fn lists() -> Result<()> {
    let mut desk = Desk::new()?;
    for n in 0..5_i64 {
        let call = domain::fingerprint::Call::new("report", 1).with(n);
        desk.id = call.fingerprint()?.to_string();
        let key = if n == 0 { "first" } else { "others" };
        match n {
            4 => drop(desk.lease(json!({ "key": key })).await?),
            _ => drop(
                desk.build(json!({ "key": key, "ttl": n * 60 }), &rows())
                    .await?,
            ),
        }
    }
    desk.site.lab.clock.advance(Duration::from_secs(61));
    for (asked, expected) in [
        ("", 5),
        ("?key=first", 1),
        ("?key=others", 4),
        ("?status=building", 1),
        ("?status=ready&expired=false", 2),
        ("?expired=true", 2),
    ] {
        let path = format!("/api/materialize{asked}");
        let list = desk.site.send("GET", &path, &[], "").await?.json()?;
        let found = list["entries"].as_array().map_or(0, Vec::len);
        ensure!(found == expected, "{asked}: {found}");
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/materialize?limit=2{after}");
        let page = desk.site.send("GET", &path, &[], "").await?.json()?;
        let ids = page["entries"].as_array().cloned().unwrap_or_default();
        ensure!(ids.len() <= 2);
        seen.extend(ids.iter().map(|one| one["id"].to_string()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    ensure!((seen.len(), count) == (5, 5), "{seen:?}");
    Ok(())
}
