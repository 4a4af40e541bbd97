//! Failures that leave no doubt: nothing happened.

use super::*;

#[tokio::test]
async fn bug_31_a_meeting_with_another_transaction_is_tried_again() {
    let fake = Fake::default();
    let state = store(&fake);
    fake.fail(&[Fault::Conflict, Fault::Conflict]);
    let version = commit(
        &state,
        vec![put("a", "1", Expect::Absent), put("b", "1", Expect::Any)],
    )
    .await;
    assert_eq!(state.retries(), 2);
    fake.fail(&[Fault::Conflict, Fault::Conflict]);
    commit(&state, vec![put("a", "2", Expect::Version(version[0]))]).await;
    assert_eq!(state.retries(), 4);
    assert_eq!(value(&state, "a").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_meeting_that_does_not_end_is_a_conflict_of_nothing_in_particular() {
    let fake = Fake::default();
    let state = store(&fake);
    for writes in [
        vec![put("a", "1", Expect::Absent)],
        vec![put("a", "1", Expect::Version(1))],
        vec![delete("a", Expect::Any)],
    ] {
        fake.fail(&[Fault::Conflict; 20]);
        assert_eq!(
            transact(&state, writes).await,
            Outcome::Conflict(Vec::new())
        );
        fake.calm();
    }
    assert_eq!(value(&state, "a").await, None);
}

#[tokio::test]
async fn a_throttled_table_is_tried_again_and_then_unavailable() {
    let fake = Fake::default();
    let state = store(&fake);
    fake.fail(&[Fault::Throttle; 5]);
    commit(&state, vec![put("a", "1", Expect::Absent)]).await;
    fake.fail(&[Fault::Throttle; 50]);
    let writes = vec![put("a", "2", Expect::Any)];
    let error = state.transact(writes).await.expect_err("it never ends");
    assert_eq!(error.kind, Kind::Unavailable, "{}", error.chain());
    assert!(!error.chain().contains("not known"), "{}", error.chain());
    assert!(fake.requests().len() < 20, "the attempts are bounded");
    fake.calm();
    assert_eq!(value(&state, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn what_the_server_never_did_is_done_by_the_next_sending() {
    for fault in [Fault::FailBefore, Fault::DropBefore] {
        let fake = Fake::default();
        let state = store(&fake);
        fake.fail(&[fault, fault]);
        let created = commit(&state, vec![put("a", "1", Expect::Absent)]).await[0];
        fake.fail(&[fault, fault]);
        let replaced = commit(&state, vec![put("a", "2", Expect::Version(created))]).await[0];
        fake.fail(&[fault, fault]);
        commit(&state, vec![delete("a", Expect::Version(replaced))]).await;
        assert_eq!(value(&state, "a").await, None);
    }
}

#[tokio::test]
async fn a_server_that_never_answers_leaves_it_unknown_and_says_so() {
    let fake = Fake::default();
    let state = store(&fake);
    for fault in [Fault::FailBefore, Fault::DropBefore] {
        fake.fail(&[fault; 50]);
        let writes = vec![put("a", "1", Expect::Absent)];
        let error = state.transact(writes).await.expect_err("it never answers");
        assert_eq!(error.kind, Kind::Unavailable);
        assert!(
            error.chain().contains("not known whether it happened"),
            "{}",
            error.chain()
        );
        fake.calm();
    }
    assert_eq!(value(&state, "a").await, None);
}

#[tokio::test]
async fn keys_that_dynamodb_cannot_hold_are_invalid_before_anything_is_sent() {
    let fake = Fake::default();
    let state = store(&fake);
    let writes = vec![put(&"x".repeat(1_100), "1", Expect::Any)];
    let error = state
        .transact(writes)
        .await
        .expect_err("the key is too long");
    assert_eq!(error.kind, Kind::Invalid);
    assert_eq!(fake.requests().len(), 0);
}
