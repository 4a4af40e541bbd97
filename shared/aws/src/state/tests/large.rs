//! Values that become objects.

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use ports::Objects;

use super::*;

fn with(fake: &Fake, objects: Option<Objects>) -> DynamoState {
    DynamoState {
        objects,
        ..store(fake)
    }
}

async fn names(objects: &Objects) -> Vec<object_store::path::Path> {
    let listed: Vec<_> = objects.list(None).try_collect().await.expect("a list");
    listed.into_iter().map(|object| object.location).collect()
}

#[tokio::test]
async fn a_large_value_is_an_object_and_read_like_any_other() {
    let (fake, objects): (_, Objects) = (Fake::default(), Arc::new(InMemory::new()));
    let state = with(&fake, Some(objects.clone()));
    let large = Bytes::from(vec![b'x'; 500_000]);
    let version = commit(&state, vec![put("a", large.clone(), Expect::Absent)]).await[0];
    commit(&state, vec![put("b", "small", Expect::Absent)]).await;
    assert_eq!(names(&objects).await.len(), 1);
    assert!(names(&objects).await[0].as_ref().starts_with("state/"));
    let one = state
        .get(&key("a"))
        .await
        .expect("an answer")
        .expect("an item");
    assert!(one.version == version && one.value == large);
    let many = state
        .get_many(&[key("b"), key("a")])
        .await
        .expect("an answer");
    assert!(many[1].as_ref().is_some_and(|item| item.value == large));
    let all = state
        .query(&Span::prefix("p", "", 9))
        .await
        .expect("an answer");
    assert!(all[0].value == large && all[1].value == "small");
}

#[tokio::test]
async fn a_transaction_over_the_limit_gives_its_largest_values_away() {
    let (fake, objects): (_, Objects) = (Fake::default(), Arc::new(InMemory::new()));
    let state = with(&fake, Some(objects.clone()));
    let writes =
        (0..20).map(|index| put(&format!("{index:02}"), vec![b'x'; 300_000], Expect::Absent));
    commit(&state, writes.collect()).await;
    assert_eq!(names(&objects).await.len(), 9);
    let items = state
        .query(&Span::prefix("p", "", 20))
        .await
        .expect("an answer");
    assert!(items.len() == 20 && items.iter().all(|item| item.value.len() == 300_000));
}

#[tokio::test]
async fn without_an_object_store_large_values_are_refused_with_the_limit() {
    let fake = Fake::default();
    let state = with(&fake, None);
    let one = vec![put("a", vec![b'x'; 500_000], Expect::Any)];
    let many = (0..20).map(|index| put(&format!("{index}"), vec![b'x'; 300_000], Expect::Any));
    for (writes, limit) in [(one, "389120"), (many.collect(), "3600000")] {
        let error = state.transact(writes).await.expect_err("nowhere to put it");
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.chain().contains(limit), "{}", error.chain());
    }
    assert_eq!(fake.requests().len(), 0);
}

#[tokio::test]
async fn an_object_that_is_gone_is_corrupt_unless_its_item_was_replaced() {
    let (fake, objects): (_, Objects) = (Fake::default(), Arc::new(InMemory::new()));
    let state = with(&fake, Some(objects.clone()));
    commit(&state, vec![put("a", vec![b'x'; 500_000], Expect::Absent)]).await;
    objects
        .delete(&names(&objects).await[0])
        .await
        .expect("deleted");
    let error = state.get(&key("a")).await.expect_err("it is gone");
    assert_eq!(error.kind, Kind::Corrupt, "{}", error.chain());
    commit(&state, vec![put("a", "small", Expect::Any)]).await;
    assert_eq!(value(&state, "a").await.as_deref(), Some("small"));
}

#[tokio::test]
async fn only_objects_that_no_item_names_and_that_are_old_are_removed() {
    let (fake, objects): (_, Objects) = (Fake::default(), Arc::new(InMemory::new()));
    let state = with(&fake, Some(objects.clone()));
    let large = |letter| vec![letter; 500_000];
    commit(&state, vec![put("a", large(b'x'), Expect::Absent)]).await;
    commit(&state, vec![put("b", large(b'x'), Expect::Absent)]).await;
    commit(&state, vec![put("c", large(b'x'), Expect::Absent)]).await;
    commit(&state, vec![put("a", large(b'y'), Expect::Any)]).await;
    commit(&state, vec![delete("b", Expect::Any)]).await;
    // Never named: its transaction met a conflict. And names that we did not give.
    let lost = transact(&state, vec![put("c", large(b'z'), Expect::Absent)]).await;
    assert!(!lost.is_committed());
    for other in ["state/notes.txt", "tables/a/b/data/x"] {
        objects
            .put(&other.into(), "mine".into())
            .await
            .expect("put");
    }
    assert_eq!(names(&objects).await.len(), 7);
    let sweep = |hours: u64, most| Sweep {
        now: state.clock.now() + Duration::from_secs(hours * 3_600),
        grace: Duration::ZERO,
        orphans: Duration::from_secs(24 * 3_600),
        most,
    };
    let swept = state.sweep(&sweep(23, 9)).await.expect("an answer");
    assert_eq!((swept.removed, swept.more), (0, false));
    let swept = state.sweep(&sweep(25, 2)).await.expect("an answer");
    assert_eq!((swept.removed, swept.more), (2, true));
    let swept = state.sweep(&sweep(25, 9)).await.expect("an answer");
    assert_eq!(
        (swept.removed, swept.bytes, swept.more),
        (1, 500_000, false)
    );
    assert_eq!(names(&objects).await.len(), 4);
    for (name, letter) in [("a", b'y'), ("c", b'x')] {
        let item = state.get(&key(name)).await.expect("an answer");
        assert_eq!(item.expect("an item").value, large(letter), "{name}");
    }
}

#[tokio::test]
async fn an_object_of_another_length_is_corrupt() {
    let (fake, objects): (_, Objects) = (Fake::default(), Arc::new(InMemory::new()));
    let state = with(&fake, Some(objects.clone()));
    commit(&state, vec![put("a", vec![b'x'; 500_000], Expect::Absent)]).await;
    let name = names(&objects).await.remove(0);
    objects.put(&name, "short".into()).await.expect("put");
    let error = state.get(&key("a")).await.expect_err("it is short");
    assert_eq!(error.kind, Kind::Corrupt, "{}", error.chain());
}

#[tokio::test]
async fn bug_25_objects_of_a_commit_of_unknown_outcome_are_left_alone() {
    let (fake, objects): (_, Objects) = (Fake::default(), Arc::new(InMemory::new()));
    let state = with(&fake, Some(objects.clone()));
    fake.fail(&[Fault::FailBefore; 7]);
    fake.fail(&[Fault::FailAfter, Fault::FailBefore]);
    let writes = vec![put("a", vec![b'x'; 500_000], Expect::Absent)];
    assert!(transact(&state, writes).await.is_committed());
    fake.calm();
    let item = state
        .get(&key("a"))
        .await
        .expect("an answer")
        .expect("an item");
    assert_eq!(item.value.len(), 500_000);
}
