//! Removal of the objects that held large values, once no item names them any more.
//!
//! An object is named by the item it was written for or by none. Of one that is older than any commit on its way the item is
//! read, and when that is gone or names another, nobody ever will name this one: a version never comes back. Who has read
//! the item and not yet the object reads the item again (`read.rs`).

use domain::Timestamp;
use futures::TryStreamExt;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, path::Path};
use ports::{
    Error, Kind, Objects, Result,
    upkeep::{Sweep, Swept},
};
use uuid::Uuid;

use super::{DynamoState, item::Body, large, owner, read};

/// Removes what is garbage, `sweep.most` objects at most. Names that we did not give are never touched.
pub(super) async fn sweep(state: &DynamoState, sweep: &Sweep) -> Result<Swept> {
    let mut swept = Swept::default();
    let Some(objects) = &state.objects else {
        return Ok(swept);
    };
    let folder = Path::from(large::FOLDER);
    let mut listed = objects.list(Some(&folder));
    while let Some(object) = listed.try_next().await? {
        let old = born(&object.location).is_some_and(|born| born + sweep.orphans <= sweep.now);
        if !old || is_named(state, objects, &object.location).await? {
            continue;
        }
        if swept.removed >= sweep.most as u64 {
            swept.more = true;
            break;
        }
        swept.found += 1;
        match objects.delete(&object.location).await {
            Ok(()) => {
                swept.removed += 1;
                swept.bytes += object.size;
            }
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(failed(&object.location, error)),
        }
    }
    Ok(swept)
}

/// When the commit of an object began, which its name says; none for a name of somebody else's.
fn born(path: &Path) -> Option<Timestamp> {
    let name = path.filename()?;
    let id = Uuid::try_parse(name.get(..36)?).ok()?;
    let ours = id.get_version_num() == 7 && name[36..].strip_prefix('-')?.parse::<u32>().is_ok();
    let millis = i64::try_from(id.as_u128() >> 80).ok()?;
    ours.then_some(Timestamp(millis.checked_mul(1_000)?))
}

/// Whether an item names the object. One that does not say whose it is counts as named.
async fn is_named(state: &DynamoState, objects: &Objects, path: &Path) -> Result<bool> {
    let options = GetOptions {
        head: true,
        ..GetOptions::default()
    };
    let attributes = match objects.get_opts(path, options).await {
        Ok(found) => found.attributes,
        Err(object_store::Error::NotFound { .. }) => return Ok(true),
        Err(error) => return Err(failed(path, error)),
    };
    let Some(key) = owner::read(&attributes) else {
        return Ok(true);
    };
    let item = read::stored(state, &key).await?;
    Ok(item.is_some_and(|item| match item.body {
        Body::Object { path: named, .. } => named == path.as_ref(),
        Body::Inline(_) => false,
    }))
}

fn failed(path: &Path, error: object_store::Error) -> Error {
    Error::new(Kind::Unavailable, "remove large value", path).because(error)
}
