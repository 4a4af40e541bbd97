//! The contract of queues.

use std::{collections::BTreeMap, sync::Arc};

use domain::{Position, TableName};
use futures::{FutureExt, pin_mut};
use ports::{Queue, queue::Announcement};

use super::checks;

/// The contract of [`ports::Queue`], for a queue that nobody else uses and that delivers at once.
/// Announcements of one table may be merged into the highest.
///
/// # Panics
/// When it is broken.
pub async fn queue(queue: Arc<dyn Queue>) {
    let queue = &queue;
    checks!(
        "queue",
        queue,
        [
            what_was_sent_is_received,
            the_highest_position_of_a_table_arrives,
            receiving_waits_for_a_send,
            sending_nothing_wakes_nobody,
            a_cancelled_receive_loses_nothing,
            every_announcement_reaches_one_of_several_receivers,
        ]
    );
}

type Subject = Arc<dyn Queue>;

fn announcement(table: &str, sequence: u64) -> Announcement {
    let table = TableName::landing(table).expect("test tables have plain names");
    Announcement {
        table,
        position: Position {
            sequence,
            commits: sequence,
        },
    }
}

async fn send(queue: &Subject, announcements: &[Announcement]) {
    queue
        .send(announcements)
        .await
        .expect("the queue takes announcements");
}

/// Receives once, and keeps the highest position of each table.
async fn receive(queue: &Subject) -> BTreeMap<String, u64> {
    let mut highest = BTreeMap::new();
    for received in queue
        .receive()
        .await
        .expect("the queue gives announcements")
    {
        let known: &mut u64 = highest.entry(received.table.name().to_owned()).or_default();
        *known = received.position.sequence.max(*known);
    }
    highest
}

async fn what_was_sent_is_received(queue: &Subject, _place: &str) {
    send(
        queue,
        &[announcement("orders", 3), announcement("users", 4)],
    )
    .await;
    let expected = BTreeMap::from([("orders".to_owned(), 3), ("users".to_owned(), 4)]);
    assert_eq!(receive(queue).await, expected);
}

async fn the_highest_position_of_a_table_arrives(queue: &Subject, _place: &str) {
    send(queue, &[announcement("orders", 9)]).await;
    send(
        queue,
        &[announcement("orders", 7), announcement("orders", 8)],
    )
    .await;
    assert_eq!(
        receive(queue).await,
        BTreeMap::from([("orders".to_owned(), 9)])
    );
}

async fn receiving_waits_for_a_send(queue: &Subject, _place: &str) {
    let waiting = receive(queue);
    pin_mut!(waiting);
    assert!(
        waiting.as_mut().now_or_never().is_none(),
        "there is nothing to receive"
    );
    send(queue, &[announcement("orders", 1)]).await;
    assert_eq!(waiting.await.len(), 1);
}

async fn sending_nothing_wakes_nobody(queue: &Subject, _place: &str) {
    send(queue, &[]).await;
    assert!(receive(queue).now_or_never().is_none());
}

async fn a_cancelled_receive_loses_nothing(queue: &Subject, _place: &str) {
    {
        let cancelled = receive(queue);
        pin_mut!(cancelled);
        assert!(cancelled.as_mut().now_or_never().is_none());
        send(queue, &[announcement("orders", 5)]).await;
        // Dropped here, woken but never polled again.
    }
    assert_eq!(
        receive(queue).await,
        BTreeMap::from([("orders".to_owned(), 5)])
    );
}

async fn every_announcement_reaches_one_of_several_receivers(queue: &Subject, _place: &str) {
    let received = Arc::new(tokio::sync::Mutex::new(BTreeMap::new()));
    let receivers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, received) = (queue.clone(), received.clone());
            tokio::spawn(async move {
                loop {
                    let some = receive(&queue).await;
                    received.lock().await.extend(some);
                }
            })
        })
        .collect();
    for table in 0..20 {
        send(queue, &[announcement(&format!("t{table}"), 1)]).await;
        tokio::task::yield_now().await;
    }
    while received.lock().await.len() < 20 {
        tokio::task::yield_now().await;
    }
    receivers.iter().for_each(tokio::task::JoinHandle::abort);
}
