//! The Rust client: what callers of a wrapped function are promised, whatever becomes of the registry.

mod away;
mod frames;
mod identity;
mod links;
mod postgres;
mod searching;
mod sending;
mod sharing;
mod storing;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::Result;
use client::{Client, MaterializedFrame, Settings, materialize};
use libtest_mimic::Trial;
use serde::{Deserialize, Serialize};
use tests::{addresses::Addresses, site::Site, transport::Direct};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = away::trials();
    trials.extend(frames::trials());
    trials.extend(identity::trials());
    trials.extend(links::trials());
    trials.extend(postgres::trials());
    trials.extend(searching::trials());
    trials.extend(sending::trials());
    trials.extend(sharing::trials());
    trials.extend(storing::trials());
    trials
}

/// A registry, the way to it, a client, and a source that counts.
struct Bench {
    site: Site,
    way: Arc<Direct>,
    source: Source,
}

/// What the wrapped functions read.
#[derive(Clone, Debug)]
struct Source {
    client: Client,
    calls: Arc<AtomicUsize>,
}

impl Source {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bench {
    fn new() -> Result<Self> {
        Self::told("materialize:\n  grace: 0s\n", Settings::default())
    }

    fn told(yaml: &str, settings: Settings) -> Result<Self> {
        Ok(Self::on(Site::in_memory(&[], yaml)?, settings))
    }

    fn on(site: Site, settings: Settings) -> Self {
        Self::beside(site, None, settings)
    }

    fn beside(site: Site, store: Option<Arc<Addresses>>, settings: Settings) -> Self {
        let way = Direct::beside(site.router(), store);
        let source = Source {
            client: way.told(settings),
            calls: Arc::default(),
        };
        Self { site, way, source }
    }

    /// Another process: it shares the registry and the source, and nothing else.
    fn other(&self) -> Source {
        Source {
            client: self.way.client(),
            calls: self.source.calls.clone(),
        }
    }

    async fn data_sets(&self) -> Result<usize> {
        Ok(self.site.lab.world.entries.list().await?.len())
    }

    async fn listed(&self) -> Result<usize> {
        let answer = self.site.send("GET", "/api/materialize", &[], "").await?;
        Ok(answer.json()?["entries"].as_array().map_or(0, Vec::len))
    }
}

/// A row of the function that most tests wrap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Signup {
    channel: String,
    n: i64,
}

fn signups(more: i64) -> Vec<Signup> {
    let row = |channel: &str, n| Signup {
        channel: channel.to_owned(),
        n,
    };
    vec![row("organic", 10 + more), row("paid", 7)]
}

#[materialize(key = "signups", ttl = 60, client = on.client, key_fn = |_, more: &i64| *more)]
async fn counted(on: Source, more: i64) -> Result<Vec<Signup>, std::io::Error> {
    on.called();
    Ok(signups(more))
}

#[materialize(key = "guarded", ttl = 60, client = on.client, on_error = "raise", key_fn = |_| ())]
async fn guarded(on: Source) -> Vec<Signup> {
    on.called();
    signups(0)
}

/// A frame's rows.
async fn rows(frame: &MaterializedFrame) -> Result<Vec<Signup>> {
    Ok(frame.rows().await?)
}
