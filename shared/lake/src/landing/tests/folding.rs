//! Folding: fewer commits, the same rows under the same sequences.

use std::collections::BTreeSet;

use domain::{Duration, items};
use ports::{
    Landing, Result,
    state::{Item, Key, Outcome, Span, Write, query_all},
    upkeep::{Fold, Folded, Sweep},
};
use testkit::{Fault, Faults, FaultyState, Operation};

use super::*;
use crate::landing::commit::Stored;

const ALWAYS: Timestamp = Timestamp(i64::MAX);

fn fold(case: &Case, cuts: &[u64]) -> Fold {
    Fold {
        after: 0,
        until: ALWAYS,
        now: case.clock.now(),
        cuts: cuts.iter().copied().collect::<BTreeSet<u64>>(),
    }
}

async fn fold_all(case: &Case, cuts: &[u64]) -> Folded {
    let mut sum = Folded::default();
    let mut step = fold(case, cuts);
    loop {
        let done = case.lake.fold(&table(), &step).await.expect("a step");
        assert!(!done.conflict, "nobody is in the way");
        sum.commits += done.commits;
        sum.rows += done.rows;
        match done.next {
            Some(next) => {
                assert!(next > step.after, "every step goes on");
                step.after = next;
            }
            None => return sum,
        }
    }
}

async fn commits(state: &dyn State) -> Vec<items::Advance> {
    let span = Span::prefix(items::table(&table()), "advance#", 1_000);
    let items = query_all(state, span).await.expect("items");
    let read = |item: &Item| item.unpack::<Stored>().expect("a commit").0.advance;
    items.iter().map(read).collect()
}

async fn store(case: &Case, count: i64) {
    for n in 0..count {
        let stored = case.lake.append(append(numbers("n", &[n, n]), None)).await;
        stored.expect("stored");
    }
}

#[tokio::test]
async fn a_run_of_commits_becomes_one_and_rows_stay_where_they_are() {
    let case = Case::new();
    store(&case, 200).await;
    let mut late = append(ids(&["x".into()]), None);
    late.origin_at = Timestamp(1);
    case.lake.append(late).await.expect("stored");
    store(&case, 30).await;
    let before = read(case.state.as_ref(), &case.objects, "n").await;
    let folded = fold_all(&case, &[]).await;
    assert_eq!((folded.commits, folded.rows), (231, 461));
    let after = commits(case.state.as_ref()).await;
    assert_eq!(after.len(), 3, "90, 90 and the rest");
    assert_eq!(
        after
            .iter()
            .map(|commit| commit.origin_at.0)
            .collect::<Vec<_>>(),
        [5, 5, 1]
    );
    assert_eq!(read(case.state.as_ref(), &case.objects, "n").await, before);
    assert_eq!(fold_all(&case, &[]).await, Folded::default(), "once");
    store(&case, 1).await;
    assert_eq!(
        read(case.state.as_ref(), &case.objects, "n").await.len(),
        before.len() + 2
    );
}

#[tokio::test]
async fn no_run_crosses_what_somebody_has_read_or_is_younger_than_asked() {
    let case = Case::new();
    store(&case, 60).await;
    fold_all(&case, &[40]).await;
    let ends: Vec<(u64, u64)> = commits(case.state.as_ref())
        .await
        .iter()
        .map(|c| (c.from, c.to))
        .collect();
    assert_eq!(ends, [(0, 40), (40, 120)]);
    let case = Case::new();
    store(&case, 60).await;
    let young = Fold {
        until: Timestamp(0),
        ..fold(&case, &[])
    };
    let done = case.lake.fold(&table(), &young).await.expect("a step");
    assert!(done.young && done.commits == 0 && done.next.is_none());
}

#[tokio::test]
async fn objects_that_were_folded_go_after_the_grace_time() {
    let case = Case::new();
    let objects = |case: &Case| {
        let objects = case.objects.clone();
        async move {
            let list: Vec<_> = objects.list(None).try_collect().await.expect("a list");
            list.len()
        }
    };
    for _ in 0..4 {
        store(&case, 90).await;
        fold_all(&case, &[]).await;
        case.clock.advance(Duration::from_secs(60));
    }
    store(&case, 15).await;
    assert_eq!(
        (
            objects(&case).await,
            commits(case.state.as_ref()).await.len()
        ),
        (4, 19)
    );
    // Whoever looked for a commit of his own has found it by now.
    case.clock.advance(Duration::from_secs(20 * 60));
    let before = read(case.state.as_ref(), &case.objects, "n").await;
    fold_all(&case, &[]).await;
    assert_eq!(
        (
            objects(&case).await,
            commits(case.state.as_ref()).await.len()
        ),
        (5, 1)
    );
    let sweep = |now| Sweep {
        now,
        grace: Duration::from_secs(600),
        orphans: Duration::from_secs(86_400),
        most: 100,
    };
    let early = case
        .lake
        .sweep(&table(), &sweep(case.clock.now()))
        .await
        .expect("swept");
    assert_eq!(
        (early.removed, early.waiting, objects(&case).await),
        (0, 4, 5)
    );
    case.clock.advance(Duration::from_secs(600));
    let late = case
        .lake
        .sweep(&table(), &sweep(case.clock.now()))
        .await
        .expect("swept");
    assert_eq!(
        (late.removed, late.waiting, objects(&case).await),
        (4, 0, 1)
    );
    assert_eq!(read(case.state.as_ref(), &case.objects, "n").await, before);
}

/// A commit whose outcome its writer does not know is found even when it has been folded meanwhile.
#[tokio::test]
async fn a_commit_in_doubt_is_found_inside_a_fold() {
    let faults = Arc::new(Faults::none());
    let case = Case::new();
    store(&case, 10).await;
    let state = Arc::new(FaultyState::new(case.state.clone(), faults.clone()));
    let doubtful = lake(state, &case.objects, &case.clock, 9);
    let doubtful_too = Arc::clone(&doubtful);
    faults.inject(Operation::Transact, 0, Fault::After);
    let waiting =
        tokio::spawn(async move { doubtful_too.append(append(numbers("n", &[77]), None)).await });
    while case.clock.next_wake().is_none() {
        tokio::task::yield_now().await;
    }
    store(&case, 20).await;
    assert_eq!(fold_all(&case, &[]).await.commits, 31);
    case.clock.advance(Duration::from_secs(1));
    let stored = waiting.await.expect("no panic").expect("stored");
    assert_eq!(
        (stored.first, stored.last, stored.position.commits),
        (21, 21, 11)
    );
    assert_eq!(
        read(case.state.as_ref(), &case.objects, "n").await.len(),
        61
    );
}

/// A state store in which the commits of a table are folded between two pages of a scan.
#[derive(Debug)]
struct Meanwhile {
    inner: Arc<dyn State>,
    lake: Arc<LandingLake>,
    after: u64,
}

#[async_trait::async_trait]
impl State for Meanwhile {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        self.inner.get_many(keys).await
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        let page = self.inner.query(span).await?;
        let step = Fold {
            after: self.after,
            until: ALWAYS,
            now: Timestamp(0),
            cuts: BTreeSet::new(),
        };
        self.lake.fold(&table(), &step).await?;
        Ok(page)
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        self.inner.transact(writes).await
    }
}

#[tokio::test]
async fn a_scan_reads_every_row_once_while_commits_are_folded() {
    // A page of a scan holds 256 commits: the fold goes across its end.
    for after in [0, 300, 400, 500] {
        let case = Case::new();
        store(&case, 300).await;
        let before = read(case.state.as_ref(), &case.objects, "n").await;
        let state = Meanwhile {
            inner: case.state.clone(),
            lake: case.lake.clone(),
            after,
        };
        assert_eq!(
            read(&state, &case.objects, "n").await,
            before,
            "after {after}"
        );
    }
}

#[tokio::test]
async fn two_who_fold_at_once_do_no_harm() {
    let case = Case::new();
    store(&case, 150).await;
    let before = read(case.state.as_ref(), &case.objects, "n").await;
    let other = lake(case.state.clone(), &case.objects, &case.clock, 3);
    for _ in 0..4 {
        let step = fold(&case, &[]);
        let table = table();
        let (one, two) = futures::join!(case.lake.fold(&table, &step), other.fold(&table, &step));
        one.expect("a step");
        two.expect("a step");
        assert_eq!(read(case.state.as_ref(), &case.objects, "n").await, before);
    }
}
