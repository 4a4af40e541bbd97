//! What an invocation brings: an HTTP request, messages of a queue, or a tick of the schedule.

use std::collections::BTreeMap;

use lambda_http::request::LambdaRequest;
use serde::Deserialize;
use serde_json::Value;

/// The detail type of a tick, from an EventBridge rule or the Scheduler.
const TICK: &str = "Scheduled Event";

/// One invocation.
#[derive(Debug)]
pub enum Event {
    /// A request through an HTTP API, a REST API, a load balancer or a function URL.
    Http(Box<LambdaRequest>),
    /// Messages of an SQS queue.
    Queue(Vec<Message>),
    /// The schedule.
    Tick,
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its id, for the outcome.
    pub id: String,
    /// The group of a FIFO queue; none on a standard queue.
    pub group: Option<String>,
    /// What prolongs or deletes it.
    pub receipt: String,
    /// The queue's ARN.
    pub queue: String,
    /// What was sent.
    pub body: String,
    /// Attributes with text values.
    pub attributes: BTreeMap<String, String>,
}

/// A record of an SQS event, as the service writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    message_id: Option<String>,
    #[serde(default)]
    receipt_handle: String,
    #[serde(default)]
    body: String,
    #[serde(default, rename = "eventSourceARN")]
    event_source_arn: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    message_attributes: BTreeMap<String, Attribute>,
}

/// An attribute that a sender gave a message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attribute {
    string_value: Option<String>,
}

impl Event {
    /// Reads the payload of an invocation.
    ///
    /// # Errors
    /// When it is none of the three, or one of them with a field missing; says which was tried.
    pub fn read(payload: Value) -> Result<Self, String> {
        if let Some(records) = payload.get("Records") {
            let records: Vec<Record> = serde_json::from_value(records.clone())
                .map_err(|error| format!("the records are no SQS messages: {error}"))?;
            return records
                .into_iter()
                .map(Message::read)
                .collect::<Result<_, _>>()
                .map(Self::Queue);
        }
        if payload.get("detail-type").and_then(Value::as_str) == Some(TICK) {
            return Ok(Self::Tick);
        }
        match serde_json::from_value(payload) {
            Ok(request) => Ok(Self::Http(Box::new(request))),
            Err(error) => Err(format!(
                "the event is no HTTP request, no SQS batch and no scheduled event: {error}"
            )),
        }
    }
}

impl Message {
    fn read(record: Record) -> Result<Self, String> {
        let id = record.message_id.ok_or("a message has no messageId")?;
        let text = record
            .message_attributes
            .into_iter()
            .filter_map(|(name, attribute)| Some((name, attribute.string_value?)));
        Ok(Self {
            group: record.attributes.get("MessageGroupId").cloned(),
            receipt: record.receipt_handle,
            queue: record.event_source_arn,
            body: record.body,
            attributes: text.collect(),
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use lambda_http::request::LambdaRequest;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_invocation_is_known_by_its_shape() {
        let queue = json!({"Records": [{"messageId": "m1", "receiptHandle": "r", "body": "{}", "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:1:refreshes.fifo", "attributes": {"MessageGroupId": "silver.orders"},
            "messageAttributes": {"traceparent": {"stringValue": "00-1", "dataType": "String"}}}]});
        let Ok(Event::Queue(messages)) = Event::read(queue) else {
            panic!("messages")
        };
        assert_eq!(messages[0].group.as_deref(), Some("silver.orders"));
        assert_eq!(messages[0].attributes["traceparent"], "00-1");
        let tick = json!({"version": "0", "source": "aws.events", "detail-type": "Scheduled Event", "detail": {}});
        assert!(matches!(Event::read(tick), Ok(Event::Tick)));
        let error = Event::read(json!({"hello": 1})).expect_err("nothing we know");
        assert!(error.starts_with("the event is no HTTP request"), "{error}");
        let error = Event::read(json!({"Records": [{"body": "x"}]})).expect_err("no id");
        assert_eq!(error, "a message has no messageId");
    }

    #[test]
    fn requests_of_every_gateway_are_read() {
        let second = json!({"version": "2.0", "routeKey": "$default", "rawPath": "/healthz", "rawQueryString": "",
            "headers": {"Host": "x"}, "isBase64Encoded": false,
            "requestContext": {"accountId": "1", "apiId": "a", "stage": "$default", "timeEpoch": 0,
                "http": {"method": "GET", "path": "/healthz", "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"}}});
        let Ok(Event::Http(request)) = Event::read(second) else {
            panic!("a request")
        };
        assert!(matches!(*request, LambdaRequest::ApiGatewayV2(_)));
        let balancer = json!({"requestContext": {"elb": {"targetGroupArn": "arn"}}, "httpMethod": "GET", "path": "/healthz",
            "queryStringParameters": {}, "headers": {"host": "x"}, "body": "", "isBase64Encoded": false});
        let Ok(Event::Http(request)) = Event::read(balancer) else {
            panic!("a request")
        };
        assert!(matches!(*request, LambdaRequest::Alb(_)));
    }
}
