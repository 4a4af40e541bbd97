//! Uploads that do not come through us: a builder is given an address of the object store, sends its file there, and commits.
//!
//! Nothing of it is believed: the commit looks at what lies there as an upload of ours is looked at, in a few ranges. An address
//! makes the file of one generation once and replaces none, so what was committed stays as it was looked at; a generation whose
//! lease is lost nobody can name again (**E-3**). Before an address is given it is put on the list that the sweep works off: what
//! is sent and never committed is found by it, however late it came.

use std::collections::BTreeMap;

use domain::{
    Duration, Timestamp,
    entry::{EntryId, SUPERSEDED, UPLOADS},
    items,
};
use ports::{
    Error, Kind,
    state::{Expect, Item, Key, Write},
};

use super::{Refused, Registry, Swept, build::is_of, stored::Superseded};

/// Longest upload that is best sent through us where addresses can be had: a function takes requests of 6 MB, in which bytes
/// grow by a third.
pub const DIRECT_MAX: u64 = 4 << 20;
/// How long an address can begin to be used.
pub const ADDRESS_LIFE: Duration = Duration::from_secs(900);

/// Where a builder sends its file: one PUT with these headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The address.
    pub href: String,
    /// Headers without which it is refused.
    pub headers: BTreeMap<String, String>,
    /// From when on it is refused.
    pub expires_at: Timestamp,
}

impl Registry {
    /// Longest upload that is to come through us; none when all are.
    #[must_use]
    pub fn direct_max(&self) -> Option<u64> {
        self.world.entries.has_addresses().then_some(DIRECT_MAX)
    }

    /// Where the file of a build, of exactly so many bytes, is sent; none when it comes through us whatever its size.
    ///
    /// # Errors
    /// [`Refused::Fenced`] for a token that is not that of the lease; `TooLarge`, which ends the build as a larger upload does.
    pub async fn sending(
        &self,
        id: &EntryId,
        token: &str,
        bytes: u64,
    ) -> Result<Option<Sending>, Refused> {
        let (_, set) = self.leased(id, token).await?;
        if bytes > self.settings.upload_max {
            return Err(self.too_large(id, token).await?);
        }
        let expires_at = self.now() + ADDRESS_LIFE;
        let address = self.world.entries.address(&set, bytes, ADDRESS_LIFE).await;
        let address = match address {
            Ok(Some(address)) => address,
            Ok(None) => return Ok(None),
            Err(error) if error.kind == Kind::TooLarge => {
                self.abort(id, token).await?;
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        };
        let key = Key::new(UPLOADS, items::moment(expires_at, token));
        let sent = Superseded {
            id: id.clone(),
            generation: token.to_owned(),
        };
        self.transact(vec![Write::put(key, &sent, Expect::Any)])
            .await?;
        Ok(Some(Sending {
            href: address.href,
            headers: address.headers,
            expires_at,
        }))
    }

    /// Ends a build whose file is larger than entries may be.
    pub(super) async fn too_large(&self, id: &EntryId, token: &str) -> Result<Refused, Refused> {
        self.abort(id, token).await?;
        let limit = self.settings.upload_max;
        let error = Error::new(Kind::TooLarge, "take upload", id);
        Ok(error
            .because(format!("it is larger than {limit} bytes"))
            .into())
    }

    /// Works off the list of what could be sent, once its time and the grace are over.
    pub(super) async fn sweep_uploads(&self, swept: &mut Swept) -> ports::Result<()> {
        let mut next = Some(self.past_grace(UPLOADS));
        while let Some(span) = next {
            let items = self.world.state.query(&span).await?;
            for item in &items {
                if let Err(error) = self.look_at_upload(item).await {
                    swept.errors.push(error.chain());
                }
            }
            next = span.after(&items);
        }
        Ok(())
    }

    /// What was committed is the entry, and what is being built may yet be: row and lease are read at once, and a token is
    /// never given twice. Anything else is superseded from now on; whoever reads it, because it was the entry for a while,
    /// has the same time left as of any other.
    async fn look_at_upload(&self, item: &Item) -> ports::Result<()> {
        let sent: Superseded = item.decode()?;
        let (id, token) = (&sent.id, &sent.generation);
        let both = self.both(id).await?;
        let is_committed = both
            .content()
            .is_some_and(|content| content.generation == *token);
        if !is_committed && both.lease().is_some_and(|lease| is_of(lease, token)) {
            return Ok(());
        }
        let mut writes = vec![Write::Delete {
            key: item.key.clone(),
            expect: Expect::Any,
        }];
        if !is_committed {
            let key = Key::new(SUPERSEDED, items::moment(self.now(), token));
            writes.push(Write::put(key, &sent, Expect::Any));
        }
        self.transact(writes).await.map(|_| ())
    }
}
