//! The contract of queues.

use std::{collections::BTreeMap, sync::Arc};

use domain::{Position, TableName};
use futures::{FutureExt, join, pin_mut, select_biased};
use ports::{Queue, queue::Announcement};
use tokio::sync::mpsc;

use super::checks;

/// The contract of [`ports::Queue`], for a queue inside this process: it delivers at once and all together. Nobody else
/// uses it. Announcements of one table may be merged into the highest.
///
/// # Panics
/// When it is broken.
pub async fn queue(queue: Arc<dyn Queue>) {
    distant_queue(queue.clone()).await;
    let queue = &queue;
    checks!(
        "queue inside a process",
        queue,
        [
            one_receive_takes_all_that_is_there,
            one_receive_takes_the_highest_position,
            an_empty_queue_waits,
            sending_nothing_wakes_nobody,
            a_cancelled_waiter_passes_on_what_woke_it,
        ]
    );
}

/// What every queue keeps, one behind a network too: it may double, reorder, and deliver in pieces and late.
///
/// # Panics
/// When it is broken. What never comes is waited for: give the suite a time limit.
pub async fn distant_queue(queue: Arc<dyn Queue>) {
    let queue = &queue;
    checks!(
        "queue",
        queue,
        [
            what_was_sent_is_received,
            the_highest_position_of_a_table_arrives,
            who_waits_gets_what_is_sent_later,
            more_than_one_batch_arrives,
            a_cancelled_receive_loses_nothing,
            every_announcement_reaches_one_of_several_receivers,
        ]
    );
}

type Subject = Arc<dyn Queue>;

/// A table of this check alone: what was doubled may arrive in the next.
fn table(place: &str, name: &str) -> String {
    format!("{}_{name}", place.replace('-', "_"))
}

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

/// The highest position of each table.
type Highest = BTreeMap<String, u64>;

fn add(highest: &mut Highest, received: Highest) {
    for (table, sequence) in received {
        let known = highest.entry(table).or_default();
        *known = sequence.max(*known);
    }
}

/// Receives once.
async fn receive(queue: &Subject) -> Highest {
    let mut highest = Highest::new();
    let received = queue.receive().await;
    for received in received.expect("the queue gives announcements") {
        let one = [(received.table.name().to_owned(), received.position.sequence)];
        add(&mut highest, Highest::from(one));
    }
    highest
}

/// Receives until every expected table has come as far as expected, on top of what was `known`.
async fn receive_until(queue: &Subject, mut known: Highest, expected: &Highest) {
    let mut missing = |received| {
        add(&mut known, received);
        expected
            .iter()
            .any(|(table, sequence)| known.get(table) != Some(sequence))
    };
    let mut received = Highest::new();
    while missing(received) {
        received = receive(queue).await;
    }
}

async fn what_was_sent_is_received(queue: &Subject, place: &str) {
    let (orders, users) = (table(place, "orders"), table(place, "users"));
    send(queue, &[announcement(&orders, 3), announcement(&users, 4)]).await;
    let expected = Highest::from([(orders, 3), (users, 4)]);
    receive_until(queue, Highest::new(), &expected).await;
}

async fn the_highest_position_of_a_table_arrives(queue: &Subject, place: &str) {
    let orders = table(place, "orders");
    send(queue, &[announcement(&orders, 9)]).await;
    send(queue, &[announcement(&orders, 7), announcement(&orders, 8)]).await;
    let expected = Highest::from([(orders, 9)]);
    receive_until(queue, Highest::new(), &expected).await;
}

async fn who_waits_gets_what_is_sent_later(queue: &Subject, place: &str) {
    let orders = table(place, "orders");
    let expected = Highest::from([(orders.clone(), 1)]);
    // Joined in this order: the wait begins before the send.
    let waiting = receive_until(queue, Highest::new(), &expected);
    join!(waiting, async {
        send(queue, &[announcement(&orders, 1)]).await;
    });
}

async fn more_than_one_batch_arrives(queue: &Subject, place: &str) {
    let tables = (0..25).map(|i| table(place, &format!("t{i}")));
    let expected: Highest = tables.zip(1..).collect();
    let sent: Vec<_> = expected
        .iter()
        .map(|(table, sequence)| announcement(table, *sequence))
        .collect();
    send(queue, &sent).await;
    receive_until(queue, Highest::new(), &expected).await;
}

async fn a_cancelled_receive_loses_nothing(queue: &Subject, place: &str) {
    let orders = table(place, "orders");
    let mut known = Highest::new();
    // Cancelled after more and more looks: before anything was sent, while it is on its way, when it is nearly there.
    for looks in 0..20_u64 {
        {
            let cancelled = receive(queue).fuse();
            pin_mut!(cancelled);
            if let Some(received) = cancelled.as_mut().now_or_never() {
                add(&mut known, received);
            } else {
                send(queue, &[announcement(&orders, looks + 1)]).await;
                let looked = async {
                    for _ in 0..looks {
                        tokio::task::yield_now().await;
                    }
                };
                let looked = looked.fuse();
                pin_mut!(looked);
                select_biased! {
                    received = cancelled => add(&mut known, received),
                    () = looked => {}
                }
            }
            // Dropped here, perhaps woken but never polled again.
        }
        send(queue, &[announcement(&orders, looks + 1)]).await;
    }
    let expected = Highest::from([(orders, 20)]);
    receive_until(queue, known, &expected).await;
}

async fn every_announcement_reaches_one_of_several_receivers(queue: &Subject, place: &str) {
    let (received, mut arriving) = mpsc::unbounded_channel();
    let receivers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, received) = (queue.clone(), received.clone());
            tokio::spawn(async move { while received.send(receive(&queue).await).is_ok() {} })
        })
        .collect();
    let tables = (0..20).map(|i| table(place, &format!("t{i}")));
    let mut missing: Highest = tables.map(|table| (table, 1)).collect();
    for table in missing.keys() {
        send(queue, &[announcement(table, 1)]).await;
        tokio::task::yield_now().await;
    }
    while !missing.is_empty() {
        let some = arriving.recv().await.expect("the receivers are there");
        missing.retain(|table, _| !some.contains_key(table));
    }
    for receiver in receivers {
        receiver.abort();
        // It ends cancelled; what counts is that it takes nothing from the next check.
        drop(receiver.await);
    }
}

async fn one_receive_takes_all_that_is_there(queue: &Subject, _place: &str) {
    send(
        queue,
        &[announcement("orders", 3), announcement("users", 4)],
    )
    .await;
    let expected = Highest::from([("orders".to_owned(), 3), ("users".to_owned(), 4)]);
    assert_eq!(receive(queue).await, expected);
}

async fn one_receive_takes_the_highest_position(queue: &Subject, _place: &str) {
    send(queue, &[announcement("orders", 9)]).await;
    send(
        queue,
        &[announcement("orders", 7), announcement("orders", 8)],
    )
    .await;
    assert_eq!(
        receive(queue).await,
        Highest::from([("orders".to_owned(), 9)])
    );
}

async fn an_empty_queue_waits(queue: &Subject, _place: &str) {
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

async fn a_cancelled_waiter_passes_on_what_woke_it(queue: &Subject, _place: &str) {
    {
        let cancelled = receive(queue);
        pin_mut!(cancelled);
        assert!(cancelled.as_mut().now_or_never().is_none());
        send(queue, &[announcement("orders", 5)]).await;
        // Dropped here, woken but never polled again.
    }
    assert_eq!(
        receive(queue).await,
        Highest::from([("orders".to_owned(), 5)])
    );
}
