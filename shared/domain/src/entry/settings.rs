//! What entries are held to, and when a payload rides in its row.

use super::Mode;
use crate::Duration;

/// Most bytes of an item of the state store: what DynamoDB takes, with room for the names of its attributes.
const ITEM_MAX: u64 = 380 << 10;
/// Most that `inline_max` may say: with the row before it the payload still has to fit an item.
pub const INLINE_MAX: u64 = 320 << 10;

/// `materialize`: what entries are held to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySettings {
    /// How long an entry is good for when nobody says otherwise.
    pub ttl: Duration,
    /// How an expired entry is served when nobody says otherwise.
    pub mode: Mode,
    /// Longest payload, counted as base64 text, that rides in the row.
    pub inline_max: u64,
    /// How long a build may take before another takes over, when nobody says otherwise.
    pub lease: Duration,
    /// Longest that a request waits for somebody else's build.
    pub wait_max: Duration,
    /// How long a superseded generation stays for those who still read it.
    pub grace: Duration,
    /// How long after its expiry an entry may still be served while it is rebuilt.
    pub stale_max: Duration,
    /// Most bytes of an upload.
    pub upload_max: u64,
    /// Up to so many rows vectors are compared one by one; of more, those of the nearest cells.
    pub exact_max: u64,
    /// Bytes of indexes that a process keeps in memory.
    pub search_cache: u64,
}

impl Default for EntrySettings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(3_600),
            mode: Mode::Swr,
            inline_max: 256 << 10,
            lease: Duration::from_secs(60),
            wait_max: Duration::from_secs(20),
            grace: Duration::from_secs(600),
            stale_max: Duration::from_secs(86_400),
            upload_max: 4 << 30,
            exact_max: 50_000,
            search_cache: 512 << 20,
        }
    }
}

/// Bytes of a payload as base64 text: what it takes on its way through JSON and gateways.
#[must_use]
pub fn inline_length(payload: u64) -> u64 {
    payload.div_ceil(3) * 4
}

/// Whether a payload rides in its row: not longer than `max` as text, and the item holds it with its row and its keys.
#[must_use]
pub fn rides_inline(payload: u64, row: u64, keys: u64, max: u64) -> bool {
    let length = inline_length(payload);
    length <= max && length + row + keys <= ITEM_MAX
}
