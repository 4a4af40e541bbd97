//! The contract of state stores.

mod concurrent;
mod reading;
mod writing;

use std::sync::Arc;

use bytes::Bytes;
use ports::{
    State,
    state::{Expect, Item, Key, Outcome, Write},
};

use self::{concurrent::*, reading::*, writing::*};
use super::checks;

/// The contract of [`ports::State`].
///
/// # Panics
/// When it is broken.
pub async fn state(state: Arc<dyn State>) {
    let store = &state;
    checks!(
        "state",
        store,
        [
            what_was_put_is_read,
            an_absent_item_is_none,
            every_put_has_a_new_version,
            a_version_is_not_reused_after_a_delete,
            an_unknown_version_is_a_conflict,
            absent_expects_absence,
            any_expects_nothing,
            a_check_changes_nothing,
            deletes_hold_their_condition,
            a_conflict_names_every_failing_write,
            a_conflict_changes_nothing,
            committed_versions_are_in_order_of_the_writes,
            one_key_twice_is_invalid,
            more_than_a_hundred_writes_are_invalid,
            a_hundred_writes_are_committed,
            an_empty_transaction_is_committed,
            large_and_binary_values_come_back_as_put,
            any_text_is_a_key,
            partitions_are_apart,
        ]
    );
    checks!(
        "state",
        store,
        [
            many_items_are_answered_in_the_order_asked,
            a_span_is_in_bytewise_order,
            a_prefix_span_holds_just_the_prefix,
            a_span_starts_inclusive_and_ends_exclusive,
            a_reverse_span_starts_at_the_end,
            pages_cover_a_span_once,
            an_empty_span_is_empty,
            many_items_are_read_as_of_one_moment,
            concurrent_increments_lose_nothing,
            concurrent_creators_have_one_winner,
            a_commit_is_visible_at_once,
            a_commit_changes_the_counter,
        ]
    );
}

/// A store under test.
type Store = Arc<dyn State>;

fn put(key: &Key, value: &str, expect: Expect) -> Write {
    Write::Put {
        key: key.clone(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        expect,
    }
}

fn delete(key: &Key, expect: Expect) -> Write {
    Write::Delete {
        key: key.clone(),
        expect,
    }
}

fn check(key: &Key, expect: Expect) -> Write {
    Write::Check {
        key: key.clone(),
        expect,
    }
}

async fn transact(state: &Store, writes: Vec<Write>) -> Outcome {
    state
        .transact(writes)
        .await
        .expect("the store answers a transaction")
}

/// Commits one write and gives its version.
async fn commit(state: &Store, write: Write) -> u64 {
    match transact(state, vec![write]).await {
        Outcome::Committed(versions) => versions[0],
        Outcome::Conflict(failed) => panic!("unexpected conflict of {failed:?}"),
    }
}

async fn get(state: &Store, key: &Key) -> Option<Item> {
    state.get(key).await.expect("the store answers a read")
}

async fn text(state: &Store, key: &Key) -> Option<String> {
    let item = get(state, key).await?;
    Some(String::from_utf8(item.value.to_vec()).expect("the value that was put is text"))
}
