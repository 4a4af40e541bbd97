//! The store against a DynamoDB in memory that fails on demand, and against emulators when there are some.

mod catalog;
mod emulators;
mod fake;
mod faults;
mod large;
mod lost;
mod randomly;

use std::{sync::Mutex, time::SystemTime};

use async_trait::async_trait;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use bytes::Bytes;
use domain::Timestamp;
use object_store::memory::InMemory;
use ports::{
    Kind,
    state::{Expect, WRITES_MAX},
};
use testkit::SeededChance;

use self::fake::{Fake, Fault};
use super::*;

/// A clock on which every sleep is over at once: pauses pass, tests do not wait for them.
#[derive(Debug)]
struct Hurried(Mutex<Timestamp>);

impl Hurried {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = since.expect("it is later than 1970").as_micros();
        Self(Mutex::new(Timestamp(
            i64::try_from(micros).expect("it is earlier than 290000"),
        )))
    }
}

#[async_trait]
impl Clock for Hurried {
    fn now(&self) -> Timestamp {
        *self.0.lock().expect("nobody panicked")
    }

    async fn sleep_until(&self, moment: Timestamp) {
        {
            let mut now = self.0.lock().expect("nobody panicked");
            *now = moment.max(*now);
        }
        tokio::task::yield_now().await;
    }
}

/// Configuration of a client that nobody checks the credentials of.
fn configured() -> aws_sdk_dynamodb::config::Builder {
    Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
}

fn tables(catalog: bool) -> Tables {
    Tables {
        state: "state".to_owned(),
        catalog: catalog.then(|| "iceberg".to_owned()),
    }
}

/// A store over a fake, with a catalog and an object store in memory, and ids like no other.
fn store(fake: &Fake) -> DynamoState {
    static SEED: AtomicU64 = AtomicU64::new(1);
    DynamoState::new(
        fake.client(),
        tables(true),
        Some(Arc::new(InMemory::new())),
        Arc::new(Hurried::new()),
        Arc::new(SeededChance::new(SEED.fetch_add(1, Ordering::Relaxed))),
    )
}

fn key(sort: &str) -> Key {
    Key::new("p", sort)
}

fn put(sort: &str, value: impl Into<Bytes>, expect: Expect) -> Write {
    Write::Put {
        key: key(sort),
        value: value.into(),
        expect,
    }
}

fn delete(sort: &str, expect: Expect) -> Write {
    Write::Delete {
        key: key(sort),
        expect,
    }
}

fn check(sort: &str, expect: Expect) -> Write {
    Write::Check {
        key: key(sort),
        expect,
    }
}

async fn transact(state: &DynamoState, writes: Vec<Write>) -> Outcome {
    state.transact(writes).await.expect("the store answers")
}

async fn commit(state: &DynamoState, writes: Vec<Write>) -> Vec<u64> {
    match transact(state, writes).await {
        Outcome::Committed(versions) => versions,
        Outcome::Conflict(failed) => panic!("unexpected conflict of {failed:?}"),
    }
}

async fn value(state: &DynamoState, sort: &str) -> Option<String> {
    let item = state.get(&key(sort)).await.expect("the store answers")?;
    Some(String::from_utf8(item.value.to_vec()).expect("text"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_keeps_the_contract_over_a_dynamodb_in_memory() {
    testkit::contract::state(Arc::new(store(&Fake::default()))).await;
}

#[tokio::test]
async fn items_of_other_programs_are_corrupt() {
    let fake = Fake::default();
    fake.insert(&[("p", "no mark"), ("s", "=a")]);
    fake.insert(&[("p", "=p"), ("s", "=a")]);
    let state = store(&fake);
    let error = state.get(&key("a")).await.expect_err("it has no value");
    assert_eq!(error.kind, Kind::Corrupt, "{}", error.chain());
}

#[tokio::test]
async fn a_check_of_nothing_costs_no_request_and_keeps_the_places_of_the_others() {
    let fake = Fake::default();
    let state = store(&fake);
    let nothing = vec![check("a", Expect::Any), check("b", Expect::Any)];
    assert_eq!(commit(&state, nothing).await, [0, 0]);
    assert_eq!(fake.requests().len(), 0);
    let outcome = transact(
        &state,
        vec![check("a", Expect::Any), check("b", Expect::Version(1))],
    );
    assert_eq!(outcome.await, Outcome::Conflict(vec![1]));
}

#[tokio::test]
async fn one_replacement_is_a_plain_put_and_everything_else_a_transaction() {
    let fake = Fake::default();
    let state = store(&fake);
    let version = commit(&state, vec![put("a", "1", Expect::Absent)]).await[0];
    let version = commit(&state, vec![put("a", "2", Expect::Version(version))]).await[0];
    commit(&state, vec![delete("a", Expect::Version(version))]).await;
    assert_eq!(
        fake.requests(),
        ["TransactWriteItems", "PutItem", "TransactWriteItems"]
    );
}

#[tokio::test]
async fn idempotency_marks_and_nothing_else_have_a_time_to_live() {
    let fake = Fake::default();
    let keep = Duration::from_secs(7 * 86_400);
    let state = store(&fake).forgetting(keep);
    let at = |partition: &str, expect| Write::Put {
        key: Key::new(partition, "s"),
        value: Bytes::from_static(b"{}"),
        expect,
    };
    let marks = ["seen#orders#k", "expiry#landing.orders"];
    let others = [
        "table#landing.orders",
        "lease#silver.orders",
        "model#seen.x",
    ];
    for (index, partition) in marks.iter().chain(&others).enumerate() {
        // As a transaction, and replaced by a plain put.
        let version = commit(&state, vec![at(partition, Expect::Absent)]).await[0];
        commit(&state, vec![at(partition, Expect::Version(version))]).await;
        let rows = fake.rows("state");
        let row = rows
            .iter()
            .find(|row| row["p"]["S"] == format!("={partition}"));
        let ttl = row.expect("it is stored").get("ttl");
        let seconds = ttl.map(|ttl| ttl["N"].as_str().expect("a number").parse::<i64>());
        let least = (state.clock.now() + keep).as_millis() / 1_000;
        match (index < marks.len(), seconds) {
            (true, Some(Ok(seconds))) => assert!((least..=least + 1).contains(&seconds)),
            (false, None) => {}
            (_, found) => panic!("{partition}: {found:?}"),
        }
    }
    // Without a term they stay for ever.
    let fake = Fake::default();
    commit(&store(&fake), vec![at(marks[0], Expect::Absent)]).await;
    assert!(fake.rows("state")[0].get("ttl").is_none());
}

#[tokio::test]
async fn more_items_than_one_transaction_reads_are_read_as_of_one_moment() {
    let fake = Fake::default();
    let state = store(&fake);
    let names: Vec<String> = (0..250).map(|index| format!("{index:03}")).collect();
    for part in names.chunks(WRITES_MAX) {
        let writes = part.iter().map(|name| put(name, "old", Expect::Absent));
        commit(&state, writes.collect()).await;
    }
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    // Between the first and the third transaction that reads, somebody commits.
    let other = store(&fake);
    let both = vec![
        put("000", "new", Expect::Any),
        put("249", "new", Expect::Any),
    ];
    let (items, _) = tokio::join!(state.get_many(&keys), async {
        fake.reached("TransactGetItems", 1).await;
        commit(&other, both).await
    });
    let items = items.expect("the store answers");
    let at = |index: usize| items[index].as_ref().map(|item| item.value.clone());
    assert_eq!(items.len(), 250);
    assert_eq!(at(0), at(249), "half of a commit was seen");
}

#[tokio::test]
async fn items_too_large_to_be_read_together_are_read_in_smaller_parts() {
    let fake = Fake::default();
    let state = store(&fake);
    let names: Vec<String> = (0..30).map(|index| format!("{index:03}")).collect();
    for name in &names {
        commit(&state, vec![put(name, vec![b'x'; 300_000], Expect::Absent)]).await;
    }
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    let items = state.get_many(&keys).await.expect("the store answers");
    assert!(
        items
            .iter()
            .flatten()
            .all(|item| item.value.len() == 300_000)
    );
    assert_eq!(items.iter().flatten().count(), 30);
}

#[tokio::test]
async fn a_query_goes_on_over_pages_that_end_early() {
    let fake = Fake::default();
    let state = store(&fake);
    for index in 0..9 {
        let value = vec![b'x'; 300_000];
        commit(
            &state,
            vec![put(&format!("{index}"), value, Expect::Absent)],
        )
        .await;
    }
    for reverse in [false, true] {
        let span = Span {
            reverse,
            ..Span::prefix("p", "", 8)
        };
        let items = state.query(&span).await.expect("the store answers");
        assert_eq!(items.len(), 8, "a short page would end the span");
    }
}
