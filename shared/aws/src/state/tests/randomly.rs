//! Many writers, faults at random: whatever was answered is what happened.

use std::collections::BTreeMap;

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

/// What a writer was told of each of its marks.
type Told = BTreeMap<String, Option<bool>>;

/// Adds a mark to the lists of some items in one transaction, each expecting what was read.
async fn add(state: &DynamoState, mark: &str, sorts: &[String]) -> Option<bool> {
    let keys: Vec<Key> = sorts.iter().map(|sort| key(sort)).collect();
    let items = state.get_many(&keys).await.expect("reads do not fail here");
    let mut writes = Vec::new();
    for (key, item) in keys.into_iter().zip(items) {
        let mut list: Vec<String> = item
            .as_ref()
            .map_or_else(Vec::new, |item| item.decode().expect("a list"));
        list.push(mark.to_owned());
        writes.push(Write::put(key, &list, Expect::as_read(item.as_ref())));
    }
    match state.transact(writes).await {
        Ok(outcome) => Some(outcome.is_committed()),
        Err(error) => {
            assert_eq!(error.kind, Kind::Unavailable, "{}", error.chain());
            None
        }
    }
}

async fn write(state: DynamoState, writer: u64, seed: u64) -> Told {
    let mut random = StdRng::seed_from_u64(seed ^ (writer << 32));
    let mut told = Told::new();
    for round in 0..40 {
        let mark = format!("{writer}.{round}");
        let items = ["a", "b", "c"].map(str::to_owned);
        let count = random.random_range(1..=2);
        let first = random.random_range(0..=items.len() - count);
        let answer = add(&state, &mark, &items[first..first + count]).await;
        told.insert(mark, answer);
    }
    told
}

#[tokio::test]
async fn whatever_was_answered_is_what_happened() {
    for seed in 0..10_u64 {
        let fake = Fake::default();
        fake.fail_randomly(StdRng::seed_from_u64(seed), 25);
        let writers = (0..4).map(|writer| {
            let state = DynamoState {
                chance: Arc::new(SeededChance::new(1_000_000 + seed * 100 + writer)),
                ..store(&fake)
            };
            write(state, writer, seed)
        });
        let told: Vec<Told> = join_all(writers).await;
        fake.calm();
        let state = store(&fake);
        let mut found = BTreeMap::<String, usize>::new();
        for sort in ["a", "b", "c"] {
            let item = state.get(&key(sort)).await.expect("the store answers");
            let list: Vec<String> = item.map_or_else(Vec::new, |i| i.decode().expect("a list"));
            let unique: std::collections::BTreeSet<_> = list.iter().collect();
            assert_eq!(
                unique.len(),
                list.len(),
                "seed {seed}: a mark is there twice"
            );
            for mark in list {
                *found.entry(mark).or_default() += 1;
            }
        }
        let mut counts = [0; 3];
        for (mark, answer) in told.iter().flatten() {
            counts[answer.map_or(2, usize::from)] += 1;
            if let Some(happened) = answer {
                assert_eq!(
                    *happened,
                    found.contains_key(mark),
                    "seed {seed}: the answer for {mark} is wrong"
                );
            }
        }
        let [conflicts, commits, unknown] = counts;
        assert!(
            commits > 30,
            "seed {seed}: {conflicts} conflicts, {commits} commits"
        );
        assert!(unknown < 10, "seed {seed}: {unknown} unknown");
    }
}
