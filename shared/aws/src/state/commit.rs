//! Sending a transaction until it is known what happened.
//!
//! * **Nothing happened, and could**: another transaction was at one of the items, or the table was throttled. Sent again,
//!   a bounded number of times, with jitter. Company that stays is a conflict of nothing in particular.
//! * **A condition did not hold**: a conflict, at once, if every sending before was answered.
//! * **Nobody knows**: the connection broke, the time was up, the server failed. One of the items put is read again; it bears
//!   the commit's id if the commit happened. If none does, the same request is sent again: DynamoDB remembers the token of a
//!   transaction for ten minutes, and answers for the first sending whatever has become of the items. That also answers
//!   for a transaction that puts nothing: deletes leave nothing to bear an id, and a check that is made twice does no harm.
//!   A put alone has no token, but each item says which version it replaced: if that is ours, it happened; if that is the
//!   one we expected, it did not, and cannot.
//! * **Nobody will know**: after all that, `Unavailable`, which promises nothing either way.

use std::time::Duration;

use aws_sdk_dynamodb::{config::Config, types::AttributeValue};
use aws_smithy_types::retry::RetryConfig;
use domain::Timestamp;
use ports::{
    Error, Kind, Result,
    state::{Expect, Outcome},
};

use super::{
    DynamoState,
    failure::{self, Failure},
    item::{self, BEFORE, COMMIT, VERSION, read_number},
    keys::Attributes,
    prepare::{Commit, Request, condition},
};

/// Most sendings of one transaction.
const ATTEMPTS: u32 = 8;
/// Most sendings that meet another transaction, before its caller had better look again.
const MEETINGS: u32 = 5;
/// No sending later than this after the first: well inside the time for which DynamoDB remembers a token.
const SENDING_MAX: Duration = Duration::from_secs(300);

const WRITE: &str = "write transaction";

/// What is known so far.
#[derive(Debug)]
struct Sent {
    first: Timestamp,
    attempts: u32,
    meetings: u32,
    /// Whether an answer was lost: then what failed later says nothing of the first.
    unknown: bool,
}

/// What an item says of a commit that may have put it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    /// It happened.
    Happened,
    /// It did not, and cannot any more.
    Lost,
    /// The item says nothing of it.
    None,
}

impl Commit {
    /// Sends it and answers for what happened.
    pub(super) async fn run(&self, state: &DynamoState) -> Result<Outcome> {
        let mut sent = Sent {
            first: state.clock.now(),
            attempts: 0,
            meetings: 0,
            unknown: false,
        };
        loop {
            let Err(failure) = self.send(state).await else {
                return Ok(self.committed());
            };
            sent.attempts += 1;
            if let Some(answer) = self.weigh(state, &mut sent, failure).await? {
                return Ok(answer);
            }
            state.pause(sent.attempts).await;
        }
    }

    /// The answer, if the failure of a sending is one; none to send again.
    async fn weigh(
        &self,
        state: &DynamoState,
        sent: &mut Sent,
        failure: Failure,
    ) -> Result<Option<Outcome>> {
        tracing::debug!(
            subject = self.subject,
            attempts = sent.attempts,
            ?failure,
            "not written"
        );
        let because = match failure {
            Failure::Unmet(parts) if !sent.unknown => return Ok(Some(self.conflict(&parts))),
            Failure::Unmet(parts) => return self.judge(state, &parts).await.map(Some),
            Failure::Refused(kind, because) if !sent.unknown => {
                return Err(Error::new(kind, WRITE, &self.subject).because(because));
            }
            Failure::Refused(_, because) => return Err(self.unknown(because)),
            Failure::Busy => {
                sent.meetings += 1;
                if sent.meetings >= MEETINGS && !sent.unknown {
                    return Ok(Some(Outcome::Conflict(Vec::new())));
                }
                "other transactions are in the way".to_owned()
            }
            Failure::Throttled(because) => because,
            Failure::Unknown(because) => {
                sent.unknown = true;
                match self.trace(state).await {
                    Ok(Trace::Happened) => return Ok(Some(self.committed())),
                    Ok(Trace::Lost) => return Ok(Some(Outcome::Conflict(vec![0]))),
                    // Also when it cannot be read now: the next sending asks the same.
                    Ok(Trace::None) | Err(_) => because,
                }
            }
        };
        let late = state.clock.now().since(sent.first) >= SENDING_MAX;
        if sent.attempts < ATTEMPTS && !late {
            return Ok(None);
        }
        if sent.unknown {
            return Err(self.unknown(because));
        }
        Err(Error::new(Kind::Unavailable, WRITE, &self.subject).because(because))
    }

    /// The answer when a condition did not hold after an answer was lost: it may be our own commit that broke it.
    async fn judge(&self, state: &DynamoState, parts: &[usize]) -> Result<Outcome> {
        let trace = self
            .trace(state)
            .await
            .map_err(|error| self.unknown(error.chain()))?;
        match (trace, &self.request) {
            (Trace::Happened, _) => Ok(self.committed()),
            (Trace::None, Request::Replace { .. }) => {
                Err(self.unknown("others have written it since".to_owned()))
            }
            (Trace::Lost | Trace::None, _) => Ok(self.conflict(parts)),
        }
    }

    fn committed(&self) -> Outcome {
        Outcome::Committed(self.versions.clone())
    }

    /// A conflict of the writes behind these parts of the request.
    fn conflict(&self, parts: &[usize]) -> Outcome {
        Outcome::Conflict(match &self.request {
            Request::Transaction { writes, .. } => parts
                .iter()
                .filter_map(|part| writes.get(*part).copied())
                .collect(),
            Request::Replace { .. } | Request::Nothing => parts.to_vec(),
        })
    }

    fn unknown(&self, because: String) -> Error {
        tracing::warn!(subject = self.subject, because, "outcome unknown");
        let because = format!("it is not known whether it happened: {because}");
        Error::new(Kind::Unavailable, WRITE, &self.subject).because(because)
    }

    /// Sends it once. The SDK's own retries are off: they would take our own success for another's.
    async fn send(&self, state: &DynamoState) -> Result<(), Failure> {
        let once = Config::builder().retry_config(RetryConfig::disabled());
        match &self.request {
            Request::Nothing => Ok(()),
            Request::Replace { item, before } => {
                let (expression, values) = condition(Expect::Version(*before));
                let put = state
                    .client
                    .put_item()
                    .table_name(&*state.table)
                    .set_item(Some(item.clone()))
                    .set_condition_expression(expression)
                    .set_expression_attribute_values(values);
                let answer = put.customize().config_override(once).send().await;
                answer.map(drop).map_err(|error| failure::of(&error))
            }
            Request::Transaction { actions, .. } => {
                let transaction = state
                    .client
                    .transact_write_items()
                    .client_request_token(self.id.to_string())
                    .set_transact_items(Some(actions.clone()));
                let answer = transaction.customize().config_override(once).send().await;
                answer.map(drop).map_err(|error| failure::of(&error))
            }
        }
    }

    /// Reads what was put until one of the items tells.
    async fn trace(&self, state: &DynamoState) -> Result<Trace> {
        for key in &self.puts {
            let read = state
                .client
                .get_item()
                .table_name(&*state.table)
                .set_key(Some(key.clone()))
                .consistent_read(true)
                .projection_expression(format!("{COMMIT}, {VERSION}, {BEFORE}"));
            let answer = read
                .send()
                .await
                .map_err(|error| failure::of(&error).into_error("read outcome", &self.subject))?;
            match answer
                .item
                .map_or(Trace::None, |item| self.read_trace(&item))
            {
                Trace::None => {}
                told => return Ok(told),
            }
        }
        Ok(Trace::None)
    }

    fn read_trace(&self, item: &Attributes) -> Trace {
        let Request::Replace { before, .. } = self.request else {
            return self.if_marked(item);
        };
        match read_number(item, BEFORE) {
            _ if self.if_marked(item) == Trace::Happened => Trace::Happened,
            Some(replaced) if replaced == item::version(self.id) => Trace::Happened,
            Some(replaced) if replaced == before => Trace::Lost,
            _ => Trace::None,
        }
    }

    fn if_marked(&self, item: &Attributes) -> Trace {
        let mark: Option<&AttributeValue> = item.get(COMMIT);
        if mark == Some(&item::commit_mark(self.id)) {
            Trace::Happened
        } else {
            Trace::None
        }
    }
}
