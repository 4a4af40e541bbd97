//! Search as the simulation does it: an index is one object that says of which data it is and what it found there, and a
//! search reads all of it. Who builds, when, and which one answers is the real registry's to decide.

use std::sync::Arc;

use arrow::array::AsArray;
use async_trait::async_trait;
use domain::Duration;
use futures::TryStreamExt;
use object_store::{ObjectStoreExt, path::Path};
use ports::{
    Clock as _, Error, Jobs, Kind, Objects, Result, Search,
    entries::DataSet,
    jobs::{IndexJob, RebuildJob, ReplayJob, UpkeepJob},
    search::{Hit, IndexFile, Near, Plan, Progress, Words},
    tables::Rows,
};
use rand::Rng;

use crate::{
    gate::{Gate, silence},
    mail::Mailbox,
    scheduler::{Call, Scheduler},
};

/// Longest an index takes beside its calls.
const WORK: Duration = Duration::from_secs(3);

/// Indexes of one process.
#[derive(Debug)]
pub(crate) struct Finder {
    pub(crate) objects: Objects,
    pub(crate) scheduler: Arc<Scheduler>,
}

fn path(set: &DataSet, name: &str) -> Path {
    format!("entries/{}/{}/{name}", set.id, set.generation)
        .as_str()
        .into()
}

/// What an index says of itself: the data it is of, and the texts it found.
type Body = (String, Vec<String>);

#[async_trait]
impl Search for Finder {
    async fn build(
        &self,
        set: &DataSet,
        name: &str,
        _: &Plan,
        rows: Rows,
        progress: &Progress,
    ) -> Result<IndexFile> {
        let mut texts = Vec::new();
        let mut stream = rows.stream;
        while let Some(batch) = stream.try_next().await? {
            progress.add(batch.num_rows() as u64);
            let column = batch.column(0).as_string_opt::<i32>();
            let column = column.ok_or_else(|| Error::new(Kind::Invalid, "index", name))?;
            texts.extend(column.iter().flatten().map(str::to_owned));
        }
        let longest = i64::try_from(WORK.as_micros()).unwrap_or(0);
        let nap = self.scheduler.draw(|dice| dice.random_range(0..=longest));
        let until = domain::Timestamp(self.scheduler.clock.now().0 + nap);
        self.scheduler.clock.sleep_until(until).await;
        let body: Body = (set.to_string(), texts);
        let body = serde_json::to_vec(&body)
            .map_err(|error| Error::new(Kind::Invalid, "write index", name).because(error))?;
        let bytes = body.len() as u64;
        self.objects.put(&path(set, name), body.into()).await?;
        Ok(IndexFile {
            set: set.clone(),
            name: name.to_owned(),
            bytes,
            tail: bytes,
        })
    }

    async fn words(&self, index: &IndexFile, words: &Words) -> Result<Vec<Hit>> {
        let found = self.objects.get(&path(&index.set, &index.name)).await?;
        let corrupt =
            |why: String| Error::new(Kind::Corrupt, "read index", &index.name).because(why);
        let bytes = found.bytes().await?;
        let (of, texts): Body =
            serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
        if of != index.set.to_string() || bytes.len() as u64 != index.bytes {
            return Err(corrupt(format!("it is of {of}")));
        }
        let hits = texts.iter().enumerate().filter_map(|(row, text)| {
            let row = u32::try_from(row).ok()?;
            (text == &words.query).then_some(Hit { row, score: 1.0 })
        });
        Ok(hits.collect())
    }

    async fn near(&self, index: &IndexFile, _: &Near) -> Result<Vec<Hit>> {
        Err(Error::new(Kind::Invalid, "search", &index.name))
    }
}

/// Jobs on their way to the functions that build.
#[derive(Debug)]
pub(crate) struct Posting {
    pub(crate) mailbox: Arc<Mailbox<IndexJob>>,
    pub(crate) gate: Gate,
}

#[async_trait]
impl Jobs for Posting {
    async fn index(&self, job: &IndexJob) -> Result<()> {
        let work = async {
            let group = Some(format!("{}/{}", job.entry, job.index));
            self.mailbox.put(job.clone(), group, None);
            Ok(())
        };
        let subject = format!("job {}", job.job);
        self.gate.call(Call::Send, subject, silence, work).await
    }

    async fn rebuild(&self, job: &RebuildJob) -> Result<()> {
        // No entry of the simulation is a query.
        Err(Error::new(Kind::Invalid, "rebuild", &job.entry))
    }

    async fn replay(&self, job: &ReplayJob) -> Result<()> {
        // Nothing of the simulation is in quarantine.
        Err(Error::new(Kind::Invalid, "replay rows of", &job.model))
    }

    async fn upkeep(&self, _: &UpkeepJob) -> Result<()> {
        // Maintenance and sweeps have processes of their own here, which do more of both.
        Err(Error::new(Kind::Invalid, "ask for", "upkeep"))
    }
}
