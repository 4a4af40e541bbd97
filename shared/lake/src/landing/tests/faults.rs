//! Stores that conflict, do not answer, or answer after the fact.

use std::collections::BTreeMap;

use futures::future::join_all;
use ports::{Kind, Landing, landing::Appended};
use testkit::{Fault, Faults, FaultyState, Operation, Rates};

use super::*;

fn faulty(faults: Faults) -> (Arc<Faults>, Arc<MemoryState>, Case) {
    let (faults, memory) = (Arc::new(faults), Arc::new(MemoryState::new()));
    let case = Case::over(Arc::new(FaultyState::new(
        memory.clone(),
        Arc::clone(&faults),
    )));
    (faults, memory, case)
}

#[tokio::test]
async fn an_unknown_outcome_is_looked_up() {
    let (faults, memory, case) = faulty(Faults::none());
    for fault in [Fault::After, Fault::Before, Fault::Conflict] {
        faults.inject(Operation::Transact, 0, fault);
        let stored = drive(
            &case.clock,
            case.lake.append(append(numbers("n", &[1]), Some("k"))),
        );
        stored.await.expect("stored");
    }
    let rows = read(memory.as_ref(), &case.objects, "n").await;
    assert_eq!(rows.len(), 1, "the key was the same");
    faults.inject(Operation::Transact, 0, Fault::After);
    let stored = drive(
        &case.clock,
        case.lake.append(append(numbers("n", &[2, 3]), None)),
    )
    .await;
    let stored = stored.expect("stored");
    assert_eq!(
        (stored.first, stored.last, stored.position.commits),
        (2, 3, 2)
    );
    assert_eq!(read(memory.as_ref(), &case.objects, "n").await.len(), 3);
}

#[tokio::test]
async fn a_store_that_stays_away_is_said_to_be_away() {
    let (faults, _, case) = faulty(Faults::none());
    faults.set_rates(Rates {
        before: 1.0,
        ..Rates::default()
    });
    let stored = drive(
        &case.clock,
        case.lake.append(append(numbers("n", &[1]), None)),
    )
    .await;
    assert_eq!(stored.expect_err("refused").kind, Kind::Unavailable);
    faults.set_rates(Rates::default());
    let stored = drive(
        &case.clock,
        case.lake.append(append(numbers("n", &[1]), None)),
    )
    .await;
    assert_eq!(stored.expect("stored").last, 1);
}

#[tokio::test]
async fn only_a_commit_says_that_a_store_is_back() {
    let (faults, _, case) = faulty(Faults::none());
    let rates = Rates {
        before: 1.0,
        ..Rates::default()
    };
    faults.set_rates(rates);
    let add = || case.lake.append(append(numbers("n", &[1]), None));
    let away = drive(&case.clock, add()).await;
    assert_eq!(away.expect_err("refused").kind, Kind::Unavailable);
    assert!(case.lake.trouble().is_some());
    // A table whose items are damaged, say.
    let damaged = ports::Error::new(Kind::Corrupt, "read", "item");
    case.lake.world.note(Some(&damaged));
    assert!(case.lake.trouble().is_some(), "nothing was committed since");
    faults.set_rates(Rates::default());
    drive(&case.clock, add()).await.expect("stored");
    assert_eq!(case.lake.trouble(), None);
}

/// S-1, and every row at most once: whatever the weather, and however many processes write.
#[tokio::test]
async fn nothing_is_lost_or_doubled_in_any_weather() {
    for seed in 0..40 {
        let rates = Rates {
            conflict: 0.2,
            before: 0.1,
            after: 0.1,
            disk_full: 0.02,
        };
        let (faults, memory, case) = faulty(Faults::seeded(seed, rates));
        let lakes: Vec<_> = (0..3)
            .map(|n| lake(case.state.clone(), &case.objects, &case.clock, seed * 3 + n))
            .collect();
        let batch = |n: u64| -> Vec<String> {
            (0..1 + (n * 7 + seed) % 5)
                .map(|i| format!("{n}.{i}"))
                .collect()
        };
        let key = |n: u64| n.is_multiple_of(3).then(|| format!("key{}", n % 12));
        let appends = (0..40).map(|n| {
            let append = append(ids(&batch(n)), key(n).as_deref());
            let lake = &lakes[(n % 3) as usize];
            async move { (n, lake.append(append).await) }
        });
        let answers = drive(&case.clock, join_all(appends)).await;
        faults.set_rates(Rates::default());
        let rows = read(memory.as_ref(), &case.objects, "id").await;
        check(seed, &rows, &answers, batch, key);
    }
}

fn check(
    seed: u64,
    rows: &[(u64, Option<String>)],
    answers: &[(u64, ports::Result<Appended>)],
    batch: impl Fn(u64) -> Vec<String>,
    key: impl Fn(u64) -> Option<String>,
) {
    let mut by_id = BTreeMap::new();
    for (sequence, id) in rows {
        let id = id.clone().expect("no NULL");
        assert_eq!(
            by_id.insert(id, *sequence),
            None,
            "seed {seed}: a row is there twice"
        );
    }
    let mut ranges: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (n, answer) in answers {
        let found: Vec<_> = batch(*n).iter().map(|id| by_id.get(id).copied()).collect();
        let together = found.iter().flatten().count();
        assert!(
            together == 0 || together == found.len(),
            "seed {seed}: append {n} is torn"
        );
        match answer {
            Ok(stored) if stored.duplicate => {
                assert_eq!(together, 0, "seed {seed}: append {n} was a duplicate");
            }
            Ok(stored) => {
                let range = (stored.first..=stored.last).map(Some);
                assert!(range.eq(found), "seed {seed}: append {n} is elsewhere");
            }
            // Only an outage refuses, and then the caller does not know.
            Err(error) => assert_eq!(
                error.kind,
                Kind::Unavailable,
                "seed {seed}: {}",
                error.chain()
            ),
        }
        if let (Some(key), Ok(stored)) = (key(*n), answer) {
            let range = (stored.first, stored.last);
            assert_eq!(
                *ranges.entry(key).or_insert(range),
                range,
                "seed {seed}: append {n}"
            );
        }
    }
}
