//! The state file: shared, killed, full, foreign; and the catalog's mirror.

mod mirror;
mod opening;

use std::path::PathBuf;

use bytes::Bytes;
use futures::future::join_all;
use ports::{
    Kind,
    state::{Expect, Span},
};
use tempfile::TempDir;

use super::*;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state/headwater.db");
    (folder, path)
}

fn open(path: &Path) -> SqliteState {
    SqliteState::open(path).expect("the state file opens")
}

fn put(sort: &str, value: impl Into<Bytes>, expect: Expect) -> Write {
    Write::Put {
        key: Key::new("p", sort),
        value: value.into(),
        expect,
    }
}

async fn commit(state: &SqliteState, writes: Vec<Write>) -> Vec<u64> {
    match state.transact(writes).await.expect("the store answers") {
        Outcome::Committed(versions) => versions,
        Outcome::Conflict(failed) => panic!("unexpected conflict of {failed:?}"),
    }
}

async fn value(state: &SqliteState, sort: &str) -> Option<Bytes> {
    let item = state
        .get(&Key::new("p", sort))
        .await
        .expect("the store answers");
    item.map(|item| item.value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_keeps_the_contract() {
    let (_folder, path) = folder();
    testkit::contract::state(Arc::new(open(&path))).await;
}

async fn increment(state: &SqliteState, times: u32) {
    let key = Key::new("p", "counter");
    let mut done = 0;
    while done < times {
        let item = state.get(&key).await.expect("the store answers");
        let count: u32 = item
            .as_ref()
            .map_or(0, |item| item.decode().expect("a number"));
        let write = Write::put(key.clone(), &(count + 1), Expect::as_read(item.as_ref()));
        let outcome = state
            .transact(vec![write])
            .await
            .expect("the store answers");
        done += u32::from(outcome.is_committed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_openers_race_on_a_counter_and_lose_nothing() {
    let (_folder, path) = folder();
    let (one, other) = (open(&path), open(&path));
    tokio::join!(
        increment(&one, 50),
        increment(&other, 50),
        increment(&one, 50),
        increment(&other, 50)
    );
    assert_eq!(value(&one, "counter").await.expect("it is there"), "200");
}

#[tokio::test]
async fn one_opener_sees_what_another_commits_and_that_it_did() {
    let (_folder, path) = folder();
    let (one, other) = (open(&path), open(&path));
    let before = one.change_counter().await.expect("the store answers");
    commit(&other, vec![put("a", "x", Expect::Absent)]).await;
    assert_eq!(value(&one, "a").await.expect("it is there"), "x");
    let after = one.change_counter().await.expect("the store answers");
    assert_ne!(before, after);
    assert_eq!(
        after,
        one.change_counter().await.expect("the store answers"),
        "nothing since"
    );
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let (folder, path) = folder();
    let state = open(&path);
    for round in 0..20 {
        commit(&state, vec![put("a", format!("{round}"), Expect::Any)]).await;
    }
    // The files as a killed process leaves them: the log is neither folded nor closed.
    let killed = folder.path().join("killed");
    std::fs::create_dir(&killed).expect("a folder");
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", path.display());
        std::fs::copy(from, killed.join(format!("headwater.db{suffix}"))).expect("a copy");
    }
    let again = open(&killed.join("headwater.db"));
    assert_eq!(value(&again, "a").await.expect("it is there"), "19");
    drop(state);
    assert_eq!(value(&open(&path), "a").await.expect("it is there"), "19");
}

#[tokio::test]
async fn versions_go_on_where_they_were_after_reopening() {
    let (_folder, path) = folder();
    let first = commit(&open(&path), vec![put("a", "x", Expect::Absent)]).await;
    let state = open(&path);
    commit(
        &state,
        vec![Write::Delete {
            key: Key::new("p", "a"),
            expect: Expect::Any,
        }],
    )
    .await;
    let second = commit(&state, vec![put("a", "x", Expect::Absent)]).await;
    assert!(second > first, "{second:?} after {first:?}");
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_the_process_lives_on() {
    let (_folder, path) = folder();
    drop(open(&path));
    let state = SqliteState::start(&path, Some(60)).expect("it opens");
    commit(&state, vec![put("small", "kept", Expect::Absent)]).await;
    let large = vec![
        put("small", "lost", Expect::Any),
        put("large", vec![7; 1 << 20], Expect::Any),
    ];
    let error = state.transact(large).await.expect_err("there is no room");
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(
        error.chain().ends_with("the disk is full"),
        "{}",
        error.chain()
    );
    assert_eq!(value(&state, "small").await.expect("it is there"), "kept");
    assert_eq!(value(&state, "large").await, None);
    commit(&state, vec![put("small", "later", Expect::Any)]).await;
    assert_eq!(
        value(&open(&path), "small").await.expect("it is there"),
        "later"
    );
}

#[tokio::test]
async fn who_shares_a_commit_with_what_does_not_fit_is_committed() {
    let (_folder, path) = folder();
    let state = SqliteState::start(&path, Some(60)).expect("it opens");
    let transactions = (0..32).map(|index| {
        let size = if index % 8 == 3 { 1 << 20 } else { 10 };
        let write = put(&format!("{index:02}"), vec![7; size], Expect::Absent);
        let state = &state;
        async move { state.transact(vec![write]).await }
    });
    let answers = join_all(transactions).await;
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer.is_ok(), index % 8 != 3, "{index}: {answer:?}");
    }
    let stored = state
        .query(&Span::prefix("p", "", 100))
        .await
        .expect("the store answers");
    assert_eq!(stored.len(), 28);
}
