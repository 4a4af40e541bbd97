//! Eviction, row first and data second; and refreshes that somebody asks for.

use domain::{
    Duration,
    entry::{self, EntryId, Row, Status},
};
use ports::{
    Error, Result,
    state::{Expect, Span, Write, query_all},
};

use super::{
    ATTEMPTS, Ask, Claim, Entry, Ran, Refused, Registry,
    build::set,
    contended,
    query::is_lost,
    stored::{Both, delete_row, lease_key, put_row},
};

/// Tokens of an entry that are read and removed at once.
const TOKENS: usize = 50;

impl Registry {
    /// Removes an entry: its row, then its data. A build under way commits nothing any more, and its tokens read nothing.
    /// Answers whether there was one.
    ///
    /// # Errors
    /// What the ports answer. When the data cannot be removed the row is gone all the same; reconcile removes the data.
    pub async fn evict(&self, id: &EntryId) -> Result<bool> {
        for _ in 0..ATTEMPTS {
            let both = self.both(id).await?;
            if both.row.is_none() && both.lease.is_none() {
                return Ok(false);
            }
            if self.remove(id, &both).await? {
                self.clear(id, &both).await?;
                return Ok(true);
            }
        }
        Err(contended("evict", id))
    }

    /// The transaction of an eviction: nothing of it happens when the row or the lease is not as it was read.
    pub(super) async fn remove(&self, id: &EntryId, both: &Both) -> Result<bool> {
        let mut writes = delete_row(id, both.expect_row()).to_vec();
        writes.push(Write::Delete {
            key: lease_key(id),
            expect: both.expect_lease(),
        });
        self.transact(writes).await
    }

    /// What an evicted entry leaves: data, indexes, and tokens that read nothing since the row they name is gone.
    pub(super) async fn clear(&self, id: &EntryId, both: &Both) -> Result<()> {
        for prefix in ["token#", entry::INDEX] {
            let span = Span::prefix(entry::entry(id), prefix, TOKENS);
            for items in query_all(&*self.world.state, span).await?.chunks(TOKENS) {
                let delete = |item: &ports::state::Item| Write::Delete {
                    key: item.key.clone(),
                    // An index that somebody begins for the entry come again is not of the one that went.
                    expect: Expect::Version(item.version),
                };
                self.transact(items.iter().map(delete).collect()).await?;
            }
        }
        let generations = both.content().map(|content| content.generation.clone());
        let begun = both.lease().map(|lease| lease.token.clone());
        let mut failed: Option<Error> = None;
        for generation in generations.into_iter().chain(begun) {
            if let Err(error) = self.world.entries.delete(&set(id, &generation)).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Has an entry computed anew: a query now, anything else by the next caller, who finds it expired.
    ///
    /// # Errors
    /// [`Refused::Missing`] when there is none; what running the query brings.
    pub async fn refresh(&self, id: &EntryId, time: Duration) -> Result<Ran, Refused> {
        for _ in 0..ATTEMPTS {
            let both = self.both(id).await?;
            let Some(entry) = both.clone().ready(id) else {
                return Err(Refused::Missing(id.clone()));
            };
            if entry.row.spec.query.is_none() {
                if self.expire(&entry).await? {
                    return Ok(Ran::Stale(Box::new(entry)));
                }
                continue;
            }
            if let Some(lease) = both.lease().filter(|lease| lease.is_held(self.now())) {
                return Ok(Ran::Wait {
                    id: id.clone(),
                    until: lease.deadline,
                });
            }
            let claim = Claim {
                ask: Ask::default(),
                spec: entry.row.spec.clone(),
                holder: String::from("refresh"),
                lease: Some(time + self.settings.lease),
                wait: Duration::ZERO,
            };
            if let Some(granted) = self.take(id, &both, &claim).await? {
                let built = self.build(id, granted.token, &claim.spec, time, false);
                match built.await {
                    // Evicted, or taken over: the next look says which.
                    Err(error) if is_lost(&error) => {}
                    built => return built.map(|entry| Ran::Built(Box::new(entry))),
                }
            }
        }
        Err(contended("refresh", id).into())
    }

    /// Makes an entry expire now.
    async fn expire(&self, entry: &Entry) -> Result<bool> {
        let mut content = entry.content.clone();
        content.expires_at = Some(self.now());
        let row = Row {
            status: Status::Ready(content),
            ..entry.row.clone()
        };
        let payload = entry.payload.clone().unwrap_or_default();
        let writes = put_row(&entry.id, &row, &payload, Expect::Version(entry.version));
        self.transact(writes.to_vec()).await
    }
}
