//! Who builds an index that was begun, or computes an entry that is stale: a task of this process, or whoever is sent the job.

use domain::{
    Duration, Timestamp,
    entry::{self, EntryId, IndexState, Lease, index_key},
};
use ports::{
    Result,
    error::chain,
    jobs::{IndexJob, RebuildJob},
    state::{Expect, Key, Outcome, Write},
};

use super::{
    ATTEMPTS, Entry, Refused, Registry, contended,
    index::{Held, key},
    query::MARGIN,
    stored::{StoredRow, lease_key, row_key},
};

/// What came of a job that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// It was carried out; the item of the index says how it ended.
    Done,
    /// Nothing was left to do: it had ended before, was taken over, or its entry has moved on.
    Over,
    /// Another delivery is at it, or died at it. It has to be delivered again at its deadline: before that the answer is the same.
    Busy(Timestamp),
}

impl Registry {
    /// Has an index built that was just begun. What the job before wrote goes.
    pub(super) async fn have_built(
        &self,
        entry: &Entry,
        begun: Held,
        before: Option<Held>,
    ) -> Result<()> {
        let before = before.filter(|held| held.index.generation == entry.content.generation);
        let Some(jobs) = &self.world.jobs else {
            self.spawn(entry, begun, before);
            return Ok(());
        };
        if let Some(before) = before {
            self.drop_file(entry, &before.index).await;
        }
        let job = IndexJob {
            entry: entry.id.clone(),
            index: begun.index.spec.name(),
            job: begun.index.job.clone(),
            version: begun.version,
        };
        let sent = jobs.index(&job).await;
        if sent.is_err() {
            self.unsent(entry, &begun).await;
        }
        sent
    }

    /// Nobody carries it out, as far as is known: whoever asks next need not wait for its deadline.
    async fn unsent(&self, entry: &Entry, begun: &Held) {
        let mut over = begun.index.clone();
        over.state = IndexState::Building {
            deadline: self.now(),
            rows_done: 0,
        };
        if let Err(error) = self.write_index(entry, &over, begun.version).await {
            tracing::warn!(entry = %entry.id, error = error.chain(), "a job that was not sent is left to its deadline");
        }
    }

    /// Builds in a task of its own.
    fn spawn(&self, entry: &Entry, begun: Held, before: Option<Held>) {
        let (registry, entry) = (self.clone(), entry.clone());
        tokio::spawn(async move {
            if let Some(before) = before {
                registry.drop_file(&entry, &before.index).await;
            }
            if let Err(error) = registry.carry_out(&entry, begun, None).await {
                tracing::warn!(entry = %entry.id, error = error.chain(), "an index was given up");
            }
        });
    }

    /// Carries out a job that was delivered, in at most so long: an index that takes longer has failed. Of several deliveries
    /// one takes it; when that one is not heard of until its deadline, the next begins another job in its place.
    ///
    /// # Errors
    /// `Unavailable` when a port does not answer: it has to be delivered again.
    pub async fn carry_out_job(&self, job: &IndexJob, time: Duration) -> Result<Carried> {
        let (id, until) = (&job.entry, self.now() + time);
        for _ in 0..ATTEMPTS {
            let keys = [
                Key::new(entry::entry(id), index_key(&job.index)),
                row_key(id),
            ];
            let mut items = self.world.state.get_many(&keys).await?.into_iter();
            let (index, row) = (items.next().flatten(), items.next().flatten());
            let (Some(index), Some(row)) = (index, row) else {
                return Ok(Carried::Over);
            };
            let held = Held::read(&index)?;
            let Some(entry) = StoredRow::read(&row)?.ready(id) else {
                return Ok(Carried::Over);
            };
            let is_of =
                held.index.job == job.job && held.index.generation == entry.content.generation;
            let deadline = match held.index.state {
                IndexState::Building { deadline, .. } if is_of => deadline,
                IndexState::Building { .. }
                | IndexState::Ready { .. }
                | IndexState::Failed { .. } => return Ok(Carried::Over),
            };
            let taken = if held.version == job.version {
                let renewed = self.renew(&entry, &held.index, held.version, 0).await?;
                renewed.map(|version| Held { version, ..held })
            } else if self.now() < deadline {
                return Ok(Carried::Busy(deadline));
            } else {
                self.replace(&entry, held, row.version).await?
            };
            if let Some(taken) = taken {
                self.carry_out(&entry, taken, Some(until)).await?;
                return Ok(Carried::Done);
            }
        }
        Err(contended("index", id))
    }

    /// Begins another job in the place of one that died; none when somebody else was first.
    async fn replace(&self, entry: &Entry, dead: Held, row: u64) -> Result<Option<Held>> {
        let (id, spec) = (&entry.id, &dead.index.spec);
        let next = self.next_job(entry, spec);
        let writes = vec![
            Write::put(key(id, spec), &next, Expect::Version(dead.version)),
            Write::Check {
                key: row_key(id),
                expect: Expect::Version(row),
            },
        ];
        let Outcome::Committed(versions) = self.world.state.transact(writes).await? else {
            return Ok(None);
        };
        self.drop_file(entry, &dead.index).await;
        Ok(Some(Held {
            index: next,
            version: versions.first().copied().unwrap_or_default(),
        }))
    }

    /// Has a query entry computed anew under a lease that was taken for it, behind the caller who is served what is there.
    pub(super) async fn have_rebuilt(&self, id: &EntryId, token: String, time: Duration) {
        let Some(jobs) = &self.world.jobs else {
            return;
        };
        let job = RebuildJob {
            entry: id.clone(),
            token,
            time,
        };
        if let Err(error) = jobs.rebuild(&job).await {
            tracing::warn!(entry = %id, error = error.chain(), "a rebuild was not sent");
            // Whoever asks in a while begins another.
            match self.abort(id, &job.token).await {
                // Somebody else has the lease, and there is nothing to give back.
                Ok(()) | Err(Refused::Fenced(_)) => {}
                Err(refused) => {
                    let error = chain(&refused);
                    tracing::warn!(entry = %id, error, "the lease of a rebuild that was not sent is left to its deadline");
                }
            }
        }
    }

    /// Computes an entry anew whose job was delivered, in at most so long. The delivery that takes it moves the lease to a
    /// token of its own, so that no other writes where it does (**E-3**); one that dies is taken over after its deadline, by
    /// the next caller.
    ///
    /// # Errors
    /// `Unavailable` when a port does not answer before the job was taken: it has to be delivered again.
    pub async fn carry_out_rebuild(&self, job: &RebuildJob, time: Duration) -> Result<Carried> {
        let id = &job.entry;
        let both = self.both(id).await?;
        let Some(lease) = both
            .lease()
            .filter(|lease| !lease.resting && lease.token == job.token)
        else {
            return Ok(Carried::Over);
        };
        let (now, time) = (self.now(), job.time.min(time));
        let taken = Lease {
            token: self.world.chance.id(now),
            since: now,
            deadline: now + time + MARGIN,
            ..lease.clone()
        };
        let writes = vec![
            Write::put(lease_key(id), &taken, both.expect_lease()),
            Write::Check {
                key: row_key(id),
                expect: both.expect_row(),
            },
        ];
        if !self.transact(writes).await? {
            return Err(contended("rebuild", id));
        }
        let built = self.build(id, taken.token, &taken.spec, time, false).await;
        if let Err(error) = built {
            tracing::warn!(entry = %id, error = error.told(), "a rebuild failed; the stale entry is served");
        }
        Ok(Carried::Done)
    }
}
