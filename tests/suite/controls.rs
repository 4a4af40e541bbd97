//! Controls of a deployment: its functions run only when something is announced.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use axum::{body::Body, extract::Request, response::Response};
use libtest_mimic::Trial;
use ports::{Queue, queue::Announcement};
use tests::{
    site::Site,
    world::{Adapter, Lab},
};
use tower::ServiceExt;

use crate::{bugs::merged, plain::test_async};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "controls::who_resumes_a_model_of_a_deployment_has_it_looked_at",
            resumed,
        ),
        test_async(
            "controls::feeds_that_are_kept_open_hold_nobody_else_up",
            many_feeds,
        ),
        test_async("controls::a_deployment_keeps_no_feed", no_feed),
    ]
}

/// A queue that keeps the names of the tables that are announced.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Queue for Heard {
    async fn send(&self, announcements: &[Announcement]) -> ports::Result<()> {
        let names = announcements.iter().map(|a| a.table.to_string());
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend(names);
        Ok(())
    }

    async fn receive(&self) -> ports::Result<Vec<Announcement>> {
        std::future::pending().await
    }
}

async fn resumed() -> Result<()> {
    let query = "SELECT payload->>'id' AS id, _seq FROM landing.x";
    let models = [merged("silver.x", "id", query)];
    let mut lab = Lab::new(Adapter::Memory, &models, domain::LiveSettings::default())?;
    let heard = Arc::new(Heard::default());
    lab.world.queue = heard.clone();
    let site = Site::driven(lab, "")?;
    for (action, announced) in [
        ("pause", Vec::new()),
        ("resume", vec!["silver.x".to_owned()]),
        ("refresh", vec!["silver.x".to_owned()]),
    ] {
        let path = format!("/api/live/models/silver.x/{action}");
        let answer = site.send("POST", &path, &[], "").await?;
        ensure!(answer.status == 200, "{action}: {}", answer.text());
        let found = heard.take();
        ensure!(found == announced, "{action}: {found:?}");
    }
    Ok(())
}

/// What does not end is not read: it is held.
async fn feed(site: &Site) -> Result<Response> {
    let request = Request::get("/api/live/events").body(Body::empty())?;
    Ok(site.router().oneshot(request).await?)
}

async fn no_feed() -> Result<()> {
    let lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    let site = Site::driven(lab, "")?;
    let refused = feed(&site).await?;
    ensure!(refused.status() == 409, "{}", refused.status());
    Ok(())
}

async fn many_feeds() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let mut held = Vec::new();
    for _ in 0..web::FEEDS_MAX {
        let feed = feed(&site).await?;
        ensure!(feed.status() == 200, "{}", feed.status());
        held.push(feed);
    }
    let refused = site.send("GET", "/api/live/events", &[], "").await?;
    ensure!(refused.status == 503, "{}", refused.text());
    ensure!(!refused.header("retry-after").is_empty());
    ensure!(refused.header("content-type") == "application/problem+json");
    ensure!(site.send("GET", "/healthz", &[], "").await?.status == 200);
    site.event("x", "{}").await?;
    // Whoever goes makes room for another.
    held.pop();
    ensure!(feed(&site).await?.status() == 200);
    Ok(())
}
