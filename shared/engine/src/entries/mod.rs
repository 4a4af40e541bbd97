//! Materialized entries: look up, build under a lease, serve, refresh, evict, sweep.
//!
//! The registry row of an entry decides that it exists; a hit is one read of it, and of nothing else when the payload rides
//! inline. Who builds holds a lease; the lease's token names the generation that is written and is asked for again by the
//! transaction that commits it. What is superseded or left behind is garbage, found by the sweep and by reconcile.
//!
//! ## Invariants
//! * **E-2** a ready row's data exists; what no row names is garbage
//! * **E-3** an old token commits nothing

mod build;
mod building;
mod claim;
mod evict;
mod index;
mod jobs;
mod link;
mod list;
mod lookup;
mod over;
mod payload;
mod query;
mod reconcile;
mod search;
mod sending;
mod shown;
mod stored;
mod sweep;
mod token;

use bytes::Bytes;
use domain::{
    Duration, EntrySettings, Timestamp,
    entry::{Content, EntryId, Mode, Row},
};
use ports::{Error, Kind, entries::DataSet};

use crate::World;

pub use build::Commit;
pub use claim::{Claim, Claimed, Granted};
pub use index::IndexShown;
pub use jobs::Carried;
pub use link::{LINK_LIFE, Link, Signed};
pub use list::{Filter, Listed, Page};
pub use lookup::{Ask, Found};
pub use over::Over;
pub use query::{Asked, Ran};
pub use reconcile::Reconciled;
pub use search::{HITS_MAX, SCORE, Sought, Wanted};
pub use sending::{ADDRESS_LIFE, DIRECT_MAX, Sending};
pub use shown::Shown;
pub use sweep::{Swept, rounds};
pub use token::{Reader, is_token};

/// How often a decision is taken anew when somebody else was first.
const ATTEMPTS: u32 = 8;

/// The registry of entries.
#[derive(Clone, Debug)]
pub struct Registry {
    world: World,
    settings: EntrySettings,
}

impl Registry {
    /// A registry in a world.
    #[must_use]
    pub fn new(world: World, settings: EntrySettings) -> Self {
        Self { world, settings }
    }

    /// The world it is in.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// What entries are held to.
    #[must_use]
    pub fn settings(&self) -> &EntrySettings {
        &self.settings
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.world.clock.now()
    }
}

/// A ready entry, as it was read.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub id: EntryId,
    /// Its row.
    pub row: Row,
    /// What it holds: that of the row.
    pub content: Content,
    /// The rows as one Arrow IPC stream, when they ride inline.
    pub payload: Option<Bytes>,
    version: u64,
}

impl Entry {
    fn set(&self) -> DataSet {
        DataSet {
            id: self.id.clone(),
            generation: self.content.generation.clone(),
        }
    }

    /// How long it is still good for, and after that may be served while it is rebuilt; none for ever.
    #[must_use]
    pub fn remaining(
        &self,
        settings: &EntrySettings,
        now: Timestamp,
    ) -> (Option<Duration>, Duration) {
        let left = self.content.expires_at.map(|expiry| expiry.since(now));
        let stale = match self.row.spec.mode {
            Mode::Swr => settings.stale_max,
            Mode::Strict => Duration::ZERO,
        };
        (left, stale)
    }
}

/// Why a request about entries is not followed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such entry, or none that can be read.
    #[error(
        "there is no entry `{0}` that can be read: it was never built, or is gone; `headwater entries list` shows those that are there, and a lease is the right to build it"
    )]
    Missing(EntryId),
    /// The token is not that of the lease (**E-3**).
    #[error(
        "the token is not that of the lease on `{0}`: it was taken over, given back or evicted, and commits nothing; take a new lease"
    )]
    Fenced(EntryId),
    /// A commit without data.
    #[error("nothing was uploaded for `{0}` under this token: upload before the commit")]
    NothingUploaded(EntryId),
    /// What was uploaded is no data for the entry; the build is over.
    #[error("the upload for `{0}` is refused and its lease given back: {1}")]
    Unfit(EntryId, String),
    /// A search of what no index is over.
    #[error(
        "no index of `{0}` is over {1}: have it indexed first, with `POST ../index` or `headwater entries index`"
    )]
    NotIndexed(EntryId, String),
    /// A search of an index that is being built.
    #[error(
        "index `{}` is {} by job {}, {} of {} rows are done: ask again, or with `wait`", .0.index, .0.status, .0.job, .0.rows_done, .0.row_count
    )]
    IndexNotReady(Box<IndexShown>),
    /// A search of an index whose build failed.
    #[error(
        "index `{}` could not be built: {}; ask for it again once that is mended", .0.index, .0.reason.as_deref().unwrap_or("for no reason that is known")
    )]
    IndexFailed(Box<IndexShown>),
    /// A token that reads another entry.
    #[error("this token reads another entry")]
    OtherEntry,
    /// A token that is asked to do more than read.
    #[error(
        "this token reads its entry, by `GET`, `query`, `search` and `vector-search`, and does nothing else: show a token of `auth.tokens`"
    )]
    OnlyReads,
    /// A token that reads nothing: unknown, expired, or its entry was evicted.
    #[error("this token reads nothing: it is unknown or expired, or its entry was evicted")]
    NoReader,
    /// A link that we did not make, or that is over.
    #[error(
        "this link leads nowhere: it is over, or was changed; look the entry up again for another"
    )]
    NoLink,
    /// What a port says.
    #[error(transparent)]
    Port(#[from] Error),
}

impl Refused {
    /// What went wrong, with its causes: what a log has to say.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Port(error) => error.chain(),
            other => other.to_string(),
        }
    }

    /// Something is wrong with the request itself.
    fn invalid(
        action: &'static str,
        subject: impl std::fmt::Display,
        why: impl Into<String>,
    ) -> Self {
        Self::Port(Error::new(Kind::Invalid, action, subject).because(why.into()))
    }
}

/// Nobody else was as persistent.
fn contended(action: &'static str, id: &EntryId) -> Error {
    Error::new(Kind::Conflict, action, id).because("others kept changing it; try again")
}
