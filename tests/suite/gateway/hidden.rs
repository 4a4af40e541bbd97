//! How long a message that failed stays invisible: the queue is told.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, anyhow, ensure};
use aws::queue::{SqsQueue, refreshes::SqsRefreshes};
use axum::{Router, body::Bytes, extract::State};
use embedded::{SystemChance, SystemClock};
use lambda::{Deployed, Message};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::world::{Adapter, Lab};

use crate::plain::test_async;

pub(super) fn trial() -> Trial {
    test_async(
        "gateway::a_message_that_nobody_can_read_is_soon_in_the_dead_letter_queue",
        unreadable,
    )
}

/// A deployment whose queues nobody serves: nothing may be sent to them.
pub(crate) async fn deployed(lab: &Lab) -> Result<Deployed> {
    const NOWHERE: &str = "http://127.0.0.1:9";
    let sqs = tests::aws::clients(NOWHERE).await.sqs;
    let (clock, chance) = (Arc::new(SystemClock), Arc::new(SystemChance));
    let refreshes = SqsRefreshes::new(sqs.clone(), NOWHERE, clock.clone(), chance.clone());
    Ok(Deployed {
        world: lab.world.clone(),
        refreshes: Arc::new(refreshes),
        advances: Arc::new(SqsQueue::new(sqs, NOWHERE, clock, chance)),
        objects: lab.objects.clone(),
        settings: super::settings()?,
    })
}

type Told = Arc<Mutex<Vec<u64>>>;

async fn note(State(told): State<Told>, body: Bytes) -> &'static str {
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    told.extend(sent["VisibilityTimeout"].as_u64());
    "{}"
}

/// A queue that does nothing but take notes of how long messages are to be hidden.
pub(crate) struct Hiding {
    /// The functions' ports, with this queue in them.
    pub(crate) deployed: Deployed,
    told: Told,
}

impl Hiding {
    pub(crate) async fn over(lab: &Lab) -> Result<Self> {
        let told = Told::default();
        let router = Router::new().fallback(note).with_state(told.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/refreshes.fifo", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let sqs = tests::aws::clients(url.trim_end_matches("/refreshes.fifo"))
            .await
            .sqs;
        let (clock, chance) = (Arc::new(SystemClock), Arc::new(SystemChance));
        let mut deployed = deployed(lab).await?;
        deployed.refreshes = Arc::new(SqsRefreshes::new(sqs, url, clock, chance));
        Ok(Self { deployed, told })
    }

    /// Delivers a message with so much of an invocation's time left; whether it is to come again.
    pub(crate) async fn deliver(&self, body: String) -> Result<bool> {
        let message = Message {
            id: "m1".to_owned(),
            group: Some("a group".to_owned()),
            receipt: "a receipt".to_owned(),
            body,
            ..Message::default()
        };
        let mut context = lambda::Context::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        context.deadline = u64::try_from(now.as_millis())? + 60_000;
        let answer = lambda::carry_out(&self.deployed, &[message], &context).await;
        let answer = answer.map_err(|error| anyhow!("{error}"))?;
        Ok(answer != json!({ "batchItemFailures": [] }))
    }

    /// Seconds that the message was hidden for in the end.
    pub(crate) fn last(&self) -> Option<u64> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.last().copied()
    }
}

async fn unreadable() -> Result<()> {
    let lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    let bodies = [
        "hello".to_owned(),
        json!({ "paint_index": {} }).to_string(),
        json!({ "build_index": { "entry": "nope" } }).to_string(),
    ];
    for body in bodies {
        let hiding = Hiding::over(&lab).await?;
        ensure!(hiding.deliver(body.clone()).await?, "{body}: taken");
        // Five deliveries are half a minute and not 75.
        ensure!(hiding.last() == Some(5), "{body}: {:?}", hiding.last());
    }
    Ok(())
}
