//! Objects that nothing names: found, remembered for the grace time, removed.
//!
//! Who reads holds what a table named when the read began, so an object does not go when it is found but a grace time
//! later. What was found is an item of the state store, so that the time is counted from then on by whoever looks next.
//! Only objects with a name of ours are touched; its age is told by the moment in its name, which our own clock gave.
//!
//! ## Invariants
//! * nothing is removed that is named at the moment before
//! * nothing is found that could still be named: it is older than any commit under way

use std::collections::HashSet;

use domain::{TableName, Timestamp, items};
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStoreExt, path::Path};
use ports::{
    Chance, Objects, Result, State,
    state::{Expect, Item, Key, Span, Write, query_all},
    upkeep::{Sweep, Swept},
};
use serde::{Deserialize, Serialize};

/// Paths of one item.
const PATHS_MAX: usize = 200;
/// Paths found in one step.
const FOUND_MAX: usize = 2_000;
/// Items asked of the state store at once.
const PAGE: usize = 100;
/// How far the clocks of two writers may be apart.
const SKEW: domain::Duration = domain::Duration::from_secs(60);

/// Objects that nothing named when the item was written.
#[derive(Debug, Serialize, Deserialize)]
struct Garbage {
    paths: Vec<Named>,
}

/// An object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Named {
    pub path: String,
    pub size: u64,
}

/// What a table names.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// Paths that readers of the table may follow.
    pub paths: HashSet<String>,
    /// An object that was begun before this and is not named never will be; none when that cannot be told.
    pub settled: Option<Timestamp>,
}

/// The write that remembers objects.
pub(crate) fn remember(table: &TableName, at: Timestamp, id: &str, paths: Vec<Named>) -> Write {
    let key = Key::new(items::garbage(table), items::moment(at, id));
    Write::put(key, &Garbage { paths }, Expect::Absent)
}

/// When the object was begun: the moment in its name. None when its name is not of ours.
pub(crate) fn born(path: &str) -> Option<Timestamp> {
    let name = path.rsplit('/').next()?;
    let id = (0..name.len().saturating_sub(35)).find_map(|at| {
        let id = uuid::Uuid::try_parse(name.get(at..at + 36)?).ok()?;
        (id.get_version_num() == 7).then_some(id)
    })?;
    let millis = i64::try_from(id.as_u128() >> 80).ok()?;
    Some(Timestamp(millis.checked_mul(1_000)?))
}

/// Where a sweep happens.
pub(crate) struct Place<'a> {
    pub state: &'a dyn State,
    pub objects: &'a Objects,
    pub chance: &'a dyn Chance,
    pub table: &'a TableName,
    /// Folder that the table's objects are in, and nothing else is.
    pub folder: String,
}

/// Finds what nothing names, and removes what was found a grace time ago.
///
/// `references` is asked after the folder was listed, and again before anything is removed.
pub(crate) async fn sweep<F: Future<Output = Result<Option<References>>>>(
    place: &Place<'_>,
    sweep: &Sweep,
    references: impl Fn() -> F,
) -> Result<Swept> {
    let prefix = Path::from(place.folder.as_str());
    let listed: Vec<ObjectMeta> = place.objects.list(Some(&prefix)).try_collect().await?;
    let waiting = query_all(
        place.state,
        Span::prefix(items::garbage(place.table), "", PAGE),
    )
    .await?;
    let mut known = HashSet::new();
    for item in &waiting {
        let garbage: Garbage = item.decode()?;
        known.extend(garbage.paths.into_iter().map(|named| named.path));
    }
    let mut swept = Swept {
        waiting: known.len() as u64,
        ..Swept::default()
    };
    let Some(named) = references().await? else {
        swept.more = true;
        return Ok(swept);
    };
    let found = find(place, sweep, &listed, &known, &named);
    for some in found.chunks(PATHS_MAX) {
        let id = place.chance.id(sweep.now);
        let write = remember(place.table, sweep.now, &id, some.to_vec());
        if place.state.transact(vec![write]).await?.is_committed() {
            swept.found += some.len() as u64;
            swept.waiting += some.len() as u64;
        }
    }
    let due = |item: &&Item| {
        let since = item
            .key
            .sort
            .split('#')
            .next()
            .and_then(|at| at.parse().ok());
        since.is_some_and(|since| Timestamp(since) + sweep.grace <= sweep.now)
    };
    let due: Vec<&Item> = waiting.iter().filter(due).collect();
    if due.is_empty() {
        return Ok(swept);
    }
    let Some(named) = references().await? else {
        swept.more = true;
        return Ok(swept);
    };
    for item in due {
        if swept.removed >= sweep.most as u64 {
            swept.more = true;
            break;
        }
        remove(place, item, &named, &mut swept).await?;
    }
    Ok(swept)
}

/// Objects that nothing names and nothing will, and that are not remembered yet.
fn find(
    place: &Place<'_>,
    sweep: &Sweep,
    listed: &[ObjectMeta],
    known: &HashSet<String>,
    named: &References,
) -> Vec<Named> {
    let is_garbage = |object: &&ObjectMeta| {
        let path = object.location.as_ref();
        let Some(born) = born(path) else {
            return false;
        };
        let settled = named.settled.is_some_and(|settled| born + SKEW <= settled);
        let orphan = born + sweep.orphans <= sweep.now;
        (settled || orphan)
            && !named.paths.contains(path)
            && !known.contains(path)
            && is_below(path, &place.folder)
    };
    let found = listed.iter().filter(is_garbage).take(FOUND_MAX);
    found
        .map(|object| Named {
            path: object.location.to_string(),
            size: object.size,
        })
        .collect()
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Removes what an item remembers, then the item. Cut short, it is done again: what is gone is gone.
async fn remove(
    place: &Place<'_>,
    item: &Item,
    named: &References,
    swept: &mut Swept,
) -> Result<()> {
    let garbage: Garbage = item.decode()?;
    for Named { path, size } in garbage.paths {
        if named.paths.contains(&path) || !is_below(&path, &place.folder) {
            tracing::error!(table = %place.table, path, "what was found to be garbage is named; it stays");
            continue;
        }
        match place.objects.delete(&Path::from(path.as_str())).await {
            Ok(()) => {
                swept.removed += 1;
                swept.bytes += size;
            }
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        swept.waiting = swept.waiting.saturating_sub(1);
    }
    let gone = Write::Delete {
        key: item.key.clone(),
        expect: Expect::Any,
    };
    place.state.transact(vec![gone]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_an_object_is_in_its_name() {
        let at = Timestamp(1_767_225_600_123_000);
        let id = "019b76da-a87b-7abc-8def-0123456789ab";
        assert_eq!(born(&format!("tables/a/b/data/{id}.parquet")), Some(at));
        assert_eq!(
            born(&format!("tables/a/b/metadata/00004-{id}.metadata.json")),
            Some(at)
        );
        assert_eq!(
            born(&format!("tables/a/b/data/{id}-deletes.parquet")),
            Some(at)
        );
        assert_eq!(born("tables/a/b/data/part-0001.parquet"), None);
        assert_eq!(
            born("tables/a/b/data/6ba7b810-9dad-11d1-80b4-00c04fd430c8.parquet"),
            None
        );
    }
}
