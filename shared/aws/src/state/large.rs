//! Values that an item cannot hold.
//!
//! They are stored as objects under `state/` before the transaction, and the item holds where. The name is the commit's id
//! and the place of the write in it, so that no two writers ever share one: an object is garbage until the transaction, and
//! again once its item is overwritten or deleted. Nothing here deletes one, since after a lost answer nobody knows yet
//! whether it is named: that is for `sweep.rs`, by reference and after a time of grace. The id begins with the time, and
//! the object says which item it is of.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt, PutOptions, PutPayload, path::Path};
use ports::{
    Error, Kind, Objects, Result,
    state::{Item, Key, Write},
};
use uuid::Uuid;

use super::{
    item::{Body, Stored},
    owner,
};

/// Folder of the objects.
pub(super) const FOLDER: &str = "state";
/// Most bytes of a value in its item, which has at most 400 KB with its keys and names.
pub(super) const INLINE_MAX: usize = 380 * 1_024;
/// Most bytes of the items of one transaction: DynamoDB takes 4 MB, and counts a little more than we do.
const TRANSACTION_MAX: usize = 3_600_000;
/// What an item has beside its keys and its value, at most.
const OVERHEAD: usize = 150;
/// Objects written or read at a time.
const CONCURRENCY: usize = 8;

const STORE: &str = "store large value";
const LOAD: &str = "read large value";

/// The bodies of the puts among `writes`, by their places, with large values stored as objects.
pub(super) async fn store(
    objects: Option<&Objects>,
    commit: Uuid,
    writes: &[Write],
) -> Result<Vec<Option<Body>>> {
    let values: Vec<Option<&Bytes>> = writes.iter().map(value).collect();
    let mut bodies: Vec<Option<Body>> = values
        .iter()
        .map(|value| value.map(|bytes| Body::Inline(bytes.clone())))
        .collect();
    let chosen = chosen(&writes.iter().map(size).collect::<Vec<_>>());
    if chosen.is_empty() {
        return Ok(bodies);
    }
    let Some(objects) = objects else {
        return Err(refused(&writes[chosen[0]]));
    };
    let stored: Vec<(usize, Body)> = stream::iter(chosen)
        .map(|index| {
            let bytes = values[index].cloned().unwrap_or_default();
            let key = writes[index].key();
            async move { Ok::<_, Error>((index, put(objects, commit, index, key, bytes).await?)) }
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await?;
    for (index, body) in stored {
        bodies[index] = Some(body);
    }
    Ok(bodies)
}

fn value(write: &Write) -> Option<&Bytes> {
    match write {
        Write::Put { value, .. } => Some(value),
        Write::Delete { .. } | Write::Check { .. } => None,
    }
}

/// Bytes of the value, and of the rest of the item.
fn size(write: &Write) -> (usize, usize) {
    let key = write.key();
    let rest = key.partition.len() + key.sort.len() + OVERHEAD;
    (value(write).map_or(0, Bytes::len), rest)
}

/// Which values become objects: those over the limit of an item, then the largest until the transaction fits.
fn chosen(sizes: &[(usize, usize)]) -> Vec<usize> {
    let mut total: usize = sizes.iter().map(|(value, rest)| value + rest).sum();
    let mut largest: Vec<usize> = (0..sizes.len()).collect();
    largest.sort_by_key(|index| std::cmp::Reverse(sizes[*index].0));
    let mut chosen = Vec::new();
    for index in largest {
        let (value, _) = sizes[index];
        if value <= INLINE_MAX && total <= TRANSACTION_MAX {
            break;
        }
        total -= value;
        chosen.push(index);
    }
    chosen
}

fn refused(write: &Write) -> Error {
    let bytes = value(write).map_or(0, Bytes::len);
    let because = if bytes > INLINE_MAX {
        format!("it has {bytes} bytes, an item holds {INLINE_MAX}")
    } else {
        format!("the values of one transaction have at most {TRANSACTION_MAX} bytes together")
    };
    let because = format!("{because}, and there is no object store for more: give the state one");
    Error::new(Kind::Invalid, STORE, subject(write.key())).because(because)
}

fn subject(key: &Key) -> String {
    format!("{}/{}", key.partition, key.sort)
}

async fn put(
    objects: &Objects,
    commit: Uuid,
    index: usize,
    key: &Key,
    bytes: Bytes,
) -> Result<Body> {
    let path = format!("{FOLDER}/{commit}-{index}");
    let length = bytes.len();
    let options = PutOptions {
        attributes: owner::note(key),
        ..PutOptions::default()
    };
    let place = Path::from(path.as_str());
    objects
        .put_opts(&place, PutPayload::from_bytes(bytes), options)
        .await
        .map_err(|error| Error::new(Kind::Unavailable, STORE, subject(key)).because(error))?;
    Ok(Body::Object { path, length })
}

/// Items with their values, in the same order.
///
/// # Errors
/// `NotFound` when an object is gone: the item was replaced since it was read, and its old object swept.
pub(super) async fn load(
    objects: Option<&Objects>,
    stored: Vec<Option<Stored>>,
) -> Result<Vec<Option<Item>>> {
    stream::iter(stored)
        .map(|stored| async move {
            match stored {
                Some(stored) => load_one(objects, stored).await.map(Some),
                None => Ok(None),
            }
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await
}

async fn load_one(objects: Option<&Objects>, stored: Stored) -> Result<Item> {
    let value = match stored.body {
        Body::Inline(bytes) => bytes,
        Body::Object { path, length } => fetch(objects, &stored.key, path, length).await?,
    };
    Ok(Item {
        key: stored.key,
        version: stored.version,
        value,
    })
}

async fn fetch(objects: Option<&Objects>, key: &Key, path: String, length: usize) -> Result<Bytes> {
    let error = |kind| Error::new(kind, LOAD, subject(key));
    let Some(objects) = objects else {
        let because = format!("it is the object `{path}`, and the state was given no object store");
        return Err(error(Kind::Invalid).because(because));
    };
    let read = async { objects.get(&Path::from(path.as_str())).await?.bytes().await };
    let bytes = read.await.map_err(|failed| match failed {
        object_store::Error::NotFound { .. } => error(Kind::NotFound).because(failed),
        failed => error(Kind::Unavailable).because(failed),
    })?;
    if bytes.len() != length {
        let because = format!(
            "its object `{path}` has {} bytes, not {length}",
            bytes.len()
        );
        return Err(error(Kind::Corrupt).because(because));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_stay_in_their_items() {
        assert!(chosen(&[(INLINE_MAX, 100), (0, 3_000)]).is_empty());
        assert!(chosen(&[(30_000, 100); 100]).is_empty());
    }

    #[test]
    fn a_value_over_the_limit_of_an_item_becomes_an_object() {
        assert_eq!(chosen(&[(1, 100), (INLINE_MAX + 1, 100), (2, 100)]), [1]);
    }

    #[test]
    fn a_transaction_over_its_limit_gives_up_its_largest_values_first() {
        let mut sizes = vec![(350_000, 200); 10];
        sizes[4] = (380_000, 200);
        sizes.push((300_000, 200));
        assert_eq!(chosen(&sizes), [4]);
        sizes.push((350_000, 200));
        assert_eq!(chosen(&sizes).len(), 2);
    }
}
