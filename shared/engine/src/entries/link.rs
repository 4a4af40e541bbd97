//! Links to the data of an entry: whoever has one downloads it for a while, and needs nothing else.
//!
//! An object store that signs addresses signs them; else the link leads to our own server, and says by a keyed digest that we
//! made it. The key is made by the first who needs it, and kept in the state: links outlive a restart.

use domain::{
    Duration, Timestamp,
    entry::{EntryId, LINKS},
};
use ports::{
    entries::{DataSet, File, Part},
    state::{Expect, Key, Write},
};
use serde::{Deserialize, Serialize};

use super::{Entry, Refused, Registry, build::set, contended};

/// How long a link is good for.
pub const LINK_LIFE: Duration = Duration::from_secs(600);
/// What the key is made for.
const PURPOSE: &str = "headwater 2026 links to the data of entries";

/// Where the data of an entry can be downloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The address; one that begins with `/` is of this server.
    pub href: String,
    /// From when on it leads nowhere.
    pub expires_at: String,
}

/// What a link of our own says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Signed {
    /// The generation it reads.
    pub generation: String,
    /// From when on it is over, in microseconds.
    pub expires: i64,
    /// That we said so.
    pub signature: String,
}

#[derive(Serialize, Deserialize)]
struct Secret {
    digits: String,
}

fn signature(key: &[u8; 32], set: &DataSet, expires: i64) -> blake3::Hash {
    blake3::keyed_hash(key, format!("{set}\n{expires}").as_bytes())
}

impl Registry {
    /// A link to the data of an entry, for a while.
    ///
    /// # Errors
    /// What the ports answer.
    pub async fn link(&self, entry: &Entry) -> Result<Link, Refused> {
        let (set, expires_at) = (entry.set(), self.now() + LINK_LIFE);
        let href = match self.world.entries.link(&set, LINK_LIFE).await? {
            Some(address) => address,
            None => {
                let (id, generation, expires) = (&entry.id, &set.generation, expires_at.0);
                let signature = signature(&self.key(id).await?, &set, expires).to_hex();
                format!(
                    "/api/materialize/{id}/data?generation={generation}&expires={expires}&signature={signature}"
                )
            }
        };
        Ok(Link {
            href,
            expires_at: expires_at.to_string(),
        })
    }

    /// The data that a link of our own leads to. A row whose data is gone goes too (**E-2**).
    ///
    /// # Errors
    /// [`Refused::NoLink`] for one that we did not make or that is over, [`Refused::Missing`] when the generation is gone.
    pub async fn linked(&self, id: &EntryId, signed: &Signed, part: Part) -> Result<File, Refused> {
        let set = set(id, &signed.generation);
        let given: Result<blake3::Hash, _> = signed.signature.parse();
        let known = match given {
            // Compared in constant time.
            Ok(given) => given == signature(&self.key(id).await?, &set, signed.expires),
            Err(_) => false,
        };
        if !known || self.now() >= Timestamp(signed.expires) {
            return Err(Refused::NoLink);
        }
        if let Some(file) = self.world.entries.file(&set, part).await? {
            return Ok(file);
        }
        let entry = self.row(id).await?.and_then(|stored| stored.ready(id));
        if let Some(entry) = entry.filter(|entry| entry.content.generation == signed.generation) {
            self.lost(&entry).await?;
        }
        Err(Refused::Missing(id.clone()))
    }

    /// The key that links are signed with.
    async fn key(&self, id: &EntryId) -> Result<[u8; 32], Refused> {
        let place = Key::new(LINKS, LINKS);
        // Whoever is second reads what the first wrote.
        for attempt in 0..3 {
            if let Some(item) = self.world.state.get(&place).await? {
                let secret: Secret = item.decode()?;
                return Ok(blake3::derive_key(PURPOSE, secret.digits.as_bytes()));
            }
            if attempt < 2 {
                let secret = Secret {
                    digits: (0..6).map(|_| self.digits()).collect(),
                };
                let put = Write::put(place.clone(), &secret, Expect::Absent);
                self.transact(vec![put]).await?;
            }
        }
        Err(contended("make key of links for", id).into())
    }
}
