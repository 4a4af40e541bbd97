//! Tokens that read one entry for a short while: safe to hand to a page.
//!
//! A token is the entry's name and a secret. Only a digest is stored, with the row it was made for: once that row is
//! evicted the token reads nothing, even if the entry comes back.

use domain::{
    Duration, Timestamp,
    entry::{self, EntryId},
    fingerprint::digest,
};
use ports::{
    Result,
    state::{Expect, Key, Write},
};
use serde::{Deserialize, Serialize};

use super::{
    ATTEMPTS, Refused, Registry, contended,
    stored::{StoredRow, row_key},
};

/// What every token begins with.
const MARK: &str = "hwe.";
/// Longest life of a token.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A token that was made; it is told once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reader {
    /// The token.
    pub token: String,
    /// From when on it reads nothing.
    pub expires_at: Timestamp,
}

/// What is stored of a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    born: String,
    expires_at: Timestamp,
}

/// Whether a text looks like a token of an entry.
#[must_use]
pub fn is_token(text: &str) -> bool {
    text.starts_with(MARK)
}

impl Registry {
    /// Makes a token that reads one entry for a while, at most a day.
    ///
    /// # Errors
    /// [`Refused::Missing`] when there is no such entry; `Invalid` for a longer life.
    pub async fn mint(&self, id: &EntryId, life: Duration) -> Result<Reader, Refused> {
        if life > LIFE_MAX {
            let why = format!("a token lives for at most {} seconds", LIFE_MAX.as_secs());
            return Err(Refused::invalid("make token for", id, why));
        }
        let secret: String = (0..6).map(|_| self.digits()).collect();
        let token = format!("{MARK}{id}.{secret}");
        for _ in 0..ATTEMPTS {
            let row = self.row(id).await?;
            let Some(StoredRow { row, version, .. }) =
                row.filter(|stored| stored.row.content().is_some())
            else {
                return Err(Refused::Missing(id.clone()));
            };
            let stored = Stored {
                born: row.born,
                expires_at: self.now() + life,
            };
            let check = Write::Check {
                key: row_key(id),
                expect: Expect::Version(version),
            };
            let put = Write::put(key(id, &token), &stored, Expect::Absent);
            if self.transact(vec![check, put]).await? {
                let expires_at = stored.expires_at;
                return Ok(Reader { token, expires_at });
            }
        }
        Err(contended("make token for", id).into())
    }

    /// Twelve digits that nobody can foretell: 48 bits.
    pub(super) fn digits(&self) -> String {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 2^48"
        )]
        let bits = (self.world.chance.fraction() * 2_f64.powi(48)) as u64;
        format!("{bits:012x}")
    }

    /// Whether a token reads an entry, in one read.
    ///
    /// # Errors
    /// [`Refused::OtherEntry`] for a token of another one, [`Refused::NoReader`] for one that reads nothing.
    pub async fn admit(&self, id: &EntryId, token: &str) -> Result<(), Refused> {
        let named = token
            .strip_prefix(MARK)
            .and_then(|rest| rest.rsplit_once('.'));
        let named = named.and_then(|(name, _)| name.parse::<EntryId>().ok());
        match named {
            Some(named) if named == *id => {}
            Some(_) => return Err(Refused::OtherEntry),
            None => return Err(Refused::NoReader),
        }
        let keys = [key(id, token), row_key(id)];
        let mut items = self.world.state.get_many(&keys).await?.into_iter();
        let (Some(stored), Some(row)) = (items.next().flatten(), items.next().flatten()) else {
            return Err(Refused::NoReader);
        };
        let (stored, (row, _)) = (stored.decode::<Stored>()?, row.unpack::<entry::Row>()?);
        match stored.born == row.born && self.now() < stored.expires_at {
            true => Ok(()),
            false => Err(Refused::NoReader),
        }
    }
}

fn key(id: &EntryId, token: &str) -> Key {
    Key::new(entry::entry(id), entry::reader(&digest(token.as_bytes())))
}
