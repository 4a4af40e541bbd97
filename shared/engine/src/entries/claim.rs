//! Looking up, or becoming the one who builds: at most one at a time, whoever asks.

use domain::{
    Duration, Timestamp,
    entry::{Decision, EntryId, Lease, Row, Spec, Status, decide},
};
use ports::{Result, state::Write};

use super::{
    ATTEMPTS, Ask, Entry, Registry, contended,
    stored::{Both, lease_key, put_row, row_key},
};

/// A caller that can build what is not there.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What it asks of the entry.
    pub ask: Ask,
    /// What it says of the entry, if it is to build it.
    pub spec: Spec,
    /// Who it is, for people.
    pub holder: String,
    /// How long it may build; zero is over at once.
    pub lease: Option<Duration>,
    /// How long it waits for somebody else's build.
    pub wait: Duration,
}

/// A lease that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The fencing token, to be shown with the upload and the commit.
    pub token: String,
    /// When others may take over.
    pub deadline: Timestamp,
}

/// What a claim brought.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// The entry.
    Hit(Box<Entry>),
    /// The expired entry. With a lease the caller is the one who rebuilds it.
    Stale(Box<Entry>, Option<Granted>),
    /// The caller builds.
    Build(Granted),
    /// Somebody else builds, and took longer than the caller waits.
    Wait {
        /// When they are taken over.
        until: Timestamp,
    },
}

/// Between two looks at somebody else's build: shorter at first.
const LOOK_MIN: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_millis(250);

impl Registry {
    /// Looks an entry up; when it has to be built and nobody does, gives the caller the lease.
    ///
    /// # Errors
    /// What the state store answers; `Conflict` when others keep being first.
    pub async fn claim(&self, id: &EntryId, claim: &Claim) -> Result<Claimed> {
        let give_up = self.now() + claim.wait.min(self.settings.wait_max);
        let mut look = LOOK_MIN;
        let mut lost = 0;
        loop {
            match self.try_claim(id, claim).await? {
                Some(Claimed::Wait { until }) if self.now() < give_up => {
                    let next = (self.now() + look).min(give_up).min(until);
                    self.world.clock.sleep_until(next).await;
                    look = (look * 2).min(LOOK_MAX);
                }
                Some(claimed) => return Ok(claimed),
                None if lost < ATTEMPTS => lost += 1,
                None => return Err(contended("claim entry", id)),
            }
        }
    }

    /// One try; none when somebody else was first.
    async fn try_claim(&self, id: &EntryId, claim: &Claim) -> Result<Option<Claimed>> {
        // Most are hits, which need no look at the lease.
        if let super::Found::Hit(entry) = self.lookup(id, claim.ask).await? {
            return Ok(Some(Claimed::Hit(entry)));
        }
        let both = self.both(id).await?;
        let ready = both.clone().ready(id);
        let fresh = match &ready {
            Some(entry) => Some(self.freshness(entry, claim.ask).await?),
            None => None,
        };
        let mode = claim.ask.mode.or(both.row().map(|row| row.spec.mode));
        let mode = mode.unwrap_or(claim.spec.mode);
        Ok(
            match (decide(fresh, both.lease(), mode, self.now()), ready) {
                (Decision::Hit, Some(entry)) => Some(Claimed::Hit(Box::new(entry))),
                (Decision::Stale { build: false }, Some(entry)) => {
                    Some(Claimed::Stale(Box::new(entry), None))
                }
                (Decision::Stale { build: true }, Some(entry)) => {
                    // Whoever loses the race for the lease is served all the same.
                    let granted = self.take(id, &both, claim).await?;
                    Some(Claimed::Stale(Box::new(entry), granted))
                }
                (Decision::Wait { until }, _) => Some(Claimed::Wait { until }),
                (Decision::Build | Decision::Hit | Decision::Stale { .. }, _) => {
                    self.take(id, &both, claim).await?.map(Claimed::Build)
                }
            },
        )
    }

    /// Takes the lease; none when somebody else was first.
    pub(super) async fn take(
        &self,
        id: &EntryId,
        both: &Both,
        claim: &Claim,
    ) -> Result<Option<Granted>> {
        let now = self.now();
        let token = self.world.chance.id(now);
        let lease = Lease {
            token: token.clone(),
            holder: claim.holder.clone(),
            since: now,
            deadline: now + claim.lease.unwrap_or(self.settings.lease),
            spec: claim.spec.clone(),
            resting: false,
        };
        let mut writes = vec![Write::put(lease_key(id), &lease, both.expect_lease())];
        if both.content().is_some() {
            // What is there stays until the build is committed.
            writes.push(Write::Check {
                key: row_key(id),
                expect: both.expect_row(),
            });
        } else {
            let row = Row {
                born: both.row().map_or(token.clone(), |row| row.born.clone()),
                spec: claim.spec.clone(),
                status: Status::Building { since: now },
            };
            writes.extend(put_row(id, &row, &[], both.expect_row()));
        }
        // What the one who is taken over has stored is named by nothing from now on.
        let before = both.lease().filter(|before| !before.resting);
        writes.extend(before.map(|before| self.leaving(id, &before.token)));
        let granted = Granted {
            token,
            deadline: lease.deadline,
        };
        Ok(self.transact(writes).await?.then_some(granted))
    }
}
