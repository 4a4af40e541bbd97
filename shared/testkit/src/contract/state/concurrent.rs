//! What concurrent callers see.

use std::sync::Arc;

use futures::future::join_all;
use ports::state::{Expect, Key, Outcome, Span, Write};

use super::{Store, commit, delete, get, put, text, transact};

pub(super) async fn many_items_are_read_as_of_one_moment(state: &Store, place: &str) {
    let keys = Arc::new([Key::new(place, "a"), Key::new(place, "b")]);
    let writer = {
        let (state, keys) = (state.clone(), keys.clone());
        tokio::spawn(async move {
            for round in 0..50 {
                let writes = keys
                    .iter()
                    .map(|key| Write::put(key.clone(), &round, Expect::Any));
                assert!(transact(&state, writes.collect()).await.is_committed());
            }
        })
    };
    while !writer.is_finished() {
        let items = state
            .get_many(&keys[..])
            .await
            .expect("the store answers a read");
        let values: Vec<_> = items
            .iter()
            .map(|item| item.as_ref().map(|i| &i.value))
            .collect();
        assert_eq!(values[0], values[1], "half of a transaction was seen");
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends well");
}

async fn increment(state: &Store, key: &Key) {
    loop {
        let item = get(state, key).await;
        let count: u64 = item
            .as_ref()
            .map_or(0, |item| item.decode().expect("a number"));
        let write = Write::put(key.clone(), &(count + 1), Expect::as_read(item.as_ref()));
        if transact(state, vec![write]).await.is_committed() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

pub(super) async fn concurrent_increments_lose_nothing(state: &Store, place: &str) {
    let workers = (0..8).map(|_| {
        let (state, key) = (state.clone(), Key::new(place, "counter"));
        tokio::spawn(async move {
            for _ in 0..10 {
                increment(&state, &key).await;
            }
        })
    });
    for worker in join_all(workers).await {
        worker.expect("a worker ends well");
    }
    assert_eq!(
        text(state, &Key::new(place, "counter")).await.as_deref(),
        Some("80")
    );
}

pub(super) async fn concurrent_creators_have_one_winner(state: &Store, place: &str) {
    let creators = (0..8).map(|creator| {
        let (state, key) = (state.clone(), Key::new(place, "lease"));
        let write = Write::put(key, &creator, Expect::Absent);
        tokio::spawn(async move { transact(&state, vec![write]).await })
    });
    let joined = join_all(creators).await;
    let outcomes: Vec<Outcome> = joined
        .into_iter()
        .map(|outcome| outcome.expect("a creator ends well"))
        .collect();
    let winner = outcomes
        .iter()
        .position(Outcome::is_committed)
        .expect("one wins");
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| outcome.is_committed())
            .count(),
        1
    );
    assert_eq!(
        text(state, &Key::new(place, "lease")).await,
        Some(winner.to_string())
    );
}

pub(super) async fn a_commit_is_visible_at_once(state: &Store, place: &str) {
    let key = Key::new(place, "a");
    for round in 0..20_u32 {
        commit(state, Write::put(key.clone(), &round, Expect::Any)).await;
        assert_eq!(text(state, &key).await, Some(round.to_string()));
        let found = state.query(&Span::prefix(place, "", 9)).await;
        assert_eq!(found.expect("the store answers a query").len(), 1);
    }
}

pub(super) async fn a_commit_changes_the_counter(state: &Store, place: &str) {
    let counter = || async { state.change_counter().await.expect("the store answers") };
    // A store that cannot tell says so, and keeps to it.
    let Some(start) = counter().await else { return };
    let key = Key::new(place, "a");
    commit(state, put(&key, "one", Expect::Any)).await;
    let after_put = counter().await.expect("it could tell before");
    assert_ne!(start, after_put, "a put is a change");
    commit(state, delete(&key, Expect::Any)).await;
    assert_ne!(Some(after_put), counter().await, "a delete is a change");
}
