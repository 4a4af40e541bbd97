//! Forgetting idempotency keys: which were stored when is listed by the commits that store them.

use domain::{TableName, Timestamp, items};
use ports::{
    Result, State,
    state::{Expect, Key, Span, Write},
    upkeep::Forgotten,
};
use serde::{Deserialize, Serialize};

use super::{
    commit::{self, Seen},
    draft::Mark,
};

/// Marks that one commit stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    partitions: Vec<String>,
}

/// The write that lists the marks of a commit, so that they can be found when they are old. Those of files stay: the
/// files may, too.
pub(super) fn later(table: &TableName, marks: &[Mark], at: Timestamp, id: &str) -> Option<Write> {
    let marks = marks.iter().filter(|mark| mark.file.is_none());
    let partitions: Vec<String> = marks.map(|mark| mark.key.partition.clone()).collect();
    (!partitions.is_empty()).then(|| {
        let key = Key::new(items::expiry(table), items::moment(at, id));
        Write::put(key, &Stored { partitions }, Expect::Any)
    })
}

/// Forgets the marks of the oldest commit before a moment.
pub(super) async fn forget(
    state: &dyn State,
    table: &TableName,
    before: Timestamp,
) -> Result<Forgotten> {
    let old = Span {
        partition: items::expiry(table),
        from: String::new(),
        until: Some(items::moment(before, "")),
        reverse: false,
        limit: 2,
    };
    let page = state.query(&old).await?;
    let Some(item) = page.first() else {
        return Ok(Forgotten::default());
    };
    let stored: Stored = item.decode()?;
    let keys: Vec<Key> = stored
        .partitions
        .into_iter()
        .map(|partition| Key::new(partition, commit::SEEN))
        .collect();
    let mut writes = vec![Write::Delete {
        key: item.key.clone(),
        expect: Expect::Version(item.version),
    }];
    for mark in state.get_many(&keys).await?.into_iter().flatten() {
        // A key that was forgotten and came again is listed again, under its own moment.
        if mark.decode::<Seen>()?.at < before {
            writes.push(Write::Delete {
                expect: Expect::Version(mark.version),
                key: mark.key,
            });
        }
    }
    let marks = writes.len() as u64 - 1;
    let done = state.transact(writes).await?.is_committed();
    Ok(Forgotten {
        marks: if done { marks } else { 0 },
        conflict: !done,
        more: page.len() > 1,
    })
}
