//! The queues on SQS.

use std::{sync::Arc, time::Duration};

use aws::queue::{
    SqsQueue, Trace, decode,
    refreshes::{self, Due, SqsRefreshes},
};
use aws_sdk_sqs::types::{Message, QueueAttributeName};
use domain::{Position, TableName};
use libtest_mimic::Trial;
use ports::{Queue, queue::Announcement, refreshes::Order};
use testkit::{SeededChance, SimulatedClock};

use super::{Emulator, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("queue_keeps_the_contract", contract),
        trial("announcements_carry_their_trace", traced),
        trial(
            "what_cannot_be_read_ends_in_the_dead_letter_queue",
            dead_letters,
        ),
        trial(
            "a_refresh_is_asked_for_once_and_models_keep_their_order",
            refreshes,
        ),
        trial("a_held_refresh_is_given_to_nobody_else", held),
    ]
}

type Attributes<'a> = &'a [(QueueAttributeName, &'a str)];

/// A queue of this test.
async fn create(emulator: &Emulator, name: &str, attributes: Attributes<'_>) -> String {
    let sqs = &emulator.clients.sqs;
    let mut request = sqs
        .create_queue()
        .queue_name(format!("{}-{name}", emulator.run));
    for (attribute, value) in attributes {
        request = request.attributes(attribute.clone(), *value);
    }
    let created = request.send().await.expect("a queue");
    created.queue_url.expect("its URL")
}

fn queue(emulator: &Emulator, url: &str) -> SqsQueue {
    let chance = Arc::new(SeededChance::new(1));
    let clock = Arc::new(SimulatedClock::default());
    SqsQueue::new(emulator.clients.sqs.clone(), url, clock, chance)
}

async fn take(emulator: &Emulator, url: &str, seconds: i32) -> Vec<Message> {
    let request = emulator.clients.sqs.receive_message().queue_url(url);
    let received = request
        .max_number_of_messages(10)
        .wait_time_seconds(seconds)
        .message_attribute_names("All")
        .send()
        .await;
    received.expect("an answer").messages.unwrap_or_default()
}

fn announcement(sequence: u64) -> Announcement {
    Announcement {
        table: TableName::landing("orders").expect("a plain name"),
        position: Position {
            sequence,
            commits: 1,
        },
    }
}

async fn contract(emulator: Emulator) {
    let url = create(&emulator, "advances", &[]).await;
    testkit::contract::distant_queue(Arc::new(queue(&emulator, &url))).await;
}

async fn traced(emulator: Emulator) {
    let url = create(&emulator, "advances", &[]).await;
    let trace = Trace {
        parent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        batch: Some("msg_2KWPBgLlAfxdpx2AI54pPJ85f4W".to_owned()),
    };
    let queue = queue(&emulator, &url);
    let sent = queue.send_traced(&[announcement(3)], &trace).await;
    sent.expect("it is taken");
    let message = take(&emulator, &url, 5).await.pop().expect("it is there");
    assert_eq!(Trace::of(message.message_attributes()), trace);
    let body = message.body().expect("a body");
    assert_eq!(decode(body).expect("our own"), announcement(3));
}

async fn dead_letters(emulator: Emulator) {
    let dead = create(&emulator, "dead", &[]).await;
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{}-dead", emulator.run);
    let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"1"}}"#);
    let attributes = [
        (QueueAttributeName::RedrivePolicy, policy.as_str()),
        (QueueAttributeName::VisibilityTimeout, "1"),
    ];
    let url = create(&emulator, "advances", &attributes).await;
    let odd = emulator.clients.sqs.send_message().queue_url(&url);
    odd.message_body("odd").send().await.expect("it is taken");
    let queue = queue(&emulator, &url);
    queue.send(&[announcement(3)]).await.expect("it is taken");
    assert_eq!(
        queue.receive().await.expect("one can be read"),
        [announcement(3)]
    );
    // The emulator moves what was received too often when the queue is looked at again.
    loop {
        assert!(
            take(&emulator, &url, 1).await.is_empty(),
            "nothing is left to receive"
        );
        if let Some(message) = take(&emulator, &dead, 0).await.pop() {
            assert_eq!(message.body(), Some("odd"));
            return;
        }
    }
}

fn refresh(model: &str, attempt: u32) -> Order {
    Order {
        model: model.parse().expect("a table"),
        cycle: 7,
        attempt,
        opens: None,
    }
}

/// A FIFO queue of refreshes.
async fn fifo(emulator: &Emulator, clock: Arc<SimulatedClock>) -> (String, SqsRefreshes) {
    let attributes = [
        (QueueAttributeName::FifoQueue, "true"),
        (QueueAttributeName::VisibilityTimeout, "3"),
    ];
    let url = create(emulator, "refreshes.fifo", &attributes).await;
    let chance = Arc::new(SeededChance::new(1));
    let queue = SqsRefreshes::new(emulator.clients.sqs.clone(), url.clone(), clock, chance);
    (url, queue)
}

async fn refreshes(emulator: Emulator) {
    let (url, queue) = fifo(&emulator, Arc::default()).await;
    let due: Vec<_> = (0..12).map(|i| refresh(&format!("gold.m{i}"), 0)).collect();
    for _ in 0..2 {
        let sent = queue.send_traced(&due, &Trace::default()).await;
        sent.expect("all are taken");
    }
    let mut models = Vec::new();
    while models.len() < due.len() {
        for message in take(&emulator, &url, 1).await {
            let due = refreshes::decode(message.body().expect("a body"));
            let Ok(Due::Refresh(refresh)) = due else {
                panic!("{due:?} is no refresh")
            };
            models.push(refresh.model);
            let receipt = message.receipt_handle.expect("a receipt");
            let delete = emulator.clients.sqs.delete_message().queue_url(&url);
            delete
                .receipt_handle(receipt)
                .send()
                .await
                .expect("it goes");
        }
    }
    models.sort();
    let mut expected: Vec<_> = due.into_iter().map(|refresh| refresh.model).collect();
    expected.sort();
    assert_eq!(models, expected);
    assert!(take(&emulator, &url, 1).await.is_empty(), "each once");
}

async fn held(emulator: Emulator) {
    let clock = Arc::new(SimulatedClock::default());
    let (url, queue) = fifo(&emulator, clock.clone()).await;
    let due = [refresh("gold.a", 0), refresh("gold.a", 1)];
    queue
        .send_traced(&due, &Trace::default())
        .await
        .expect("it is taken");
    let mut messages = take(&emulator, &url, 5).await;
    let receipt = messages.remove(0).receipt_handle.expect("a receipt");
    // What is prolonged once, by a minute, outlives the three seconds of the queue.
    let guard = queue.extend(receipt, Duration::from_secs(60));
    while clock.next_wake().is_none() {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(20));
    while clock
        .next_wake()
        .is_none_or(|wake| wake <= ports::Clock::now(&*clock))
    {
        tokio::task::yield_now().await;
    }
    assert!(
        take(&emulator, &url, 5).await.is_empty(),
        "the group is busy"
    );
    drop(guard);
}
