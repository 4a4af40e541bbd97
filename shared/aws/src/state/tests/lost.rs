//! Answers that were lost after it happened: the outcome is what really happened.

use super::*;

const LOST: [Fault; 2] = [Fault::FailAfter, Fault::DropAfter];

#[tokio::test]
async fn bug_25_a_commit_whose_answer_was_lost_is_recognised() {
    for fault in LOST {
        let fake = Fake::default();
        let state = store(&fake);
        fake.fail(&[fault]);
        let writes = vec![put("a", "1", Expect::Absent), check("z", Expect::Absent)];
        let versions = commit(&state, writes).await;
        let item = state.get(&key("a")).await.expect("the store answers");
        let item = item.expect("it was put");
        assert_eq!((versions[0], versions[1]), (item.version, 0));
        assert_eq!(item.value, "1");
    }
}

#[tokio::test]
async fn a_replacement_whose_answer_was_lost_is_recognised() {
    for fault in LOST {
        let fake = Fake::default();
        let state = store(&fake);
        let first = commit(&state, vec![put("a", "1", Expect::Absent)]).await[0];
        fake.fail(&[fault]);
        let second = commit(&state, vec![put("a", "2", Expect::Version(first))]).await[0];
        let item = state.get(&key("a")).await.expect("the store answers");
        assert_eq!(item.expect("it was put").version, second);
        let stale = transact(&state, vec![put("a", "3", Expect::Version(first))]).await;
        assert_eq!(stale, Outcome::Conflict(vec![0]));
    }
}

#[tokio::test]
async fn deletes_and_checks_whose_answer_was_lost_are_answered_by_their_token() {
    for fault in LOST {
        let fake = Fake::default();
        let state = store(&fake);
        let version = commit(&state, vec![put("a", "1", Expect::Absent)]).await[0];
        fake.fail(&[fault]);
        let writes = vec![
            delete("a", Expect::Version(version)),
            check("b", Expect::Absent),
        ];
        assert_eq!(commit(&state, writes).await, [0, 0]);
        fake.fail(&[fault]);
        let unmet = vec![delete("a", Expect::Version(version))];
        assert_eq!(transact(&state, unmet).await, Outcome::Conflict(vec![0]));
    }
}

#[tokio::test]
async fn a_lost_answer_that_was_a_conflict_is_a_conflict() {
    for fault in LOST {
        let fake = Fake::default();
        let state = store(&fake);
        let version = commit(&state, vec![put("a", "1", Expect::Absent)]).await[0];
        let second = commit(&state, vec![put("a", "2", Expect::Version(version))]).await[0];
        for writes in [
            vec![put("a", "3", Expect::Absent)],
            vec![put("a", "3", Expect::Version(version))],
            vec![
                put("b", "3", Expect::Any),
                put("a", "3", Expect::Version(version)),
            ],
        ] {
            let at = writes.len() - 1;
            fake.fail(&[fault]);
            assert_eq!(transact(&state, writes).await, Outcome::Conflict(vec![at]));
        }
        let item = state.get(&key("a")).await.expect("the store answers");
        assert_eq!(item.expect("it stays").version, second);
        assert_eq!(value(&state, "b").await, None);
    }
}

#[tokio::test]
async fn a_commit_that_others_have_written_over_is_still_known_to_have_happened() {
    for fault in [Fault::Overwritten, Fault::Buried] {
        let fake = Fake::default();
        let state = store(&fake);
        fake.fail(&[fault]);
        let writes = vec![put("a", "1", Expect::Absent), put("b", "1", Expect::Absent)];
        assert!(transact(&state, writes).await.is_committed(), "{fault:?}");
    }
}

#[tokio::test]
async fn a_replacement_that_others_have_replaced_is_told_by_what_they_replaced() {
    let fake = Fake::default();
    let state = store(&fake);
    let version = commit(&state, vec![put("a", "1", Expect::Absent)]).await[0];
    fake.fail(&[Fault::Overwritten]);
    let outcome = transact(&state, vec![put("a", "2", Expect::Version(version))]).await;
    assert!(
        outcome.is_committed(),
        "the item says that it replaced ours"
    );
}

#[tokio::test]
async fn a_replacement_that_nothing_tells_of_is_unavailable_and_never_guessed() {
    let fake = Fake::default();
    let state = store(&fake);
    let version = commit(&state, vec![put("a", "1", Expect::Absent)]).await[0];
    fake.fail(&[Fault::Buried]);
    let writes = vec![put("a", "2", Expect::Version(version))];
    let error = state.transact(writes).await.expect_err("nothing tells");
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.chain().contains("not known"), "{}", error.chain());
}

#[tokio::test]
async fn a_sending_that_arrives_late_does_nothing_twice() {
    let fake = Fake::default();
    let state = store(&fake);
    // The first sending arrives when its second has been answered and another commit has followed.
    fake.fail(&[Fault::Late]);
    let created = commit(&state, vec![put("a", "1", Expect::Any)]).await[0];
    let second = commit(&state, vec![put("a", "2", Expect::Version(created))]).await[0];
    fake.calm();
    let item = state.get(&key("a")).await.expect("the store answers");
    assert_eq!(
        item.expect("it was put").version,
        second,
        "the late one put nothing back"
    );
    fake.fail(&[Fault::Late]);
    let third = commit(&state, vec![put("a", "3", Expect::Version(second))]).await[0];
    commit(&state, vec![put("a", "4", Expect::Version(third))]).await;
    fake.calm();
    assert_eq!(value(&state, "a").await.as_deref(), Some("4"));
}
