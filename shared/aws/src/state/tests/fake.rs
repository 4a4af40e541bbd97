//! A DynamoDB in memory behind the SDK's own client: as much of it as the store uses, failures on demand.

mod expression;
mod operations;

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::{
    http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
    },
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::{body::SdkBody, retry::RetryConfig};
use rand::{Rng, rngs::StdRng};
use serde_json::{Map, Value, json};

use super::configured;

/// Attributes of an item, as JSON.
pub(super) type Row = Map<String, Value>;

/// What goes wrong with one request that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another transaction is at an item. Nothing happens.
    Conflict,
    /// Too many requests. Nothing happens.
    Throttle,
    /// The server fails before it does anything.
    FailBefore,
    /// The server does it, then fails.
    FailAfter,
    /// The connection breaks before the server does anything.
    DropBefore,
    /// The server does it, then the connection breaks.
    DropAfter,
    /// As `FailAfter`, and somebody else replaces what was put before anybody looks; once for a chain of one.
    Overwritten,
    /// As `Overwritten`, by one who expected nothing: the items tell nothing any more.
    Buried,
    /// The connection breaks, and the request reaches the server only after the two next that write.
    Late,
}

/// Faults that may strike at random.
pub(super) const RANDOM: [Fault; 7] = [
    Fault::Conflict,
    Fault::Throttle,
    Fault::FailBefore,
    Fault::FailAfter,
    Fault::DropBefore,
    Fault::DropAfter,
    Fault::Late,
];

/// The DynamoDB.
#[derive(Clone, Debug, Default)]
pub(super) struct Fake(Arc<Mutex<World>>);

#[derive(Debug, Default)]
pub(super) struct World {
    /// Items by table and key.
    items: BTreeMap<(String, String, String), Row>,
    /// Tokens of transactions that happened.
    tokens: HashSet<String>,
    /// What goes wrong with the next requests that write, in order.
    faults: VecDeque<Option<Fault>>,
    /// Faults at random, and how many of a hundred writes they strike.
    random: Option<(StdRng, u32)>,
    /// Requests that are still on their way, and how many writes will be answered before they arrive.
    late: Vec<(u32, String, Value)>,
    requests: Vec<String>,
}

/// An answer: status and body; none for a broken connection.
type Answer = Option<(u16, Value)>;

impl Fake {
    pub(super) fn client(&self) -> Client {
        let retries = RetryConfig::standard()
            .with_max_attempts(10)
            .with_initial_backoff(Duration::from_millis(1));
        let config = configured()
            .http_client(self.clone())
            .endpoint_url("http://dynamodb.test")
            .retry_config(retries);
        Client::from_conf(config.build())
    }

    /// The next requests that write go wrong like this, one after the other.
    pub(super) fn fail(&self, faults: &[Fault]) {
        self.world().faults.extend(faults.iter().copied().map(Some));
    }

    /// Of a hundred requests that write, as many go wrong from now on.
    pub(super) fn fail_randomly(&self, random: StdRng, percent: u32) {
        self.world().random = Some((random, percent));
    }

    /// No further faults, and what is on its way arrives.
    pub(super) fn calm(&self) {
        let mut world = self.world();
        world.random = None;
        world.faults.clear();
        for (_, operation, body) in std::mem::take(&mut world.late) {
            world.perform(&operation, &body);
        }
    }

    /// Names of the operations asked for so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.world().requests.clone()
    }

    /// Waits until an operation has been asked for so many times.
    pub(super) async fn reached(&self, operation: &str, times: usize) {
        let count = || {
            self.requests()
                .iter()
                .filter(|asked| *asked == operation)
                .count()
        };
        while count() < times {
            tokio::task::yield_now().await;
        }
    }

    /// An item of texts in the table of the state.
    pub(super) fn insert(&self, texts: &[(&str, &str)]) {
        let row: Row = texts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), json!({"S": text})))
            .collect();
        self.world().insert("state", row);
    }

    /// The items of a table.
    pub(super) fn rows(&self, table: &str) -> Vec<Row> {
        let world = self.world();
        let of_table = world.items.iter().filter(|((of, ..), _)| of == table);
        of_table.map(|(_, row)| row.clone()).collect()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpClient for Fake {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Fake {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body = request.body().bytes().unwrap_or_default();
        let body: Value = serde_json::from_slice(body).expect("requests are JSON");
        let answer = self.world().answer(&operation, body);
        // Never at once: others may come between a request and its answer, as they do.
        HttpConnectorFuture::new(async move {
            tokio::task::yield_now().await;
            respond(answer)
        })
    }
}

fn respond(answer: Answer) -> Result<HttpResponse, ConnectorError> {
    let Some((status, body)) = answer else {
        return Err(ConnectorError::io("connection reset by peer".into()));
    };
    let status = status.try_into().expect("a status");
    Ok(HttpResponse::new(status, SdkBody::from(body.to_string())))
}

impl World {
    fn answer(&mut self, operation: &str, body: Value) -> Answer {
        self.requests.push(operation.to_owned());
        if !["PutItem", "TransactWriteItems"].contains(&operation) {
            return Some(self.perform(operation, &body));
        }
        let fault = match (self.faults.pop_front(), &mut self.random) {
            (Some(fault), _) => fault,
            (None, Some((random, percent))) => {
                let strikes = random.random_range(0..100) < *percent;
                strikes.then(|| RANDOM[random.random_range(0..RANDOM.len())])
            }
            (None, None) => None,
        };
        let failed = || {
            Some((
                500,
                json!({"__type": "com.amazonaws.dynamodb#InternalServerError"}),
            ))
        };
        let answer = match fault {
            None => Some(self.perform(operation, &body)),
            Some(Fault::Conflict) => Some(operations::busy(operation, &body)),
            Some(Fault::Throttle) => Some((400, json!({"__type": "x#ThrottlingException"}))),
            Some(Fault::FailBefore) => failed(),
            Some(Fault::DropBefore) => None,
            Some(Fault::FailAfter) => {
                self.perform(operation, &body);
                failed()
            }
            Some(Fault::DropAfter) => {
                self.perform(operation, &body);
                None
            }
            Some(fault @ (Fault::Overwritten | Fault::Buried)) => {
                self.perform(operation, &body);
                self.overwrite(fault == Fault::Overwritten);
                failed()
            }
            Some(Fault::Late) => {
                self.late.push((3, operation.to_owned(), body));
                None
            }
        };
        self.deliver();
        answer
    }

    /// What was on its way for long enough arrives; nobody waits for its answer.
    fn deliver(&mut self) {
        for (wait, ..) in &mut self.late {
            *wait -= 1;
        }
        let late = std::mem::take(&mut self.late);
        let (arrived, late): (Vec<_>, Vec<_>) = late.into_iter().partition(|(wait, ..)| *wait == 0);
        self.late = late;
        for (_, operation, body) in arrived {
            self.perform(&operation, &body);
        }
    }

    /// Somebody else replaces every item of the state, saying or not saying which version.
    fn overwrite(&mut self, expecting: bool) {
        let of_state = self
            .items
            .iter_mut()
            .filter(|((table, ..), _)| table == "state");
        for (_, row) in of_state {
            let before = row.insert("v".to_owned(), json!({"N": "123456"}));
            row.remove("c");
            row.remove("b");
            if let Some(before) = before.filter(|_| expecting) {
                row.insert("b".to_owned(), before);
            }
        }
    }
}
