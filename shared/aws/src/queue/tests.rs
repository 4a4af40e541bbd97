//! SQS that fails in the ways it does, without SQS.

use std::sync::Arc;

use domain::{Duration, Position, TableName, Timestamp};
use futures::FutureExt;
use ports::{
    Jobs, Kind, Queue,
    jobs::{IndexJob, RebuildJob, ReplayJob, UpkeepJob},
    queue::Announcement,
    refreshes::Order,
};
use serde_json::{Value, json};
use testkit::{SeededChance, SimulatedClock};

use super::{
    SqsQueue, Trace,
    outlet::{BYTES_MAX, Outgoing, batches},
    refreshes::{self, Due, SqsRefreshes},
};
use crate::fake::{Fake, Hasty, Reply, Sent};

const URL: &str = "http://aws.test/000000000000/advances";

fn queue(fake: &Fake) -> SqsQueue {
    let chance = Arc::new(SeededChance::new(1));
    SqsQueue::new(fake.clients().sqs, URL, Hasty::clock(), chance)
}

fn announcement(table: &str, sequence: u64) -> Announcement {
    Announcement {
        table: TableName::landing(table).expect("a plain name"),
        position: Position {
            sequence,
            commits: 1,
        },
    }
}

fn many(count: u64) -> Vec<Announcement> {
    (0..count)
        .map(|i| announcement(&format!("t{i:02}"), i + 1))
        .collect()
}

fn reply(body: &Value) -> Reply {
    Reply::ok(body.to_string())
}

fn entries(sent: &Sent) -> Vec<Value> {
    let entries = sent.json()["Entries"].clone();
    entries.as_array().expect("a list").clone()
}

/// Answers a batch: what `failure` names for a body fails, the rest is taken.
fn answered(sent: &Sent, mut failure: impl FnMut(&str) -> Option<Value>) -> Reply {
    let (mut taken, mut failed) = (Vec::new(), Vec::new());
    for entry in entries(sent) {
        match failure(entry["MessageBody"].as_str().expect("a body")) {
            Some(mut why) => {
                why["Id"] = entry["Id"].clone();
                failed.push(why);
            }
            None => taken.push(json!({
                "Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": "",
            })),
        }
    }
    reply(&json!({ "Successful": taken, "Failed": failed }))
}

fn throttled() -> Option<Value> {
    Some(json!({ "SenderFault": false, "Code": "ThrottlingException", "Message": "slow" }))
}

#[tokio::test]
async fn what_fails_of_a_batch_is_sent_again_alone() {
    let mut call = 0;
    let fake = Fake::new(move |sent: &Sent| {
        call += 1;
        answered(sent, |body| {
            let unlucky = body.contains("t03") || body.contains("t12");
            (unlucky && call % 2 == 1).then(throttled).flatten()
        })
    });
    queue(&fake).send(&many(15)).await.expect("all are taken");
    let sizes: Vec<_> = fake.sent().iter().map(|sent| entries(sent).len()).collect();
    assert_eq!(sizes, [10, 1, 5, 1]);
    let again = entries(&fake.sent()[1])[0].to_string();
    assert!(again.contains("landing.t03"), "{again}");
}

#[tokio::test]
async fn what_fails_again_and_again_is_an_error() {
    let fake = Fake::new(|sent: &Sent| answered(sent, |_| throttled()));
    let failed = queue(&fake)
        .send(&many(2))
        .await
        .expect_err("none is taken");
    assert_eq!(failed.kind, Kind::Unavailable);
    let text = failed.chain();
    assert!(
        text.contains("2 not taken in 6 attempts: ThrottlingException: slow"),
        "{text}"
    );
    assert_eq!(fake.sent().len(), 6);
}

#[tokio::test]
async fn what_is_our_own_fault_is_not_sent_again() {
    let fake = Fake::new(|sent: &Sent| {
        answered(sent, |body| {
            let wrong = json!({ "SenderFault": true, "Code": "InvalidMessageContents" });
            body.contains("t00").then_some(wrong)
        })
    });
    let failed = queue(&fake)
        .send(&many(2))
        .await
        .expect_err("one is refused");
    assert_eq!(failed.kind, Kind::Invalid);
    assert_eq!(fake.sent().len(), 1);
}

#[tokio::test]
async fn an_entry_that_the_answer_does_not_name_was_not_sent() {
    let mut first = true;
    let fake = Fake::new(move |sent: &Sent| {
        if std::mem::take(&mut first) {
            reply(&json!({ "Successful": [], "Failed": [] }))
        } else {
            answered(sent, |_| None)
        }
    });
    queue(&fake).send(&many(1)).await.expect("it is taken");
    assert_eq!(fake.sent().len(), 2);
}

#[tokio::test]
async fn a_missing_queue_is_not_found() {
    let fake = Fake::new(|_: &Sent| {
        let body = json!({ "__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "gone" });
        Reply::Answer(400, Vec::new(), body.to_string())
    });
    let failed = queue(&fake).send(&many(1)).await.expect_err("it is gone");
    assert_eq!(failed.kind, Kind::NotFound);
    assert!(failed.chain().contains(URL), "{}", failed.chain());
}

#[tokio::test]
async fn announcements_of_one_table_are_merged_and_traced() {
    let fake = Fake::new(|sent: &Sent| answered(sent, |_| None));
    let trace = Trace {
        parent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        batch: Some("not a plain\nid".to_owned()),
    };
    let sent = [
        announcement("a", 2),
        announcement("a", 9),
        announcement("a", 3),
    ];
    queue(&fake)
        .send_traced(&sent, &trace)
        .await
        .expect("it is taken");
    let entries = entries(&fake.sent()[0]);
    assert_eq!(entries.len(), 1);
    assert_eq!(
        entries[0]["MessageBody"],
        r#"{"table":"landing.a","position":{"sequence":9,"commits":1}}"#
    );
    let attributes = entries[0]["MessageAttributes"]
        .as_object()
        .expect("attributes");
    assert_eq!(
        attributes.len(),
        1,
        "an odd value would make SQS refuse the message"
    );
    assert_eq!(
        attributes["traceparent"]["StringValue"],
        *trace.parent.as_ref().expect("given")
    );
}

#[tokio::test]
async fn nothing_is_sent_for_nothing() {
    let fake = Fake::new(|_: &Sent| panic!("nothing is sent"));
    queue(&fake).send(&[]).await.expect("nothing to do");
}

fn outgoing(bytes: usize) -> Outgoing {
    Outgoing {
        body: "x".repeat(bytes),
        attributes: Vec::new(),
        order: None,
        delay: 0,
    }
}

#[test]
fn a_batch_is_at_most_ten_messages_and_256_kilobytes() {
    let sizes = |messages: &[usize]| -> Vec<usize> {
        let messages = messages.iter().map(|bytes| outgoing(*bytes)).collect();
        batches(messages).iter().map(Vec::len).collect()
    };
    assert_eq!(sizes(&[]), [0; 0]);
    assert_eq!(sizes(&[1; 21]), [10, 10, 1]);
    assert_eq!(sizes(&[100_000; 5]), [2, 2, 1]);
    assert_eq!(sizes(&[BYTES_MAX, 1, BYTES_MAX - 1]), [1, 2]);
}

fn message(id: &str, body: &str) -> Value {
    json!({ "MessageId": id, "ReceiptHandle": format!("r-{id}"), "Body": body })
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_left_for_the_dead_letter_queue() {
    let mut polls = 0;
    let fake = Fake::new(move |sent: &Sent| {
        if sent.header("x-amz-target") == Some("AmazonSQS.DeleteMessageBatch") {
            return reply(&json!({ "Successful": [], "Failed": [] }));
        }
        polls += 1;
        let good = r#"{"table":"landing.a","position":{"sequence":9,"commits":1}}"#;
        let messages = match polls {
            1 => vec![message("bad", "{\"Records\":[]}")],
            2 => vec![],
            _ => vec![message("worse", "é"), message("good", good)],
        };
        reply(&json!({ "Messages": messages }))
    });
    let received = queue(&fake).receive().await.expect("one can be read");
    assert_eq!(received, [announcement("a", 9)]);
    let sent = fake.sent();
    assert_eq!(sent.len(), 4);
    assert_eq!(sent[0].json()["WaitTimeSeconds"], 20);
    let deleted = entries(&sent[3]);
    assert_eq!(deleted.len(), 1);
    assert_eq!(deleted[0]["ReceiptHandle"], "r-good");
}

#[tokio::test]
async fn what_a_cancelled_receiver_was_about_to_get_goes_to_the_next() {
    let fake = Fake::new(|sent: &Sent| {
        if sent.header("x-amz-target") == Some("AmazonSQS.DeleteMessageBatch") {
            return reply(&json!({ "Successful": [], "Failed": [] }));
        }
        let body = r#"{"table":"landing.a","position":{"sequence":9,"commits":1}}"#;
        reply(&json!({ "Messages": [message("m", body)] }))
    });
    let queue = queue(&fake);
    // Cancelled again and again: one receive is begun, whoever waits for it.
    let mut looks = 0;
    let received = loop {
        looks += 1;
        if let Some(received) = queue.receive().now_or_never() {
            break received.expect("it is there");
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(received, [announcement("a", 9)]);
    assert_eq!(
        fake.sent().len(),
        2,
        "one receive and one delete in {looks} looks"
    );
}

fn order(model: &str) -> Order {
    Order {
        model: model.parse().expect("a table"),
        cycle: 7,
        attempt: 2,
        opens: None,
    }
}

fn queue_of(fake: &Fake, clock: Arc<SimulatedClock>) -> SqsRefreshes {
    let chance = Arc::new(SeededChance::new(1));
    SqsRefreshes::new(fake.clients().sqs, format!("{URL}.fifo"), clock, chance)
}

#[tokio::test]
async fn refreshes_of_a_model_are_one_group_and_each_is_asked_for_once() {
    let fake = Fake::new(|sent: &Sent| answered(sent, |_| None));
    let long = format!("gold.{}", "x".repeat(128));
    let due = [order("gold.revenue"), order(&long)];
    let queue = queue_of(&fake, Arc::default());
    queue
        .send_traced(&due, &Trace::default())
        .await
        .expect("all are taken");
    let entries = entries(&fake.sent()[0]);
    assert_eq!(entries[0]["MessageGroupId"], "gold.revenue");
    assert_eq!(entries[0]["MessageDeduplicationId"], "gold.revenue/7/2");
    let body = entries[0]["MessageBody"].as_str().expect("a body");
    let Ok(Due::Refresh(read)) = refreshes::decode(body) else {
        panic!("a refresh")
    };
    assert_eq!(read, due[0]);
    for id in ["MessageGroupId", "MessageDeduplicationId"] {
        let long = entries[1][id].as_str().expect("an id");
        assert!(long.len() <= 128, "{long}");
    }
    let odd = refreshes::decode("{}").expect_err("it names no model");
    assert_eq!(odd.kind, Kind::Corrupt);
}

#[tokio::test]
async fn jobs_of_an_index_are_one_group_and_are_told_from_refreshes() {
    let fake = Fake::new(|sent: &Sent| answered(sent, |_| None));
    let queue = queue_of(&fake, Arc::default());
    let job = IndexJob {
        entry: format!("{}@tenant", "0".repeat(64)).parse().expect("an id"),
        index: "text-0123456789abcdef".to_owned(),
        job: "a-job".to_owned(),
        version: u64::MAX,
    };
    let sent = queue.index(&job).await;
    sent.expect("it is taken");
    let first = entries(&fake.sent()[0]);
    assert_eq!(first[0]["MessageDeduplicationId"], "a-job");
    let group = first[0]["MessageGroupId"].as_str().expect("a group");
    assert_eq!(group.len(), 64, "{group}");
    let body = first[0]["MessageBody"].as_str().expect("a body");
    assert_eq!(refreshes::decode(body).expect("our own"), Due::Index(job));
    let rebuild = RebuildJob {
        entry: "0".repeat(64).parse().expect("an id"),
        token: "a-token".to_owned(),
        time: Duration::from_secs(25),
    };
    queue.rebuild(&rebuild).await.expect("it is taken");
    let second = entries(&fake.sent()[1]);
    assert_eq!(second[0]["MessageDeduplicationId"], "a-token");
    let told = second[0]["MessageBody"].as_str().expect("a body");
    assert_eq!(
        refreshes::decode(told).expect("our own"),
        Due::Rebuild(rebuild)
    );
    let cut = body.replace("\"job\"", "\"jab\"");
    let odd = refreshes::decode(&cut).expect_err("it names no job");
    assert_eq!(odd.kind, Kind::Corrupt);
    assert!(
        odd.chain().contains("missing field `job`"),
        "{}",
        odd.chain()
    );
    let odd = refreshes::decode(r#"{"paint_index":{}}"#).expect_err("nobody knows it");
    assert!(odd.chain().contains("`paint_index`"), "{}", odd.chain());
    let odd = refreshes::decode(r#"{"cycle":1,"attempt":1}"#).expect_err("an order of nothing");
    assert!(
        odd.chain().contains("missing field `model`"),
        "{}",
        odd.chain()
    );
}

#[tokio::test]
async fn a_replay_is_among_the_refreshes_of_its_model() {
    let fake = Fake::new(|sent: &Sent| answered(sent, |_| None));
    let queue = queue_of(&fake, Arc::default());
    let job = ReplayJob {
        model: "silver.orders".parse().expect("a table"),
        job: "a-job".to_owned(),
    };
    queue.replay(&job).await.expect("it is taken");
    let sent = entries(&fake.sent()[0])[0].clone();
    assert_eq!(sent["MessageGroupId"], "silver.orders");
    assert_eq!(sent["MessageDeduplicationId"], "a-job");
    let body = sent["MessageBody"].as_str().expect("a body");
    assert_eq!(
        body,
        r#"{"replay":{"model":"silver.orders","job":"a-job"}}"#
    );
    let read = refreshes::decode(body).expect("our own");
    assert_eq!(read, Due::Replay(job));
}

#[tokio::test]
async fn a_message_is_hidden_for_whole_seconds() {
    let fake = Fake::new(|_: &Sent| Reply::ok("{}"));
    let queue = queue_of(&fake, Arc::default());
    for time in [Duration::ZERO, Duration::from_millis(4_001)] {
        queue.hide("receipt", time).await.expect("it is hidden");
    }
    let asked = fake.sent().into_iter().map(|sent| sent.json());
    let asked: Vec<_> = asked
        .map(|json| json["VisibilityTimeout"].clone())
        .collect();
    assert_eq!(asked, [1, 5]);
}

#[tokio::test]
async fn upkeep_is_a_group_and_is_asked_for_once_per_mark() {
    let fake = Fake::new(|sent: &Sent| answered(sent, |_| None));
    let queue = queue_of(&fake, Arc::default());
    let job = |mark, at| UpkeepJob {
        mark,
        at: Timestamp(at),
    };
    let jobs = [
        job(Some(u64::MAX), 1),
        job(Some(u64::MAX), 2),
        job(None, 3),
        job(None, 4),
    ];
    let mut ids = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        queue.upkeep(job).await.expect("it is taken");
        let sent = entries(&fake.sent()[at])[0].clone();
        assert_eq!(sent["MessageGroupId"], "upkeep");
        ids.push(sent["MessageDeduplicationId"].clone());
        let body = sent["MessageBody"].as_str().expect("a body");
        let read = refreshes::decode(body).expect("our own");
        assert_eq!(read, Due::Upkeep(job.clone()));
    }
    assert_eq!(ids[0], ids[1], "the same mark");
    assert!(ids[1] != ids[2] && ids[2] != ids[3], "{ids:?}");
}

#[tokio::test]
async fn a_long_refresh_keeps_its_message_until_it_ends() {
    let mut calls = 0;
    let fake = Fake::new(move |_: &Sent| {
        calls += 1;
        // The second call fails for good; the next third prolongs all the same.
        if (2..=4).contains(&calls) {
            Reply::Lost
        } else {
            Reply::ok("{}")
        }
    });
    let clock = Arc::new(SimulatedClock::default());
    let guard = queue_of(&fake, clock.clone()).extend("receipt", Duration::from_secs(90));
    // At once, and then every third.
    for (third, calls) in [(0, 1), (1, 4), (2, 5)] {
        assert!(fake.sent().len() < calls, "third {third} has not passed");
        if third > 0 {
            clock.advance(Duration::from_secs(30));
        }
        fake.until(calls).await;
        // Until it waits for the next third.
        while clock
            .next_wake()
            .is_none_or(|wake| wake <= ports::Clock::now(&*clock))
        {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(fake.sent()[0].json()["VisibilityTimeout"], 90);
    drop(guard);
    while clock.next_wake().is_some() {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(300));
    assert_eq!(fake.sent().len(), 5, "it stopped");
}

#[tokio::test]
async fn a_message_that_is_not_ours_any_more_is_let_go() {
    let fake = Fake::new(|_: &Sent| {
        let body = json!({ "__type": "com.amazonaws.sqs#ReceiptHandleIsInvalid" });
        Reply::Answer(400, Vec::new(), body.to_string())
    });
    let clock = Arc::new(SimulatedClock::default());
    let _guard = queue_of(&fake, clock.clone()).extend("receipt", Duration::from_secs(90));
    fake.until(1).await;
    while clock.next_wake().is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(fake.sent().len(), 1);
}

#[tokio::test]
async fn a_wake_is_held_back_for_whole_seconds() {
    let fake = Fake::new(|sent: &Sent| answered(sent, |_| None));
    let queue = queue(&fake);
    for delay in [
        Duration::ZERO,
        Duration::from_millis(1_200),
        Duration::from_secs(7_200),
    ] {
        queue.wake(delay).await.expect("it is taken");
    }
    let sent = fake.sent();
    assert_eq!(entries(&sent[0])[0].get("DelaySeconds"), None);
    assert_eq!(entries(&sent[1])[0]["DelaySeconds"], 2);
    assert_eq!(entries(&sent[2])[0]["DelaySeconds"], 900);
}
