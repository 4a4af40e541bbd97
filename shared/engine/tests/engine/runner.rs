//! The runner, under a clock that the test moves.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use domain::{Duration, items};
use engine::runner::{Event, Runner};
use ports::{Kind, Queue, Result, queue::Announcement, state::Key};
use testkit::{MemoryQueue, MemoryState};

use crate::pretend::{Lab, chain, exact, table};

/// A running runner that has had its first look.
pub(crate) async fn running(lab: &Lab) -> Runner {
    let runner = Runner::new(lab.world.clone());
    runner.start();
    settle().await;
    runner
}

/// Lets every task do what it can do without time passing.
async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn pass(lab: &Lab, milliseconds: u64) {
    for _ in 0..milliseconds / 10 {
        lab.clock.advance(Duration::from_millis(10));
        settle().await;
    }
}

pub(crate) async fn refreshes(lab: &Lab, model: &str) -> u64 {
    let key = Key::new(items::model(&table(model)), items::STATE);
    let item = lab.world.state.get(&key).await.expect("state answers");
    item.map_or(0, |item| {
        item.decode::<items::ModelState>()
            .expect("a state")
            .refreshes
    })
}

pub(crate) async fn announce(lab: &Lab, rows: u64) {
    let position = lab.land("landing.ev", rows).await;
    let announcement = Announcement {
        table: table("landing.ev"),
        position,
    };
    lab.world
        .queue
        .send(&[announcement])
        .await
        .expect("the queue takes it");
    settle().await;
}

fn lab() -> Lab {
    // A store that cannot tell of changes would need the poll; memory can.
    Lab::new(Arc::new(MemoryState::new()), chain(), exact())
}

#[tokio::test]
async fn an_announced_burst_is_one_refresh_after_the_debounce() {
    let lab = lab();
    let runner = running(&lab).await;
    pass(&lab, 2_000).await;
    for _ in 0..5 {
        announce(&lab, 1).await;
        pass(&lab, 50).await;
    }
    pass(&lab, 130).await;
    assert_eq!(refreshes(&lab, "silver.ev").await, 0);
    pass(&lab, 100).await;
    assert_eq!(
        (
            refreshes(&lab, "bronze.ev").await,
            refreshes(&lab, "silver.ev").await
        ),
        (1, 1)
    );
    runner.stop().await;
}

#[tokio::test]
async fn another_process_is_noticed_by_the_change_counter() {
    let lab = lab();
    let runner = running(&lab).await;
    pass(&lab, 2_000).await;
    lab.land("landing.ev", 1).await;
    pass(&lab, 400).await;
    assert_eq!(refreshes(&lab, "silver.ev").await, 1);
    runner.stop().await;
}

#[tokio::test]
async fn what_landed_before_the_start_is_refreshed_at_once() {
    let lab = lab();
    lab.land("landing.ev", 1).await;
    let runner = running(&lab).await;
    assert_eq!(refreshes(&lab, "silver.ev").await, 1);
    runner.stop().await;
}

#[tokio::test]
async fn a_poll_that_finds_nothing_holds_up_no_advance() {
    let lab = lab();
    let runner = running(&lab).await;
    // The poll is due five seconds after the start; the advance comes right after it.
    pass(&lab, 5_010).await;
    announce(&lab, 1).await;
    pass(&lab, 250).await;
    assert_eq!(refreshes(&lab, "silver.ev").await, 1);
    runner.stop().await;
}

#[tokio::test]
async fn a_failing_model_is_retried_when_its_backoff_ends() {
    let lab = lab();
    let runner = running(&lab).await;
    pass(&lab, 2_000).await;
    lab.lake.trouble(Some((table("landing.ev"), Kind::Invalid)));
    announce(&lab, 1).await;
    pass(&lab, 300).await;
    lab.lake.trouble(None);
    pass(&lab, 1_500).await;
    assert_eq!(refreshes(&lab, "bronze.ev").await, 0);
    pass(&lab, 600).await;
    assert_eq!(refreshes(&lab, "silver.ev").await, 1);
    runner.stop().await;
}

#[tokio::test]
async fn a_cycle_that_the_world_failed_is_recorded_and_tried_again() {
    let lab = lab();
    let runner = running(&lab).await;
    pass(&lab, 2_000).await;
    lab.lake
        .trouble(Some((table("landing.ev"), Kind::Unavailable)));
    announce(&lab, 1).await;
    pass(&lab, 300).await;
    assert!(
        runner
            .status()
            .last_error
            .is_some_and(|error| error.contains("as the test wants"))
    );
    lab.lake.trouble(None);
    pass(&lab, 2_500).await;
    assert_eq!(
        (
            refreshes(&lab, "silver.ev").await,
            runner.status().last_error
        ),
        (1, None)
    );
    runner.stop().await;
}

#[tokio::test]
async fn the_feed_tells_what_happened_in_order() {
    let lab = lab();
    let runner = running(&lab).await;
    pass(&lab, 2_000).await;
    announce(&lab, 2).await;
    pass(&lab, 300).await;
    runner.stop().await;
    assert!(!runner.is_running());
    let (events, _) = runner.events(0);
    let told: Vec<String> = events
        .iter()
        .map(|numbered| match &numbered.event {
            Event::Advanced {
                table, sequence, ..
            } => format!("{table} at {sequence}"),
            Event::CycleStarted { number, .. } => format!("cycle {number}"),
            Event::Refreshed { model, how, .. } => format!("{model} {}", how.word()),
            Event::Control { model, action, .. } => format!("{action} {model}"),
        })
        // When the runner hears of a model's own commit is a matter of luck.
        .filter(|said| !said.starts_with("bronze.ev at") && !said.starts_with("silver.ev at"))
        .collect();
    assert_eq!(
        told[..4],
        [
            "landing.ev at 2",
            "cycle 1",
            "bronze.ev built",
            "silver.ev built"
        ],
        "{told:?}"
    );
    assert_eq!(runner.events(events[1].id).0.len(), events.len() - 2);
}

#[tokio::test]
async fn a_stopped_runner_starts_again() {
    let lab = lab();
    let runner = running(&lab).await;
    runner.stop().await;
    lab.land("landing.ev", 1).await;
    pass(&lab, 10_000).await;
    assert_eq!(refreshes(&lab, "bronze.ev").await, 0);
    runner.start();
    settle().await;
    assert_eq!(refreshes(&lab, "bronze.ev").await, 1);
    runner.stop().await;
}

/// A queue that panics while it is told to.
#[derive(Debug)]
struct Fragile {
    breaks: AtomicBool,
    asked: AtomicU64,
    queue: MemoryQueue,
}

#[async_trait]
impl Queue for Fragile {
    async fn send(&self, announcements: &[Announcement]) -> Result<()> {
        self.queue.send(announcements).await
    }

    async fn receive(&self) -> Result<Vec<Announcement>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(!self.breaks.load(Ordering::Relaxed), "as the test wants");
        self.queue.receive().await
    }
}

#[tokio::test]
async fn a_loop_that_panics_says_so_and_starts_again_after_a_pause() {
    let mut lab = lab();
    let queue = Arc::new(Fragile {
        breaks: AtomicBool::new(true),
        asked: AtomicU64::new(0),
        queue: MemoryQueue::new(),
    });
    lab.world.queue = queue.clone();
    lab.land("landing.ev", 1).await;
    let runner = running(&lab).await;
    let says = |runner: &Runner| {
        let (trouble, error) = (runner.trouble(), runner.status().last_error);
        assert_eq!(trouble, error);
        error.expect("it is down")
    };
    assert!(says(&runner).contains("as the test wants"));
    // Ten seconds of it are a few attempts, not a hot loop.
    pass(&lab, 10_000).await;
    assert!(says(&runner).contains("as the test wants"));
    let asked = queue.asked.load(Ordering::Relaxed);
    assert!((2..=5).contains(&asked), "{asked} attempts");
    assert_eq!(refreshes(&lab, "silver.ev").await, 0);
    queue.breaks.store(false, Ordering::Relaxed);
    pass(&lab, 6_000).await;
    assert_eq!((runner.trouble(), runner.status().last_error), (None, None));
    assert_eq!(refreshes(&lab, "silver.ev").await, 1);
    // Stopped while it is down, it is down by nobody's fault.
    queue.breaks.store(true, Ordering::Relaxed);
    announce(&lab, 1).await;
    pass(&lab, 500).await;
    assert!(runner.trouble().is_some());
    runner.stop().await;
    assert_eq!((runner.trouble(), runner.is_running()), (None, false));
}
