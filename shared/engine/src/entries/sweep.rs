//! The sweep: what is expired goes, and what it leaves. Every step may be done twice, or by two at once.

use domain::{
    Duration,
    entry::{ENTRIES, EntryId, SUPERSEDED, is_due},
    items,
};
use ports::{
    Result,
    state::{Expect, Span, Write},
};
use serde::Serialize;

use super::{
    Registry,
    build::set,
    list::{self, Listed, PAGE_MAX},
    stored::Superseded,
};
use crate::lasting::lasting;

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Entries that were expired and are gone.
    pub evicted: u64,
    /// Builds that nobody holds any more.
    pub abandoned: u64,
    /// Superseded generations whose grace time was over; uploads that were never committed are among them.
    pub superseded: u64,
    /// What went wrong; the next sweep tries again.
    pub errors: Vec<String>,
}

/// Between two sweeps of a process that serves.
const EVERY: Duration = Duration::from_secs(60);

/// Sweeps every minute, for ever: for a process that serves. What goes wrong is logged and tried again.
pub async fn rounds(registry: Registry) {
    if !registry.world.live.maintenance.enabled {
        return;
    }
    let rounds = || async {
        loop {
            let next = registry.now() + EVERY;
            registry.world.clock.sleep_until(next).await;
            match registry.sweep().await {
                Ok(swept) => swept
                    .errors
                    .iter()
                    .for_each(|error| tracing::warn!(error, "an entry could not be swept")),
                Err(error) => tracing::warn!(error = error.chain(), "entries could not be swept"),
            }
        }
    };
    lasting(&*registry.world.clock, "sweeping of entries", rounds).await;
}

impl Registry {
    /// Removes what is expired, builds that were given up, and superseded generations.
    ///
    /// # Errors
    /// What the state store answers; what goes wrong with one entry is in the report.
    pub async fn sweep(&self) -> Result<Swept> {
        let mut swept = Swept::default();
        let mut next = Some(Span::prefix(ENTRIES, "", PAGE_MAX));
        while let Some(span) = next {
            let items = self.world.state.query(&span).await?;
            for item in &items {
                let listed = list::listed(item)?;
                if let Err(error) = self.look_at(&listed, &mut swept).await {
                    swept.errors.push(error.chain());
                }
            }
            next = span.after(&items);
        }
        self.superseded(&mut swept).await?;
        if self.world.entries.has_addresses() {
            self.sweep_uploads(&mut swept).await?;
        }
        Ok(swept)
    }

    async fn look_at(&self, listed: &Listed, swept: &mut Swept) -> Result<()> {
        let due = is_due(&listed.summary, self.settings.stale_max, self.now());
        match (listed.summary.ready, due) {
            (true, true) => swept.evicted += u64::from(self.evict_due(&listed.id).await?),
            (false, _) => swept.abandoned += u64::from(self.give_up(&listed.id).await?),
            (true, false) => {}
        }
        Ok(())
    }

    /// Evicts an entry that is due still, and that nobody rebuilds.
    async fn evict_due(&self, id: &EntryId) -> Result<bool> {
        let both = self.both(id).await?;
        let (now, stale_max) = (self.now(), self.settings.stale_max);
        let due = both
            .row()
            .is_some_and(|row| is_due(&row.into(), stale_max, now));
        let held = both.lease().is_some_and(|lease| lease.is_held(now));
        if !due || held || !self.remove(id, &both).await? {
            return Ok(false);
        }
        self.clear(id, &both).await?;
        Ok(true)
    }

    /// Removes the row of a build whose lease is over.
    async fn give_up(&self, id: &EntryId) -> Result<bool> {
        let both = self.both(id).await?;
        let held = both.lease().is_some_and(|lease| lease.is_held(self.now()));
        if held || both.content().is_some() || !self.remove(id, &both).await? {
            return Ok(false);
        }
        self.clear(id, &both).await?;
        Ok(true)
    }

    /// Removes superseded generations that nobody can be reading any more.
    async fn superseded(&self, swept: &mut Swept) -> Result<()> {
        let mut next = Some(self.past_grace(SUPERSEDED));
        while let Some(span) = next {
            let items = self.world.state.query(&span).await?;
            for item in &items {
                let Superseded { id, generation } = item.decode()?;
                match self.world.entries.delete(&set(&id, &generation)).await {
                    Ok(()) => {
                        let key = item.key.clone();
                        let expect = Expect::Any;
                        self.transact(vec![Write::Delete { key, expect }]).await?;
                        swept.superseded += 1;
                    }
                    Err(error) => swept.errors.push(error.chain()),
                }
            }
            next = span.after(&items);
        }
        Ok(())
    }

    /// Items of a list in the order of moments, of which the grace is over.
    pub(super) fn past_grace(&self, list: &str) -> Span {
        let grace = i64::try_from(self.settings.grace.as_micros()).unwrap_or(i64::MAX);
        let until = domain::Timestamp(self.now().0.saturating_sub(grace).saturating_add(1));
        let mut span = Span::prefix(list, "", PAGE_MAX);
        span.until = Some(items::moment(until, ""));
        span
    }
}
