//! Versions, expectations, and all or nothing.

use bytes::Bytes;
use ports::{
    Kind,
    state::{Expect, Key, Outcome, WRITES_MAX, Write},
};

use super::{Store, check, commit, delete, get, put, text, transact};

pub(super) async fn what_was_put_is_read(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    let version = commit(state, put(&key, "one", Expect::Absent)).await;
    let item = get(state, &key).await.expect("the item is there");
    assert_eq!((&item.key, item.version), (&key, version));
    assert_eq!(item.value, "one");
}

pub(super) async fn an_absent_item_is_none(state: &Store, place: &str) {
    assert_eq!(get(state, &Key::new(place, "a")).await, None);
}

pub(super) async fn every_put_has_a_new_version(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    let mut seen = Vec::new();
    for _ in 0..3 {
        // The same value each time: a put is a change all the same.
        let version = commit(state, put(&key, "same", Expect::Any)).await;
        assert!(!seen.contains(&version), "{version} again, after {seen:?}");
        seen.push(version);
    }
}

pub(super) async fn a_version_is_not_reused_after_a_delete(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    let first = commit(state, put(&key, "one", Expect::Absent)).await;
    commit(state, delete(&key, Expect::Version(first))).await;
    let second = commit(state, put(&key, "one", Expect::Absent)).await;
    assert_ne!(first, second);
    let stale = transact(state, vec![put(&key, "two", Expect::Version(first))]).await;
    assert_eq!(stale, Outcome::Conflict(vec![0]));
}

pub(super) async fn an_unknown_version_is_a_conflict(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    let version = commit(state, put(&key, "one", Expect::Absent)).await;
    let outcome = transact(state, vec![put(&key, "two", Expect::Version(version + 1))]).await;
    assert_eq!(outcome, Outcome::Conflict(vec![0]));
    let absent = Key::new(place, "b");
    let outcome = transact(state, vec![put(&absent, "two", Expect::Version(version))]).await;
    assert_eq!(outcome, Outcome::Conflict(vec![0]));
    commit(state, put(&key, "two", Expect::Version(version))).await;
    assert_eq!(text(state, &key).await.as_deref(), Some("two"));
}

pub(super) async fn absent_expects_absence(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    commit(state, put(&key, "one", Expect::Absent)).await;
    let again = transact(state, vec![put(&key, "two", Expect::Absent)]).await;
    assert_eq!(again, Outcome::Conflict(vec![0]));
    assert_eq!(text(state, &key).await.as_deref(), Some("one"));
}

pub(super) async fn any_expects_nothing(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    commit(state, put(&key, "one", Expect::Any)).await;
    commit(state, put(&key, "two", Expect::Any)).await;
    assert_eq!(text(state, &key).await.as_deref(), Some("two"));
    assert_eq!(commit(state, delete(&key, Expect::Any)).await, 0);
    let again = commit(state, delete(&key, Expect::Any)).await;
    assert_eq!(again, 0, "nothing to delete is no conflict");
}

pub(super) async fn a_check_changes_nothing(state: &Store, place: &str) {
    let (key, absent, other) = (
        Key::new(place, "a"),
        Key::new(place, "b"),
        Key::new(place, "c"),
    );
    let version = commit(state, put(&key, "one", Expect::Absent)).await;
    let holding = vec![
        check(&key, Expect::Version(version)),
        check(&absent, Expect::Absent),
    ];
    assert_eq!(
        transact(state, holding).await,
        Outcome::Committed(vec![0, 0])
    );
    assert_eq!(get(state, &key).await.expect("it stays").version, version);
    assert_eq!(get(state, &absent).await, None);
    let failing = vec![put(&other, "x", Expect::Any), check(&key, Expect::Absent)];
    assert_eq!(transact(state, failing).await, Outcome::Conflict(vec![1]));
    assert_eq!(get(state, &other).await, None);
}

pub(super) async fn deletes_hold_their_condition(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    let absent = transact(state, vec![delete(&key, Expect::Version(1))]).await;
    assert_eq!(absent, Outcome::Conflict(vec![0]));
    assert_eq!(commit(state, delete(&key, Expect::Absent)).await, 0);
    let version = commit(state, put(&key, "one", Expect::Absent)).await;
    for wrong in [Expect::Absent, Expect::Version(version + 1)] {
        let outcome = transact(state, vec![delete(&key, wrong)]).await;
        assert_eq!(outcome, Outcome::Conflict(vec![0]), "{wrong:?}");
    }
    commit(state, delete(&key, Expect::Version(version))).await;
    assert_eq!(get(state, &key).await, None);
}

pub(super) async fn a_conflict_names_every_failing_write(state: &Store, place: &str) {
    let keys: Vec<Key> = (0..5).map(|i| Key::new(place, format!("{i}"))).collect();
    let version = commit(state, put(&keys[1], "one", Expect::Absent)).await;
    let writes = vec![
        put(&keys[0], "x", Expect::Absent),
        put(&keys[1], "x", Expect::Absent),
        check(&keys[2], Expect::Absent),
        delete(&keys[3], Expect::Version(version)),
        check(&keys[4], Expect::Version(version)),
    ];
    assert_eq!(
        transact(state, writes).await,
        Outcome::Conflict(vec![1, 3, 4])
    );
}

pub(super) async fn a_conflict_changes_nothing(state: &Store, place: &str) {
    let (kept, fresh, stale) = (
        Key::new(place, "a"),
        Key::new(place, "b"),
        Key::new(place, "c"),
    );
    let version = commit(state, put(&kept, "one", Expect::Absent)).await;
    let writes = vec![
        delete(&kept, Expect::Version(version)),
        put(&fresh, "two", Expect::Absent),
        put(&stale, "three", Expect::Version(version)),
    ];
    assert_eq!(transact(state, writes).await, Outcome::Conflict(vec![2]));
    let item = get(state, &kept).await.expect("it stays");
    assert_eq!(item.version, version);
    assert_eq!(item.value, "one");
    assert_eq!(get(state, &fresh).await, None);
    assert_eq!(get(state, &stale).await, None);
}

pub(super) async fn committed_versions_are_in_order_of_the_writes(state: &Store, place: &str) {
    let keys = ["d", "a", "c", "b"].map(|sort| Key::new(place, sort));
    commit(state, put(&keys[2], "old", Expect::Absent)).await;
    let writes = vec![
        put(&keys[0], "one", Expect::Absent),
        check(&keys[1], Expect::Absent),
        delete(&keys[2], Expect::Any),
        put(&keys[3], "two", Expect::Any),
    ];
    let Outcome::Committed(versions) = transact(state, writes).await else {
        panic!("nothing is in the way");
    };
    assert_eq!((versions.len(), versions[1], versions[2]), (4, 0, 0));
    for index in [0, 3] {
        let item = get(state, &keys[index]).await.expect("it was put");
        assert_eq!(item.version, versions[index]);
    }
}

pub(super) async fn one_key_twice_is_invalid(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    let seconds = [
        put(&key, "two", Expect::Any),
        delete(&key, Expect::Any),
        check(&key, Expect::Absent),
    ];
    for second in seconds {
        let writes = vec![put(&key, "one", Expect::Any), second];
        let error = state.transact(writes).await.expect_err("one key twice");
        assert_eq!(error.kind, Kind::Invalid);
    }
    assert_eq!(get(state, &key).await, None);
}

fn numbered(place: &str, count: usize) -> Vec<Write> {
    let key = |i| Key::new(place, format!("{i:03}"));
    (0..count)
        .map(|i| put(&key(i), "x", Expect::Absent))
        .collect()
}

pub(super) async fn more_than_a_hundred_writes_are_invalid(state: &Store, place: &str) {
    let writes = numbered(place, WRITES_MAX + 1);
    let error = state.transact(writes).await.expect_err("one too many");
    assert_eq!(error.kind, Kind::Invalid);
    assert_eq!(get(state, &Key::new(place, "000")).await, None);
}

pub(super) async fn a_hundred_writes_are_committed(state: &Store, place: &str) {
    let Outcome::Committed(versions) = transact(state, numbered(place, WRITES_MAX)).await else {
        panic!("nothing is in the way");
    };
    assert_eq!(versions.len(), WRITES_MAX);
    assert!(get(state, &Key::new(place, "099")).await.is_some());
}

pub(super) async fn an_empty_transaction_is_committed(state: &Store, _place: &str) {
    assert_eq!(
        transact(state, Vec::new()).await,
        Outcome::Committed(Vec::new())
    );
}

pub(super) async fn large_and_binary_values_come_back_as_put(state: &Store, place: &str) {
    // As large as an item may be on the smallest of the stores (400 KB with its keys).
    let scatter = |i: u32| i.wrapping_mul(2_654_435_761).to_be_bytes()[0];
    let large: Vec<u8> = (0..350 * 1_024).map(scatter).collect();
    let values = [
        ("large", Bytes::from(large)),
        ("empty", Bytes::new()),
        ("nul", Bytes::from_static(b"\0\xff\0")),
    ];
    for (sort, value) in values {
        let key = Key::new(place, sort);
        let write = Write::Put {
            key: key.clone(),
            value: value.clone(),
            expect: Expect::Absent,
        };
        commit(state, write).await;
        assert!(
            get(state, &key).await.expect("it was put").value == value,
            "{sort}"
        );
    }
}

pub(super) async fn any_text_is_a_key(state: &Store, place: &str) {
    let texts = [
        "'; drop table items; --",
        "ä\u{10FFFF}",
        "with space",
        "a\0b",
        "a",
        "A",
        "%",
        "#",
    ];
    for sort in texts {
        commit(state, put(&Key::new(place, sort), sort, Expect::Absent)).await;
    }
    for sort in texts {
        assert_eq!(
            text(state, &Key::new(place, sort)).await.as_deref(),
            Some(sort)
        );
    }
}

pub(super) async fn partitions_are_apart(state: &Store, place: &str) {
    let key = |partition: u8| Key::new(format!("{place}-{partition}"), "a");
    commit(state, put(&key(1), "one", Expect::Absent)).await;
    assert_eq!(get(state, &key(2)).await, None);
    commit(state, put(&key(2), "two", Expect::Absent)).await;
    assert_eq!(text(state, &key(1)).await.as_deref(), Some("one"));
}
