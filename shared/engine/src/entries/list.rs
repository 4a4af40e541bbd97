//! Lists of entries, in pages.

use domain::entry::{ENTRIES, EntryId, Summary};
use ports::{
    Error, Kind, Result,
    state::{Item, Span},
};

use super::Registry;

/// Most entries of a page.
pub(super) const PAGE_MAX: usize = 1_000;

/// Which entries are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of this key.
    pub key: Option<String>,
    /// Those of this tenant.
    pub tenant: Option<String>,
    /// Those that are ready, or those that are built.
    pub ready: Option<bool>,
    /// Those that are expired, or those that are not.
    pub expired: Option<bool>,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its name.
    pub id: EntryId,
    /// What lists show of it.
    pub summary: Summary,
}

/// A page, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Listed>,
    /// Where the next page begins; none after the last.
    pub next: Option<String>,
}

/// An item of the list.
pub(super) fn listed(item: &Item) -> Result<Listed> {
    let id = item.key.sort.parse::<EntryId>();
    let id = id.map_err(|error| {
        Error::new(Kind::Corrupt, "list entries", &item.key.sort).because(error.to_string())
    })?;
    Ok(Listed {
        id,
        summary: item.decode()?,
    })
}

impl Registry {
    /// The entry whose name begins with `beginning`, for people who do not type 64 digits.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Invalid` when there are several.
    pub async fn named(&self, beginning: &str) -> Result<EntryId> {
        if let Ok(id) = beginning.parse() {
            return Ok(id);
        }
        let items = self
            .world
            .state
            .query(&Span::prefix(ENTRIES, beginning, 2))
            .await?;
        let error = |kind, why: &str| {
            Err(Error::new(kind, "find entry", beginning).because(why.to_owned()))
        };
        match items.as_slice() {
            [one] if !beginning.is_empty() => Ok(listed(one)?.id),
            [] => error(
                Kind::NotFound,
                "no entry's name begins so; `headwater entries list` shows them",
            ),
            _ => error(
                Kind::Invalid,
                "the names of several entries begin so: write more of it",
            ),
        }
    }

    /// One page of entries, after the one named `after`.
    ///
    /// # Errors
    /// What the state store answers.
    pub async fn list(&self, filter: &Filter, after: Option<&str>, limit: usize) -> Result<Page> {
        let limit = limit.clamp(1, PAGE_MAX);
        let now = self.now();
        let fits = |listed: &Listed| {
            let summary = &listed.summary;
            let expired = summary.expires_at.is_some_and(|expiry| now >= expiry);
            filter.key.as_ref().is_none_or(|key| *key == summary.key)
                && filter
                    .tenant
                    .as_deref()
                    .is_none_or(|tenant| listed.id.tenant() == Some(tenant))
                && filter.ready.is_none_or(|ready| ready == summary.ready)
                && filter.expired.is_none_or(|wanted| wanted == expired)
        };
        let mut span = Span::prefix(ENTRIES, "", PAGE_MAX);
        if let Some(after) = after {
            span.from = format!("{after}\0");
        }
        let mut page = Page::default();
        let mut next = Some(span);
        while let Some(span) = next {
            let items = self.world.state.query(&span).await?;
            for item in &items {
                let listed = listed(item)?;
                if !fits(&listed) {
                    continue;
                }
                if page.entries.len() == limit {
                    page.next = page.entries.last().map(|last| last.id.to_string());
                    return Ok(page);
                }
                page.entries.push(listed);
            }
            next = span.after(&items);
        }
        Ok(page)
    }
}
